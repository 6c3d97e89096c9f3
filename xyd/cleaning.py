"""Filters on text: is a pair fit to learn from, and if not, why."""

from __future__ import annotations

from xyd.config import DataConfig

_RATIO_SLACK = 20
"""Characters by which the longer side may exceed the ratio: short texts ("No.") have freer translations."""

_JOINERS = "\u200c\u200d"


class Cleaner:
    """The filters of the `data` section. Nothing is cut or changed: a pair stays whole or goes whole.

    Repeats of a pair and texts too long in tokens need the whole corpus and the tokenizer; `corpus` finds those.
    """

    def __init__(self, data: DataConfig) -> None:
        self._data = data

    def reason(self, src: str, tgt: str) -> str | None:
        """Why the pair must go, or None to keep it. Both texts must be normalised; lengths are in characters.

        In this order: "empty" (a side without text), "too_short", "too_long", "length_ratio" (the longer side is more
        than max_length_ratio times the shorter plus 20), "identical" (the same text on both sides, which would teach
        the model to copy).
        """
        if not src.strip(_JOINERS) or not tgt.strip(_JOINERS):
            return "empty"
        shorter, longer = sorted((len(src), len(tgt)))
        if shorter < self._data.min_characters:
            return "too_short"
        if longer > self._data.max_characters:
            return "too_long"
        if longer > self._data.max_length_ratio * shorter + _RATIO_SLACK:
            return "length_ratio"
        if self._data.drop_identical and src == tgt:
            return "identical"
        return None
