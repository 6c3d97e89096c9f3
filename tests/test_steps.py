"""Shifted blocks: made in clean corpora and found with their lines; real clean corpora raise no alarm."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xyd.health import steps
from xyd.health.steps import Shift, Steps
from xyd.health.tokens import tokenise
from xyd.text import normalise


def found_in(src: list[str], tgt: list[str], portion: int = 4096) -> list[Shift]:
    watch = Steps()
    for start in range(0, len(src), portion):
        watch.add(src[start : start + portion], tgt[start : start + portion])
    return watch.finish()


def made_up(num_lines: int, seed: int, *, numbers: bool = True) -> tuple[list[str], list[str]]:
    """Two made-up languages: each word has one translation; some lines hold a number."""
    draw = random.Random(seed)

    def word(letters: str) -> str:
        return "".join(draw.choice(letters) for _ in range(draw.randint(3, 9)))

    lexicon = [(word("abcdefghijkl"), word("mnopqrstuvwxyz")) for _ in range(400)]
    weights = [1 / rank for rank in range(3, len(lexicon) + 3)]
    src, tgt = [], []
    for _ in range(num_lines):
        chosen = draw.choices(lexicon, weights, k=draw.randint(4, 14))
        number = f" {draw.randint(2, 2000)}" if numbers and draw.random() < 0.3 else ""
        src.append(" ".join(a for a, _ in chosen) + number + ".")
        tgt.append(" ".join(b for _, b in reversed(chosen)) + number + ".")
    return src, tgt


def shifted(tgt: list[str], first: int, last: int, offset: int) -> list[str]:
    """The translations of lines `first` to `last`, from 1, stand `offset` lines further; the counts stay equal."""
    if offset > 0:
        return [*tgt[: first - 1], *["Zzz zzz."] * offset, *tgt[first - 1 : last - offset], *tgt[last:]]
    return [*tgt[: first - 1], *tgt[first - 1 - offset : last], *["Zzz zzz."] * -offset, *tgt[last:]]


# ── made-up text ─────────────────────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    length=st.integers(25, 300),
    offset=st.integers(-8, 8).filter(bool),
    numbers=st.booleans(),
    data=st.data(),
)
def test_any_block_is_found_with_its_ends_and_offset(
    seed: int, length: int, offset: int, numbers: bool, data: st.DataObject
) -> None:
    src, tgt = made_up(1500, seed, numbers=numbers)
    first = data.draw(st.integers(1, len(src) - length))
    last = first + length - 1
    (block,) = found_in(src, shifted(tgt, first, last, offset))
    assert block.offsets[0] == offset
    assert abs(block.first - first) <= 3
    assert abs(block.last - last) <= 3


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), num_lines=st.integers(1, 1200))
def test_what_is_in_step_raises_no_alarm(seed: int, num_lines: int) -> None:
    assert found_in(*made_up(num_lines, seed)) == []


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=12), st.text(max_size=12)), max_size=40))
def test_any_lines_can_be_looked_at(pairs: list[tuple[str, str]]) -> None:
    found_in([normalise(src) for src, _ in pairs], [normalise(tgt) for _, tgt in pairs], portion=7)


@pytest.mark.parametrize("texts", [["a"], [""], ["7", "7"], ["", "x", ""], ["same"] * 900])
def test_little_or_monotonous_text_raises_no_alarm(texts: list[str]) -> None:
    assert found_in(texts, texts) == []


def test_a_corpus_that_is_out_of_step_as_a_whole() -> None:
    src, tgt = made_up(1000, 1)
    (block,) = found_in(src, shifted(tgt, 1, 1000, 2))
    assert (block.first, block.last, block.offsets) == (1, 1000, [2])


def test_half_a_corpus_out_of_step() -> None:
    src, tgt = made_up(2000, 2)
    (block,) = found_in(src, shifted(tgt, 1000, 2000, -1))
    assert abs(block.first - 1000) <= 3
    assert (block.last, block.offsets) == (2000, [-1])


def test_two_blocks_are_two_findings() -> None:
    src, tgt = made_up(2000, 3)
    blocks = found_in(src, shifted(shifted(tgt, 300, 400, 1), 1200, 1300, -3))
    assert [block.offsets for block in blocks] == [[1], [-3]]
    assert all(abs(block.first - first) <= 3 for block, first in zip(blocks, (300, 1200), strict=True))


def test_lost_order_is_told_without_an_offset() -> None:
    src, tgt = made_up(2000, 4)
    (block,) = found_in(src, [*tgt[:700], *reversed(tgt[700:900]), *tgt[900:]])
    assert block.offsets == []
    assert abs(block.first - 701) <= 3
    assert abs(block.last - 900) <= 3
    mixed = list(tgt)
    random.Random(0).shuffle(mixed)
    assert found_in(src, mixed) == [Shift(1, 2000)]


def test_blocks_across_windows_and_late_in_a_long_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "WINDOW", 2048)
    monkeypatch.setattr(steps, "OVERLAP", 512)
    src, tgt = made_up(9000, 5)
    tgt = shifted(shifted(tgt, 1900, 2100, 1), 7000, 7060, -2)  # one lies where a window ends
    blocks = found_in(src, tgt, portion=256)
    assert [block.offsets for block in blocks] == [[1], [-2]]
    for block, (first, last) in zip(blocks, ((1900, 2100), (7000, 7060)), strict=True):
        assert abs(block.first - first) <= 3
        assert abs(block.last - last) <= 3


def test_repeated_lines_are_no_shift() -> None:
    """One source with many translations in a row: each fits the source of its neighbours as well."""
    src, tgt = made_up(1000, 6)
    free = made_up(40, 7)[1]
    assert found_in([*src[:500], *["abc def ghi."] * 40, *src[500:]], [*tgt[:500], *free, *tgt[500:]]) == []


def test_tokens_do_not_see_case_accents_or_width() -> None:
    a, b = tokenise(["Sécurité, １０ １００!"]), tokenise(["securities 10 100?"])
    assert a.hash.tolist() == b.hash.tolist()
    assert (a.hash & 1).tolist() == [0, 1, 1]
    assert tokenise(["security"]).hash != tokenise(["senility"]).hash
    wide = tokenise(["我们", "", "我"])
    assert wide.line.tolist() == [0, 0, 2]
    assert wide.end.tolist() == [1, 0, 1]


# ── real corpora ─────────────────────────────────────────────────────────────────────────────────────────────────────


def read(path: Path) -> list[str]:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [normalise(line.decode()) for line in raw.split(b"\n")[:-1]]


def test_the_hand_made_case(shared: Path) -> None:
    case = shared / "data" / "dirty" / "19_shifted_equal_counts"
    (block,) = found_in(read(case.with_suffix(".en")), read(case.with_suffix(".fr")))
    assert (block.first, block.last, block.offsets) == (6, 14, [-1])


ROTATED = [
    ("unpc/UNv1.0.devset.{}", "en", "zh"),
    ("unpc/UNv1.0.devset.{}", "en", "fr"),
    ("unpc/UNv1.0.devset.{}", "fr", "zh"),
    ("multi30k/train.{}", "en", "de"),
    ("tatoeba/en-zh/train.{}", "en", "zh"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "src_lang", "tgt_lang"), ROTATED)
@pytest.mark.parametrize("by", [1, 7, 300])
def test_a_rotation_inside_a_clean_corpus(shared: Path, name: str, src_lang: str, tgt_lang: str, by: int) -> None:
    src, tgt = (read(shared / "data" / name.format(lang)) for lang in (src_lang, tgt_lang))
    middle = (len(src) - 4000) // 2
    src, tgt = src[middle : middle + 4000], tgt[middle : middle + 4000]
    (block,) = found_in(src, [*tgt[:999], *tgt[999 + by : 1999], *tgt[999 : 999 + by], *tgt[1999:]])
    assert block.offsets[0] == -by
    assert abs(block.first - 1000) <= 3
    assert abs(block.last - 1999) <= 3


def clean_corpora(data: Path) -> list[tuple[Path, Path]]:
    """Every pair of languages of every corpus, but for the one that is out of step as published."""
    groups: dict[Path, list[Path]] = {}
    for folder in ("tatoeba", "unpc", "flores200", "ntrex128", "wmt-newstest", "tico19", "multi30k"):
        for path in sorted((data / folder).rglob("*")):
            plain = path.with_suffix("") if path.suffix == ".gz" else path
            if plain.suffix in (".en", ".zh", ".fr", ".de", ".cs") and "raw" not in path.parts:
                groups.setdefault(plain.with_suffix(""), []).append(path)
    pairs = [(a, b) for files in groups.values() for i, a in enumerate(files) for b in files[i + 1 :]]
    return [pair for pair in pairs if pair[0].stem != "newstest2017.en-zh"]


@pytest.mark.slow
def test_clean_corpora_raise_no_alarm(shared: Path) -> None:
    corpora = clean_corpora(shared / "data")
    assert len(corpora) >= 45
    alarms = {f"{a} {b}": blocks for a, b in corpora if (blocks := found_in(read(a), read(b)))}
    assert alarms == {}


def test_newstest2017_is_out_of_step_as_published(shared: Path) -> None:
    """Lines 953 to 977: one English line (953) has no Chinese; lines 977 and 978 are two versions of one sentence."""
    name = shared / "data" / "wmt-newstest" / "newstest2017.en-zh"
    (block,) = found_in(*(read(name.with_name(f"{name.name}.{lang}")) for lang in ("en", "zh")))
    assert (block.first, block.last, block.offsets) == (953, 977, [1])
