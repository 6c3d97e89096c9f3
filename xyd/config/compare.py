"""What changed between a run's saved configuration and the one it is resumed with, and what each change asks for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from xyd.config.sections import Config

Remedy = Literal["free", "reset-schedule", "fresh"]

# Sections and keys of `train` that a resumed run may change without a word: they do not touch the numbers of a step.
_FREE_SECTIONS = {"run", "decode", "evaluate"}
_FREE_TRAIN = {
    "max_steps",
    "max_epochs",
    "max_minutes",
    "validate_every",
    "patience",
    "min_gain",
    "metric",
    "save_every",
    "log_every",
    "keep_checkpoints",
    "average",
    "device",
    "workers",
    "threads",
    "precision",
    "init_from",
}


@dataclass(frozen=True)
class Difference:
    """One key whose value changed, with the flag that a resumed run needs for it (free = none)."""

    key: str
    old: Any
    new: Any
    remedy: Remedy


def is_of_mixture(key: str) -> bool:
    """Whether the key says only how often pairs are seen, not which there are."""
    return key == "data.temperature" or (key.startswith("data.corpora.") and key.split(".")[-1] in ("weight", "cap"))


def _remedy(key: str, old: Any, new: Any) -> Remedy:
    section, _, name = key.partition(".")
    # A file that lies elsewhere is no other data; its content is compared by fingerprint.
    is_moved = all(isinstance(value, str) and os.path.isabs(value) for value in (old, new))
    if section == "data" and is_moved and ".hf." not in key:
        return "free"
    if is_of_mixture(key):
        return "reset-schedule"
    # The split and the tokenizer's sample are drawn from the seed, so another seed is other data.
    if key == "run.seed":
        return "fresh"
    if section in _FREE_SECTIONS or (section == "train" and name in _FREE_TRAIN):
        return "free"
    return "reset-schedule" if section == "train" else "fresh"


def changes_steps(saved: Config, new: Config) -> bool:
    """Whether an epoch is cut into other steps than before."""
    keys = {change.key for change in differences(saved, new)}
    return bool(keys & {"train.max_tokens", "train.tokens_per_step", "train.subword_sampling"}) or any(
        map(is_of_mixture, keys)
    )


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{key}.{index}")
    else:
        yield key, value


def _in_order_of(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The corpora `new`, each at its place in `old`: their order decides nothing, and weights go with them."""
    rest = list(new)
    places: list[dict[str, Any] | None] = [None] * len(old)
    for how_often in ((), ("weight", "cap")):
        for number, corpus in enumerate(old):
            alike = (one for one in rest if all(one[key] == corpus[key] for key in corpus if key not in how_often))
            if places[number] is None and (found := next(alike, None)) is not None:
                places[number] = found
                rest.remove(found)
    others = iter(rest)
    filled = [place if place is not None else next(others, None) for place in places]
    return [place for place in filled if place is not None] + list(others)


def differences(saved: Config, new: Config) -> list[Difference]:
    """Every key that changed, in the order of the sections; a key on one side only has None on the other.

    ``data.root`` is left out: the files it stands for are compared themselves. Paths of files are free to change;
    whether the files hold what they held is for the data's fingerprint to say.
    """
    old, again = saved.model_dump(mode="json"), new.model_dump(mode="json")
    again["data"]["corpora"] = _in_order_of(old["data"]["corpora"], again["data"]["corpora"])
    old_leaves, new_leaves = dict(_leaves(old)), dict(_leaves(again))

    def is_inherited(key: str) -> bool:  # a filter of a corpus that is what the whole section says, before and now
        above = f"data.{key.rpartition('.')[2]}"
        same = (leaves.get(key) == leaves.get(above) for leaves in (old_leaves, new_leaves))
        return ".filters." in key and all(same)

    return [
        Difference(
            key, old_leaves.get(key), new_leaves.get(key), _remedy(key, old_leaves.get(key), new_leaves.get(key))
        )
        for key in {**old_leaves, **new_leaves}
        if old_leaves.get(key) != new_leaves.get(key) and key != "data.root" and not is_inherited(key)
    ]
