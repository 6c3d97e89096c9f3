"""One definition of the same text: what normalise changes, what fold ignores, and that neither moves twice."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xyd.text import SentencePair, Tally, faults, fold, normalise

NASTY = "\ufeff\x00\x07\x1b\x7f\x80\x9f\u00ad\u200b\u2060\u200e\u200f\u202a\u202e\u2066\u2069\u061c\ud800\udfff"
SPACES = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f\x85\u2028\u2029\u00a0\u1680\u2000\u2001\u2009\u202f\u205f\u3000\u2581"
any_text = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from(NASTY + SPACES),
        st.sampled_from("aé e\u0301\u0327\u0345ας\u03c3\u1100\u1161\u11a8Å\u212b\u200c\u200d&<>猫ﬁ①İıß"),
    ),
    max_size=20,
)
quick = settings(max_examples=300, deadline=None, derandomize=True)


@pytest.mark.parametrize("character", NASTY)
def test_invisible_characters_are_dropped_without_a_trace(character: str) -> None:
    assert normalise(f"win{character}dow") == "window"


@pytest.mark.parametrize("character", SPACES)
def test_every_kind_of_space_and_line_end_becomes_one_plain_space(character: str) -> None:
    assert normalise(f"{character}a{character} {character}b{character}") == "a b"


@pytest.mark.parametrize("category", ["Zs", "Zl", "Zp"])
def test_no_unicode_space_is_forgotten(category: str) -> None:
    spaces = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) == category]
    assert {normalise(f"a{space}b") for space in spaces} == {"a b"}


def test_no_control_is_forgotten() -> None:
    controls = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cc", "Cs")]
    assert {normalise(f"a{control}b") for control in controls} == {"ab", "a b"}


@pytest.mark.need(34)
@pytest.mark.parametrize("text", ["café, déjà vu", "Tiếng Việt", "příliš žluťoučký kůň", "한국어", "Ω Å"])
def test_composed_and_decomposed_accents_are_the_same_text(text: str) -> None:
    decomposed = unicodedata.normalize("NFD", text)
    assert decomposed != text
    assert normalise(decomposed) == normalise(text) == unicodedata.normalize("NFC", text)


def test_joiners_that_are_letters_or_bind_emoji_stay() -> None:
    for text in ("می\u200cخواهم", "क्\u200dष", "👩\u200d👩\u200d👧"):
        assert normalise(text) == text


@pytest.mark.need(35)
def test_a_mark_a_nul_or_a_tab_gives_the_same_text_as_clean() -> None:
    for dirty in ("\ufeffone two", "one\ufeff two", "on\x00e two", "one\ttwo", " one  two\r"):
        assert normalise(dirty) == "one two"


@quick
@given(any_text)
def test_normalise_is_idempotent(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once


@quick
@given(any_text)
def test_normalised_text_encodes_and_is_one_line_however_one_cuts(text: str) -> None:
    once = normalise(text)
    assert once.encode("utf-8").decode("utf-8") == once
    assert once.splitlines() in ([once], [])


@quick
@given(any_text)
def test_faults_are_named_exactly_when_something_changes(text: str) -> None:
    assert bool(faults(text)) == (normalise(text) != text)


@pytest.mark.parametrize(
    ("raw", "names"),
    [
        ("clean text", []),
        ("\ufeffa", ["bom"]),
        ("a\x00b", ["nul"]),
        ("a\x07b", ["control"]),
        ("a\u2028b", ["separator"]),
        ("a\x85b", ["separator"]),
        ("a\rb", ["separator"]),
        ("a\tb", ["tab"]),
        ("a\u200bb", ["zero_width"]),
        ("a\u202eb", ["bidi"]),
        ("a\ud800b", ["surrogate"]),
        ("e\u0301", ["nfd"]),
        ("a  b", ["whitespace"]),
        ("a ", ["whitespace"]),
        ("a\u00a0b", ["whitespace"]),
        ("a\u2001b", ["whitespace"]),
        ("a\u2581b", ["u2581"]),
        ("\ufeffe\u0301\t", ["bom", "tab", "nfd"]),
    ],
)
def test_each_fault_has_its_name(raw: str, names: list[str]) -> None:
    assert faults(raw) == names


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The cat sat.", "the CAT, sat!"),
        ("Straße", "STRASSE"),
        ("ﬁn", "fin"),
        ("１２３", "123"),
        ("e\u0301te\u0301", "ÉTÉ"),
        ("e\u200b\u0301", "é"),
        ("\u0390", "\u0390".upper()),
        ("a-\u0301", "á"),
        ("㎒", "mhz"),
        ("猫、追う。", "猫追う"),
        ("?!", " ？！ "),
    ],
)
def test_texts_that_fold_together(one: str, other: str) -> None:
    assert fold(one) == fold(other)


@pytest.mark.parametrize(
    ("one", "other"), [("?", "!"), ("été", "ete"), ("क", "कि"), ("12", "21"), ("", "!"), ("a", "b")]
)
def test_texts_that_do_not_fold_together(one: str, other: str) -> None:
    assert fold(one) != fold(other)


@quick
@given(any_text)
def test_fold_sees_through_normalise_and_keeps_letters_only(text: str) -> None:
    key = fold(text)
    assert fold(normalise(text)) == fold(key) == key
    kinds = {unicodedata.category(character)[0] for character in key}
    assert kinds <= set("LMN") or not kinds & set("LMN")


def test_tally_counts_and_remembers_the_first_ten() -> None:
    tally = Tally()
    for line in range(1, 13):
        tally.add("empty", f"train.en:{line}")
    tally.add_all(["nfd", "tab"], "train.en:3")
    assert (tally.total(), tally.count("empty"), tally.count("never")) == (14, 12, 0)
    assert tally.as_dict()["empty"] == {"count": 12, "first": [f"train.en:{line}" for line in range(1, 11)]}
    assert list(tally.as_dict()) == ["empty", "nfd", "tab"]


def test_merged_tallies_add_up_and_stay_apart() -> None:
    ours, theirs = Tally(), Tally()
    ours.add("empty", "a:1")
    theirs.add("empty", "b:1")
    theirs.add("tab", "b:2")
    ours.merge(theirs)
    ours.add("tab", "a:9")
    assert ours.as_dict() == {
        "empty": {"count": 2, "first": ["a:1", "b:1"]},
        "tab": {"count": 2, "first": ["b:2", "a:9"]},
    }
    assert theirs.count("tab") == 1


def test_a_pair_cannot_change() -> None:
    pair = SentencePair("a", "b", "en", "fr", "train.en:1")
    with pytest.raises(AttributeError):
        pair.src = "c"  # type: ignore[misc]
