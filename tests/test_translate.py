"""translate: one out for each in, in order; blanks, splitting, loops, limits; the same text whatever the batch."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from xyd import checkpoint
from xyd.config import Config, ModelConfig, TokenizerConfig, dump, load
from xyd.decode import Hypothesis
from xyd.errors import CheckpointError, ConfigError, XydError
from xyd.files import RunDir
from xyd.model import Transformer
from xyd.text import normalise
from xyd.tokenizer import Tokenizer, train_tokenizer
from xyd.translate import Translation, Translator

WORDS = [
    "the",
    "a",
    "small",
    "old",
    "red",
    "house",
    "dog",
    "cat",
    "river",
    "tree",
    "sees",
    "finds",
    "under",
    "near",
    "sleeps",
    "runs",
    "when",
    "and",
    "Anna",
    "Peter",
]
DIRECTIONS = ["en-fr", "en-zh", "fr-en", "fr-zh", "zh-en", "zh-fr"]
MAX_LENGTH = 40

CONFIG = """
run: {name: t}
data: {corpora: [{files: {en: a.en, fr: a.fr}}], directions: [en-fr], valid: 10}
model: {d_model: 32, num_encoder_layers: 2, num_decoder_layers: 2, num_heads: 2, d_ff: 64, max_length: 40}
decode: {max_tokens: 500, precision: fp32}
"""


def sentence(rng: random.Random, length: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(length)).capitalize() + "."


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("config")
    for name in ("a.en", "a.fr"):
        (folder / name).write_text("one\n", encoding="utf-8")
    (folder / "c.yaml").write_text(CONFIG, encoding="utf-8")
    return load(folder / "c.yaml")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    rng = random.Random(0)
    lines = [sentence(rng, rng.randint(2, 9)) for _ in range(200)] + [
        "猫追狗。狗追猫！",
        "房子很小，树很老；河很长。",
    ] * 5
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    return make_tokenizer(lines, path)


def make_tokenizer(lines: list[str], path: Path) -> Tokenizer:
    return train_tokenizer(lines, TokenizerConfig(vocab_size=420), ["en", "fr", "zh"], path, 1, lambda _: None)


def make_model(config: ModelConfig, vocab_size: int, sharpness: float = 6.0) -> Transformer:
    """A random model whose output is varied: without the factor its distribution is nearly flat."""
    torch.manual_seed(1)
    model = Transformer(config, vocab_size).eval()
    with torch.no_grad():
        model.decoder_norm.weight.mul_(sharpness)  # type: ignore[operator]
    return model


@pytest.fixture(scope="module")
def translator(config: Config, tokenizer: Tokenizer) -> Translator:
    return Translator(make_model(config.model, tokenizer.vocab_size), tokenizer, config, DIRECTIONS, "cpu")


def with_settings(translator: Translator, **decode: Any) -> Translator:
    """The same translator with other decode settings."""
    config = translator.config
    changed = config.model_copy(update={"decode": config.decode.model_copy(update=decode)})
    return Translator(translator.model, translator.tokenizer, changed, translator.directions, translator.device)


@pytest.fixture
def texts() -> list[str]:
    rng = random.Random(1)
    return [sentence(rng, rng.randint(1, 14)) for _ in range(60)] + ["x", "7 8 9", "猫追狗。", "", "é" * 5]


@pytest.mark.need(1)
def test_blank_lines_stay_blank_without_a_model_call(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    blanks = ["", " ", "\t", "\u3000", "\u200b", "\u00a0", "\r", "\u2028", "\u200d", "\x00"]
    lines = ["The dog runs."] + [line for blank in blanks for line in (blank, "The cat sleeps.")]
    out = translator.translate(lines, to="fr")
    assert [t.source for t in out] == lines
    assert [t.status == "blank" for t in out] == [line in blanks for line in lines]
    assert all(t.text == "" and t.n_best == [] for t in out if t.status == "blank")
    alone = translator.translate(["The cat sleeps."], to="fr")[0]
    assert all(t.text == alone.text for t in out[2::2])

    def no_call(*_: Any) -> Tensor:
        raise AssertionError("the model was called")

    monkeypatch.setattr(translator.model, "encode", no_call)
    assert [t.status for t in translator.translate(blanks, to="fr")] == ["blank"] * len(blanks)
    assert translator.translate([], to="fr") == []


@pytest.mark.need(19)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.lists(st.text(max_size=60) | st.sampled_from(["", " ", "\x00", "⁇", "<2fr>", "▁", "🙂" * 30]), max_size=8))
def test_one_line_out_for_each_line_in(translator: Translator, texts: list[str]) -> None:
    out = with_settings(translator, max_length_factor=0.5, max_length_extra=3).translate(texts, to="zh", beam_size=2)
    assert [t.source for t in out] == texts
    for t in out:
        assert t.text == normalise(t.text)  # on one line, whatever counts as the end of one
        assert "⁇" not in t.text
        assert t.status != "blank" or not t.text


@pytest.mark.need(7)
@pytest.mark.parametrize("beam_size", [1, 5])
def test_the_batch_changes_nothing(translator: Translator, texts: list[str], beam_size: int) -> None:
    alone = [translator.translate([text], to="fr", beam_size=beam_size)[0] for text in texts]
    assert len({t.text for t in alone}) > 12
    order = list(range(len(texts)))
    random.Random(2).shuffle(order)
    for max_tokens in (7 * 12 * beam_size, 64 * 40 * beam_size):
        batched = with_settings(translator, max_tokens=max_tokens)
        together = batched.translate(texts, to="fr", beam_size=beam_size)
        shuffled = batched.translate([texts[i] for i in order], to="fr", beam_size=beam_size)
        assert [t.text for t in together] == [t.text for t in alone]
        assert [t.text for t in shuffled] == [alone[i].text for i in order]
        assert [t.score for t in together] == pytest.approx([t.score for t in alone], abs=1e-4)


@pytest.mark.need(37)
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_best_of_one_is_first_of_five(translator: Translator, texts: list[str], alpha: float) -> None:
    one = translator.translate(texts, to="fr", length_penalty=alpha)
    five = translator.translate(texts, to="fr", length_penalty=alpha, n_best=5)
    assert [t.text for t in one] == [t.text for t in five]
    assert [t.score for t in one] == pytest.approx([t.score for t in five], abs=1e-4)


@pytest.mark.need(37)
def test_score_agrees_with_teacher_forcing(translator: Translator) -> None:
    """One text whose hypothesis survives decoding and encoding: its log-prob by a single parallel pass is the same."""
    plain = with_settings(translator, max_length_factor=1.0)
    ids = translator.tokenizer.encode("The dog sees Anna.")
    hypothesis = plain._search_ids([ids], "fr", 5, 1, 1.0)[0][0]
    src = torch.tensor([[*ids, 3]])
    tgt_in = torch.tensor([[translator.tokenizer.tag_id("fr"), *hypothesis.ids]])
    with torch.inference_mode():
        states = translator.model(src, torch.ones_like(src, dtype=torch.bool), tgt_in)
        log_probs = translator.model.project(states)[0].log_softmax(-1)
    expected = float(log_probs.gather(1, torch.tensor([[*hypothesis.ids, 3]]).T).sum())
    assert hypothesis.log_prob == pytest.approx(expected, abs=1e-4)
    assert hypothesis.score == pytest.approx(expected / (len(hypothesis.ids) + 1), abs=1e-4)


@pytest.mark.need(38)
def test_n_best_are_distinct_texts(translator: Translator, texts: list[str]) -> None:
    out = translator.translate(texts, to="fr", beam_size=10, n_best=10)
    for t in out:
        found = [candidate["text"] for candidate in t.n_best]
        assert len(set(found)) == len(found)
        if t.status != "blank":
            assert found[0] == t.text
            assert len(found) == 10 or any("10 translations" in w for w in t.warnings)
    with pytest.raises(ConfigError, match="n-best 6 is above the beam size 5"):
        translator.translate(["x"], to="fr", n_best=6)


def test_two_spellings_of_one_text_count_once(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    house, cat = translator.tokenizer.encode("house"), translator.tokenizer.encode("cat")
    found = [Hypothesis(ids, -1.0 - i, -0.5 - i, True) for i, ids in enumerate([house, house, cat])]
    monkeypatch.setattr("xyd.search.beam_search", lambda *given: [found[: given[-1]]])
    two = translator.translate(["x"], to="fr", beam_size=3, n_best=2)[0]
    assert two.n_best == [{"text": "house", "score": -0.5}, {"text": "cat", "score": -2.5}]
    assert two.warnings == []
    three = translator.translate(["x"], to="fr", beam_size=3, n_best=3)[0]
    assert three.n_best == two.n_best
    assert three.warnings == ["2 of 3 translations: there were no more distinct ones"]


@pytest.mark.need(3)
@pytest.mark.need(40)
@pytest.mark.parametrize("joint", ["", " "])
def test_over_long_text_is_split_and_every_part_is_there(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, joint: str
) -> None:
    rng = random.Random(3)
    sentences = [sentence(rng, 6) for _ in range(12)]
    seen: list[list[int]] = []

    def echo(sources: list[list[int]], *_: Any) -> list[list[Hypothesis]]:
        seen.extend(sources)
        return [[Hypothesis(ids, -1.0, -0.1, True)] for ids in sources]

    monkeypatch.setattr(translator, "_search_ids", echo)
    out = translator.translate(["a dog", " ".join(sentences), "a cat"], to="fr" if joint else "zh")
    assert [t.status for t in out] == ["complete", "split", "complete"]
    assert out[1].text == joint.join(sentences)
    assert out[1].warnings == [f"longer than {MAX_LENGTH - 1} tokens: translated in 12 parts"]
    assert all(len(ids) < MAX_LENGTH for ids in seen)


@pytest.mark.need(40)
@pytest.mark.parametrize(
    "text",
    [
        "the dog sees the cat " * 60,
        "a" * 700,
        "猫追狗。狗追猫！" * 30,
        "房子很小，" * 40,
        "👨‍👩‍👧" * 80,
        "e" + "\u0327\u0301" * 200,
        "1,000,000;" * 50,
    ],
)
def test_three_times_the_length_is_split(translator: Translator, text: str) -> None:
    out = translator.translate([text, "x"], to="fr", beam_size=1)
    assert out[0].status in ("split", "looped", "limit")
    assert any("translated in" in w for w in out[0].warnings)


@pytest.mark.need(2)
def test_looped_and_cut_are_told(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = translator.tokenizer.encode(" ".join(["dog"] * 9))
    house = translator.tokenizer.encode("house")
    found = [[Hypothesis(loop, -9.0, -1.0, False)], [Hypothesis(house, -1.0, -0.5, False)]]
    monkeypatch.setattr(translator, "_search_ids", lambda *_: found)
    looped, cut = translator.translate(["a b c d e f g", "x"], to="fr")
    assert (looped.text, looped.status) == ("dog", "looped")
    assert looped.warnings == ["the model repeated itself; the repeats were taken out"]
    assert (cut.text, cut.status) == ("house", "limit")
    assert cut.warnings == [f"cut at the maximum length of {len(house)} tokens"]


def test_output_length_is_limited(translator: Translator) -> None:
    short = with_settings(translator, max_length_factor=1.0, max_length_extra=0)
    text = "The dog sees Anna."
    size = len(translator.tokenizer.encode(text))
    found = short._search_ids([translator.tokenizer.encode(text)] * 2, "fr", 3, 3, 2.0)
    assert all(len(h.ids) <= size for hypotheses in found for h in hypotheses)


@pytest.mark.need(32)
def test_languages(translator: Translator) -> None:
    with pytest.raises(XydError, match=r"which target language.*fr, zh, en"):
        translator.translate(["x"])
    with pytest.raises(XydError, match=r"unknown target language 'de'.*fr, zh, en"):
        translator.translate(["x"], to="de")
    with pytest.raises(XydError, match=r"unknown source language 'de'.*en, fr, zh"):
        translator.translate(["x"], to="fr", source="de")
    with pytest.raises(XydError, match="not trained on fr-fr"):
        translator.translate(["x"], to="fr", source="fr")
    into = {to: translator.translate(["The dog runs."], to=to)[0].text for to in ("en", "fr", "zh")}
    assert len(set(into.values())) == 3  # the tag reaches the model
    assert translator.translate(["The dog runs."], to="fr", source="en")[0].text == into["fr"]


def test_the_only_target_needs_no_name(translator: Translator) -> None:
    one = Translator(translator.model, translator.tokenizer, translator.config, ["en-fr"], "cpu")
    assert one.translate(["x"])[0] == one.translate(["x"], to="fr", source="en")[0]
    two = Translator(translator.model, translator.tokenizer, translator.config, ["en-fr", "fr-en"], "cpu")
    assert two.translate(["x"], source="en")[0] == two.translate(["x"], to="fr")[0]


@pytest.mark.need(32)
def test_a_tag_in_a_text_stays_text(translator: Translator) -> None:
    assert not set(translator.tokenizer.encode("<2zh> dog")) & {translator.tokenizer.tag_id("zh")}
    assert translator.translate(["<2zh> dog"], to="fr")[0].status != "blank"


def test_specials_and_controls_are_never_written(translator: Translator, texts: list[str]) -> None:
    ids = [translator.tokenizer.encode(text) for text in texts if text]
    found = translator._search_ids(ids, "fr", 4, 4, 1.0)
    banned = {*translator.tokenizer.banned_ids, 3}
    assert all(not banned & set(h.ids) for hypotheses in found for h in hypotheses)


def test_training_mode_is_given_back(translator: Translator) -> None:
    translator.model.train()
    try:
        first = translator.translate(["The dog runs."], to="fr")
        assert translator.model.training
        assert first == translator.translate(["The dog runs."], to="fr")  # no dropout
    finally:
        translator.model.eval()


def test_bad_settings(translator: Translator) -> None:
    with pytest.raises(ConfigError, match="beam size 0"):
        translator.translate(["x"], to="fr", beam_size=0)
    with pytest.raises(ConfigError, match="n-best 0"):
        translator.translate(["x"], to="fr", n_best=0)
    with pytest.raises(TypeError, match="list of texts"):
        translator.translate("x", to="fr")
    with pytest.raises(ConfigError, match="temperature"):
        with_settings(translator, temperature=1.0).translate(["x"], to="fr", n_best=2)


def test_sampling_repeats_with_the_seed(translator: Translator, texts: list[str]) -> None:
    sampler = with_settings(translator, temperature=1.0, top_p=0.9, top_k=50)
    first: list[Translation] = sampler.translate(texts, to="fr")
    assert first == sampler.translate(texts, to="fr")
    assert [t.text for t in first] != [t.text for t in translator.translate(texts, to="fr", beam_size=1)]


@pytest.mark.need(39)
def test_load_a_run_directory(translator: Translator, config: Config, tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    with pytest.raises(CheckpointError, match="not a run directory"):
        Translator.load(run.root, device="cpu")
    run.root.mkdir()
    run.config_path.write_text(dump(config), encoding="utf-8")
    rng = random.Random(5)
    other = make_tokenizer([sentence(rng, 5) for _ in range(200)], run.tokenizer_path)
    swapped = run.tokenizer_path.read_bytes()
    model = make_model(config.model, other.vocab_size)
    checkpoint.save(run, ["best"], model, 1, {})
    with pytest.raises(CheckpointError, match=r"manifest\.json: missing or damaged"):
        Translator.load(run.root, device="cpu")
    run.manifest_path.write_text(json.dumps({"directions": ["en-fr", "fr-en"]}), encoding="utf-8")

    loaded = Translator.load(str(run.root), device="cpu")
    expected = Translator(model, other, config, ["en-fr", "fr-en"], "cpu").translate(["The dog runs."], to="fr")
    assert loaded.translate(["The dog runs."], to="fr") == expected
    with pytest.raises(CheckpointError, match="averaged"):
        Translator.load(run.root, checkpoint="averaged", device="cpu")
    run.tokenizer_path.write_bytes(swapped + b"x")
    with pytest.raises(CheckpointError, match=r"tokenizer\.model.*is not the tokenizer"):
        Translator.load(run.root, device="cpu")


def test_other_weights_are_searched_with_after_a_refresh(
    config: Config, tokenizer: Tokenizer, texts: list[str]
) -> None:
    for precision in ("fp32", "int8"):
        model = make_model(config.model, tokenizer.vocab_size)
        live = with_settings(Translator(model, tokenizer, config, DIRECTIONS, "cpu"), precision=precision)
        before = [t.text for t in live.translate(texts, to="fr", beam_size=1)]
        assert live.searcher is live.searcher
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, fused=True)
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        optimizer.step()
        live.refresh()
        after = [t.text for t in live.translate(texts, to="fr", beam_size=1)]
        assert after != before
        fresh = with_settings(Translator(model, tokenizer, config, DIRECTIONS, "cpu"), precision=precision)
        assert [t.text for t in fresh.translate(texts, to="fr", beam_size=1)] == after
