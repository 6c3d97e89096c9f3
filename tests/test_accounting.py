"""Nothing is lost in silence: read = kept + dropped for corpora full of flaws, and an epoch is what its table says."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from toy import Toy

from xyd import config as configuration
from xyd.batching import plan_epoch
from xyd.corpus import open_split, prepare
from xyd.errors import DataError
from xyd.files import RunDir
from xyd.sampling import Mixture
from xyd.text import normalise
from xyd.tokenizer import Tokenizer
from xyd.train import Trainer

# ── read = kept + dropped ────────────────────────────────────────────────────────────────────────────────────────────

# What may be wrong with a row, and the reason it is dropped for; None = it is mended and stays.
FLAWS: dict[str, str | None] = {
    "none": None,
    "blank": "empty",
    "invisible": "empty",
    "copy": "identical",
    "unequal": "length_ratio",
    "long": "too_long",
    "separator": None,
    "nul": None,
    "nfd": None,
    "bytes": "bad_utf8",
    "ragged": "ragged_row",
    "lacking": "missing_side",
}
FLAWS_OF = {
    "files": FLAWS.keys() - {"ragged", "lacking"},
    "tsv": FLAWS.keys() - {"lacking"},
    "jsonl": FLAWS.keys() - {"bytes", "ragged"},
}


WORDS = ["houses", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
MOTS = ["maisons", "un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf"]


def row(number: int, flaw: str) -> tuple[bytes, bytes]:
    """Both sides of a row, before a format holds them. Numbers make rows differ."""
    src, tgt = (" ".join(words[int(digit)] for digit in str(number)) for words in (WORDS, MOTS))
    changed = {
        "blank": (src, " "),
        "invisible": ("\u200b\u202a\ufeff", tgt),
        "copy": (src, src),
        "unequal": (src, (tgt + " ") * 12),
        "long": (src * 60, tgt * 60),
        "separator": (src + "\u2028\x85\x0cx", tgt),
        "nul": (src, tgt + "\x00"),
        "nfd": (src, "e\u0301 " + tgt),
    }
    src, tgt = changed.get(flaw, (src, tgt))
    return src.encode(), tgt.encode() + (b"\xff" if flaw == "bytes" else b"")


def write(folder: Path, name: str, form: str, rows: list[tuple[int, str]]) -> dict[str, Any]:
    """The corpus on disk; returns its entry in data.corpora."""
    sides = [row(*one) for one in rows]
    if form == "files":
        for lang, side in (("en", 0), ("fr", 1)):
            (folder / f"{name}.{lang}").write_bytes(b"".join(pair[side] + b"\n" for pair in sides))
        return {"files": {lang: str(folder / f"{name}.{lang}") for lang in ("en", "fr")}}
    path = folder / f"{name}.{form}"
    with path.open("wb") as file:
        for (src, tgt), (_, flaw) in zip(sides, rows, strict=True):
            if form == "tsv":
                file.write(src + b"\t" + tgt + b"\tone too many" * (flaw == "ragged") + b"\n")
            else:
                pair = {"en": src.decode(), "fr": tgt.decode()}
                file.write(json.dumps({"en": pair["en"]} if flaw == "lacking" else pair).encode() + b"\n")
    return {form: str(path), "languages": ["en", "fr"]}


@st.composite
def corpora(draw: st.DrawFn) -> list[tuple[str, list[tuple[int, str]]]]:
    """(format, rows) of some corpora; numbers come again, inside a corpus and across."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        form = draw(st.sampled_from(sorted(FLAWS_OF)))
        flaws = st.sampled_from(["none"] * 8 + sorted(FLAWS_OF[form]))
        found.append((form, draw(st.lists(st.tuples(st.integers(100, 160), flaws), min_size=15, max_size=40))))
    return found


