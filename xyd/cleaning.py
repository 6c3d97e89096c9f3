"""Filters on pairs: is a pair fit to learn from, and if not, why."""

from __future__ import annotations

from collections.abc import Callable

from xyd.config import Filters
from xyd.errors import DataError
from xyd.health.signs import finder
from xyd.text import SentencePair

_RATIO_SLACK = 20
"""Characters by which the longer side may exceed the ratio: short texts ("No.") have freer translations."""

_JOINERS = "\u200c\u200d"
_MIN_LETTERS = 20
"""Shorter texts tell too little about their language."""


class Cleaner:
    """The filters of one corpus. Nothing is cut or changed: a pair stays whole or goes whole.

    Repeats of a pair and texts too long in tokens need the whole corpus and the tokenizer; `corpus` finds those.
    """

    def __init__(self, filters: Filters) -> None:
        """Raises DataError if a filter needs a library that is not installed."""
        self._filters = filters
        self._identify = _identifier() if filters.language_id is not None else None
        self.needs_pair = bool(filters.drop) or filters.min_score is not None or filters.language_id is not None

    def reason(self, src: str, tgt: str, pair: SentencePair | None = None) -> str | None:
        """Why the pair must go, or None to keep it. Both texts must be normalised; lengths are in characters.

        In this order: "empty" (a side without text), "too_short", "too_long", "length_ratio" (the longer side is more
        than max_length_ratio times the shorter plus 20), "identical" (the same text on both sides, which would teach
        the model to copy), "low_score", a sign of `drop` (`xyd.health.signs`), "other_language". `pair` knows its
        languages and score; it may be left out unless the filters need it.
        """
        f = self._filters
        if not src.strip(_JOINERS) or not tgt.strip(_JOINERS):
            return "empty"
        shorter, longer = len(src), len(tgt)
        if shorter > longer:
            shorter, longer = longer, shorter
        if shorter < f.min_characters:
            return "too_short"
        if longer > f.max_characters:
            return "too_long"
        if longer > f.max_length_ratio * shorter + _RATIO_SLACK:
            return "length_ratio"
        if f.drop_identical and src == tgt:
            return "identical"
        if pair is None:
            return None
        if f.min_score is not None and (pair.score is None or not pair.score >= f.min_score):
            return "low_score"
        if f.drop:
            found = finder(pair.src_lang, pair.tgt_lang)(src, tgt)
            if (sign := next((name for name in f.drop if name in found), None)) is not None:
                return sign
        if f.language_id is not None and (
            self._is_other(src, pair.src_lang, f.language_id) or self._is_other(tgt, pair.tgt_lang, f.language_id)
        ):
            return "other_language"
        return None

    def _is_other(self, text: str, lang: str, sureness: float) -> bool:
        if sum(map(str.isalpha, text)) < _MIN_LETTERS and text.isascii():
            return False
        assert self._identify is not None
        found, probability = self._identify(text)
        return found != lang.split("_")[0].lower() and probability >= sureness


def _identifier() -> Callable[[str], tuple[str, float]]:
    """Text → ISO 639-1 code and its probability (Lui and Baldwin 2012, langid.py)."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier  # takes a second, so only where it is needed
    except ImportError as error:
        raise DataError("data.language_id needs py3langid: pip install 'xyd[langid]', or set it to null") from error
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    return lambda text: identifier.classify(text)
