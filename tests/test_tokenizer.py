"""The tokenizer: text in equals text out, tags no text can produce, any vocabulary size ends well."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from xyd.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID, TokenizerConfig
from xyd.errors import CheckpointError, DataError
from xyd.text import normalise
from xyd.tokenizer import Tokenizer, train_tokenizer

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=40)
LOOKALIKES = ["<2fr>", "<2zh>", "<s>", "</s>", "<unk>", "<pad>", "<0x41>", "▁", "a▁b", "<2fr> <s>x</s> <0x41>"]


def sentences(number: int, seed: int = 0) -> list[str]:
    """Distinct lines in three scripts."""
    rng = random.Random(seed)
    words = ["the", "cat", "dogs", "chase", "élève", "déjà", "garçon", "12", "2024", "river"]
    signs = "猫狗追河山水火天地人"
    return [
        " ".join(rng.choices(words, k=6)) + f" {line}." if line % 2 else "".join(rng.choices(signs, k=8)) + f"{line}。"
        for line in range(number)
    ]


def trained(path: Path, texts: list[str], said: list[str] | None = None, **settings: object) -> Tokenizer:
    config = TokenizerConfig.model_validate({"vocab_size": 400, **settings})
    said = said if said is not None else []
    return train_tokenizer(texts, config, ["zh", "fr", "en"], path / "tokenizer.model", 1, said.append)


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return trained(tmp_path_factory.mktemp("tokenizer"), sentences(400), type=request.param)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(text=ANY_TEXT)
def test_decode_gives_back_the_normalised_text(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == normalise(text)
    assert not {PAD_ID, UNK_ID, BOS_ID, EOS_ID} & set(ids)


@pytest.mark.parametrize("text", [*LOOKALIKES, "", "   ", "▅ block", "\ufffd", "\uffff", "😀👩‍👩‍👧", "Fußball ﬁ"])
def test_odd_texts_come_back(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == normalise(text)


@pytest.mark.need(32)
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_no_text_gives_a_special_id_even_if_the_corpus_is_full_of_them(tmp_path: Path, kind: str) -> None:
    tokenizer = trained(tmp_path, [*LOOKALIKES * 50, *sentences(50)], type=kind)
    specials = {PAD_ID, UNK_ID, BOS_ID, EOS_ID, *(tokenizer.tag_id(lang) for lang in tokenizer.languages)}
    for text in [*LOOKALIKES, " ".join(LOOKALIKES)]:
        ids = tokenizer.encode(text)
        assert not specials & set(ids)
        assert tokenizer.decode(ids) == normalise(text)


def test_layout_of_ids(tokenizer: Tokenizer) -> None:
    assert [tokenizer.piece(token) for token in range(8)] == [
        *("<pad>", "<unk>", "<s>", "</s>"),
        *("<2en>", "<2fr>", "<2zh>"),  # sorted, whatever the order given
        "<0x00>",
    ]
    assert tokenizer.languages == ["en", "fr", "zh"]
    assert tokenizer.tag_id("fr") == 5
    with pytest.raises(DataError, match=r"de.*en, fr, zh"):
        tokenizer.tag_id("de")


def test_banned_ids_are_specials_tags_and_control_bytes_but_not_eos(tokenizer: Tokenizer) -> None:
    pieces = {tokenizer.piece(token) for token in tokenizer.banned_ids}
    control = {f"<0x{byte:02X}>" for byte in [*range(0x20), 0x7F]}
    assert pieces == {"<pad>", "<unk>", "<s>", "<2en>", "<2fr>", "<2zh>"} | control
    assert EOS_ID not in tokenizer.banned_ids


def test_encode_batch_equals_one_by_one(tokenizer: Tokenizer) -> None:
    texts = [*sentences(20), "", *LOOKALIKES]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]


def test_digits_stand_alone(tokenizer: Tokenizer) -> None:
    assert [tokenizer.piece(token) for token in tokenizer.encode("2024")][-4:] == ["2", "0", "2", "4"]


@pytest.mark.need(23)
def test_odd_characters_as_frequent_tokens(tmp_path: Path) -> None:
    odd = ["a\rb", "a\u0085b", "a\u2028b", "a\u3000b", "a\tb", "a\0b", "\u2028", "a▅b", "a\u200db"]
    texts = [normalise(f"{line} {text}") for line in sentences(40) for text in odd]
    said: list[str] = []
    tokenizer = trained(tmp_path, texts, said)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    assert len({tokenizer.piece(token) for token in range(tokenizer.vocab_size)}) == tokenizer.vocab_size
    for token in range(tokenizer.vocab_size):
        assert processor.PieceToId(tokenizer.piece(token)) == token
    for text in odd:
        assert tokenizer.decode(tokenizer.encode(text)) == normalise(text)


@pytest.mark.need(9)
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_too_large_a_vocabulary_is_lowered_with_one_warning(tmp_path: Path, kind: str) -> None:
    said: list[str] = []
    tokenizer = trained(tmp_path, sentences(200), said, vocab_size=48_000, type=kind)
    assert 263 < tokenizer.vocab_size < 48_000
    assert len(said) == 1
    assert "48000" in said[0]
    assert f"lowered to {tokenizer.vocab_size}" in said[0]
    assert Tokenizer.load(tmp_path / "tokenizer.model").vocab_size == tokenizer.vocab_size


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("coverage", [0.98, 0.9998, 1.0])
@pytest.mark.parametrize("byte_fallback", [True, False])
def test_too_small_a_vocabulary_is_raised_with_one_warning(
    tmp_path: Path, kind: str, coverage: float, byte_fallback: bool
) -> None:
    said: list[str] = []
    tokenizer = trained(
        tmp_path,
        sentences(200),
        said,
        vocab_size=20,
        type=kind,
        character_coverage=coverage,
        byte_fallback=byte_fallback,
    )
    assert tokenizer.vocab_size > 20
    assert len(said) == 1
    assert f"raised to {tokenizer.vocab_size}" in said[0]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("texts", [["a"], ["x y"] * 3, ["猫"], ["<s>"], ["▅"]])
def test_tiny_corpora(tmp_path: Path, kind: str, texts: list[str]) -> None:
    tokenizer = trained(tmp_path, texts, vocab_size=48_000, type=kind)
    assert tokenizer.decode(tokenizer.encode(texts[0])) == texts[0]


def test_no_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="train split is empty"):
        trained(tmp_path, ["", ""])


def test_a_size_that_fits_is_kept_in_silence(tmp_path: Path) -> None:
    said: list[str] = []
    assert trained(tmp_path, sentences(400), said, vocab_size=320).vocab_size == 320
    assert said == []


TRAIN_IN_A_PROCESS = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from test_tokenizer import sentences, trained
print(trained(Path(sys.argv[1]), sentences(300), type=sys.argv[2]).sha256)
"""


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_same_lines_give_the_same_bytes_in_another_process(tmp_path: Path, kind: str) -> None:
    here = trained(tmp_path, sentences(300), type=kind)
    (tmp_path / "other").mkdir()
    code = TRAIN_IN_A_PROCESS.format(tests=str(Path(__file__).parent))
    command = [sys.executable, "-c", code, str(tmp_path / "other"), kind]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1] == here.sha256
    assert (tmp_path / "other" / "tokenizer.model").read_bytes() == (tmp_path / "tokenizer.model").read_bytes()
    assert trained(tmp_path, sentences(300, seed=1), type=kind).sha256 != here.sha256


def test_sample_is_bounded_and_seeded(tmp_path: Path) -> None:
    lines = sentences(300)
    sampled = trained(tmp_path, lines, sample_size=100)
    assert trained(tmp_path, lines, sample_size=100).sha256 == sampled.sha256
    assert trained(tmp_path, lines[:100]).sha256 != sampled.sha256  # not simply the first
    assert trained(tmp_path, lines).sha256 != sampled.sha256


def test_loading_what_is_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"missing\.model: cannot read"):
        Tokenizer.load(tmp_path / "missing.model")
    (tmp_path / "text.model").write_text("no model")
    with pytest.raises(CheckpointError, match=r"text\.model: this is not"):
        Tokenizer.load(tmp_path / "text.model")
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(sentences(200)),
        model_prefix=str(tmp_path / "foreign"),
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    with pytest.raises(CheckpointError, match="special ids"):
        Tokenizer.load(tmp_path / "foreign.model")