@pytest.mark.need(6)
@pytest.mark.need(19)
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.generate],  # shrinking takes minutes
)
@given(given=corpora(), repeats=st.booleans(), scale=st.sampled_from([0.0, 4.0]))
def test_every_row_is_kept_or_dropped_for_its_reason(
    tmp_path_factory: pytest.TempPathFactory, given: list[Any], repeats: bool, scale: float
) -> None:
    folder = tmp_path_factory.mktemp("c")
    tree = {
        "run": {"name": "r", "dir": str(folder)},
        "data": {
            "corpora": [write(folder, f"c{n}", form, rows) for n, (form, rows) in enumerate(given)],
            "valid": 2,
            "on_bad_utf8": "drop",
            "max_characters": 400,
            "drop_repeats": repeats,
        },
        "tokenizer": {"vocab_size": 330},
        "augment": {"scale": scale},
        "model": {"max_length": 512},
    }
    path = folder / "c.yaml"
    path.write_text(json.dumps(tree), encoding="utf-8")
    said: list[str] = []
    try:
        manifest = prepare(configuration.load(path), RunDir(folder / "r"), said.append)
    except DataError as error:  # too few are left to split
        event(f"refused: {error}"[:40])
        return
    run = RunDir(folder / "r")
    splits = {name: open_split(run, name) for name in manifest["files"]}
    tokenizer = Tokenizer.load(run.tokenizer_path)
    by_name = {entry["name"]: entry for entry in manifest["corpora"]}

    # Kept rows stand with the text that their line has; a pair is a row in each direction, in one split. Rows of
    # augmentation say so in their origin.
    kept: Counter[tuple[str, int]] = Counter()
    for name, split in splits.items():
        made_up = np.array([split.origin(index).endswith(")") for index in range(len(split))])
        assert made_up.sum() == (sum(manifest["augmented"].values()) if name == "train" else 0)
        assert (~made_up).sum() == sum(manifest["split"][name].values())
        for index in np.flatnonzero(~made_up & (split.direction == 0)).tolist():
            corpus, _, number = split.origin(index).rpartition(":")
            rows = given[int(corpus[1])][1]
            sides = tuple(normalise(side.decode("utf-8", "replace")) for side in row(*rows[int(number) - 1]))
            found = tokenizer.decode(split.src_ids(index).tolist()), tokenizer.decode(split.tgt_ids(index).tolist())
            assert found == sides
            kept[corpus, int(number)] += 1
    assert set(kept.values()) <= {1}
    assert sum(kept.values()) == sum(entry["kept"] for entry in manifest["corpora"])

    for n, (form, rows) in enumerate(given):
        name = f"c{n}.en + c{n}.fr" if form == "files" else f"c{n}.{form}"
        entry = by_name[name]
        dropped = {reason: found["count"] for reason, found in entry["dropped"].items()}
        assert entry["read"] == len(rows)
        assert entry["read"] == entry["kept"] + sum(dropped.values())
        line = f"  {name}: read {len(rows):,} = kept {entry['kept']:,} + dropped {sum(dropped.values()):,}"
        assert line in said[-1]
        if form == "tsv" and Counter(flaw == "ragged" for _, flaw in rows)[True] * 2 >= len(rows):
            continue  # then it is the others that are
        unfit = Counter(FLAWS[flaw] for _, flaw in rows if FLAWS[flaw] is not None)
        dropped_for_flaws = {reason: count for reason, count in dropped.items() if reason != "repeat"}
        assert dropped_for_flaws == unfit
        assert repeats or "repeat" not in dropped
        for reason, found in entry["dropped"].items():
            for place in found["first"]:
                corpus, _, number = place.rpartition(":")
                assert kept[corpus, int(number)] == 0
                assert reason == (FLAWS[rows[int(number) - 1][1]] or "repeat")
    assert sum(entry["read"] for entry in manifest["corpora"]) == sum(len(rows) for _, rows in given)


# ── an epoch is what the table says ──────────────────────────────────────────────────────────────────────────────────


def told(table: list[str]) -> dict[str, int]:
    """Direction → rows seen an epoch, read from the lines that people read."""
    found = (re.match(r"  (\S+): [\d,]+ rows, ([\d,]+) seen an epoch", line) for line in table)
    return {match[1]: int(match[2].replace(",", "")) for match in found if match}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    cells=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 60)), min_size=1, max_size=6),
    weights=st.tuples(*[st.floats(0.1, 4)] * 3),
    caps=st.tuples(*[st.none() | st.integers(1, 50)] * 3),
    temperature=st.floats(1, 10),
    epoch=st.integers(0, 5),
)
def test_the_planned_steps_hold_the_rows_of_the_table(
    cells: list[Any], weights: Any, caps: Any, temperature: float, epoch: int
) -> None:
    direction = np.concatenate([np.full(n, d, np.int16) for d, _, n in cells])
    corpus = np.concatenate([np.full(n, c, np.int16) for _, c, n in cells])
    mixture = Mixture(direction, corpus, weights, caps, temperature, 1)
    lengths = np.random.default_rng(0).integers(1, 30, (2, len(direction)))
    steps = plan_epoch(*lengths, mixture.rows(epoch), max_tokens=100, tokens_per_step=150, seed=1, epoch=epoch)
    rows = np.concatenate([np.zeros(0, np.int64), *(batch for step in steps for batch in step)])
    assert len(rows) == mixture.num_seen
    names = ["aa-bb", "bb-aa", "aa-cc"]
    seen = np.bincount(direction[rows], minlength=3)
    assert told(mixture.table(names, ["x", "y", "z"])) == dict(zip(names, seen.tolist(), strict=True))


OVERRIDES = ["data.directions=all", "data.temperature=3.0", "data.corpora.0.weight=1.7", "train.subword_sampling=0.2"]


@pytest.mark.parametrize("overrides", [OVERRIDES, OVERRIDES[:1], OVERRIDES[1:3]])
def test_a_run_sees_what_it_said_it_would_see(overrides: list[str], toy: Toy, tmp_path: Path) -> None:
    config = toy.config(tmp_path, *overrides)
    prepare(config, RunDir(tmp_path / "toy"), lambda _text: None)
    trainer = Trainer(config)
    table = told(trainer.mixture.table(trainer.directions, ["toy"]))
    seen: Counter[str] = Counter()
    drawn = 0
    with trainer.log:
        for _ in range(len(trainer.steps)):
            rows = np.concatenate(trainer._next_micro_batches())
            seen.update(trainer.directions[d] for d in trainer.split.direction[rows])
            drawn += trainer.sampled.num_drawn if trainer.sampled else len(np.unique(rows))
    assert trainer.state.epoch == 1
    assert seen == table
    assert 0 < drawn <= sum(table.values())  # a row that a step holds twice is drawn once


def test_a_plan_that_loses_rows_ends_the_run(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(toy.config(tmp_path))
    monkeypatch.setattr("xyd.train.plan_epoch", lambda *args, **options: plan_epoch(*args, **options)[1:])
    with trainer.log, pytest.raises(AssertionError, match="the steps of epoch 1 hold"):
        trainer._plan_epoch()
