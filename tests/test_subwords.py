"""Drawn segmentations: another one in each epoch, the same text always, within every budget, the same on a resume."""

from __future__ import annotations

import math
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy import Toy, assert_same_run, environment, lines, run_of, weights

from xyd import corpus
from xyd.batching import make_batch, plan_epoch, start_ids
from xyd.config import UNK_ID, TokenizerConfig
from xyd.errors import CheckpointError
from xyd.subwords import SampledSplit, SubwordSampler
from xyd.tokenizer import Tokenizer, train_tokenizer
from xyd.train import Trainer, train

ON = "train.subword_sampling=0.5"


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdeéß你好"), rng.integers(2, 9))) for _ in range(200)]
    texts = [" ".join(rng.choice(words, 12)) for _ in range(500)]
    settings = TokenizerConfig(vocab_size=500, type=request.param)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    return train_tokenizer(texts, settings, ["en"], path, 1, print)


class Rows:
    """A split of texts in memory."""

    def __init__(self, tokenizer: Tokenizer, sources: list[str], targets: list[str]) -> None:
        self._src = [np.array(ids, np.int32) for ids in tokenizer.encode_batch(sources)]
        self._tgt = [np.array(ids, np.int32) for ids in tokenizer.encode_batch(targets)]
        self.src_lengths, self.tgt_lengths = (
            np.array([len(r) for r in side], np.int32) for side in (self._src, self._tgt)
        )
        self.direction, self.pair_id = np.zeros(len(sources), np.int16), np.arange(len(sources))

    def src_ids(self, i: int) -> np.ndarray:
        return self._src[i]

    def tgt_ids(self, i: int) -> np.ndarray:
        return self._tgt[i]


def texts(number: int, longest: int = 30) -> list[str]:
    rng = np.random.default_rng(number)
    return [
        " ".join("".join(rng.choice(list("abcdeéß你好xyz👍"), 5)) for _ in range(rng.integers(1, longest)))
        for _ in range(number)
    ]


def drawn(split: SampledSplit, epoch: int, rows: np.ndarray) -> list[tuple[list[int], list[int]]]:
    split.draw(epoch, rows)
    return [(split.src_ids(row).tolist(), split.tgt_ids(row).tolist()) for row in rows.tolist()]


def test_the_text_stays_and_the_segmentation_changes(tokenizer: Tokenizer) -> None:
    sources, targets = texts(150), texts(150)[::-1]
    split = SampledSplit(Rows(tokenizer, sources, targets), tokenizer, 0.2, max_ids=500, seed=1)
    everything = np.arange(150)
    first, second = drawn(split, 0, everything), drawn(split, 1, everything)
    for sides in (first, second):
        for row, (src, tgt) in enumerate(sides):
            assert tokenizer.decode(src) == sources[row]
            assert tokenizer.decode(tgt) == targets[row]
            assert (split.src_lengths[row], split.tgt_lengths[row]) == tuple(map(len, second[row]))
    assert sum(a != b for a, b in zip(first, second, strict=True)) > 120
    assert first == drawn(split, 0, everything)
    other_seed = SampledSplit(Rows(tokenizer, sources, targets), tokenizer, 0.2, max_ids=500, seed=2)
    assert first != drawn(other_seed, 0, everything)


def test_a_row_does_not_depend_on_the_rows_beside_it(tokenizer: Tokenizer) -> None:
    split = SampledSplit(Rows(tokenizer, texts(60), texts(60)), tokenizer, 0.2, max_ids=500, seed=1)
    together = drawn(split, 3, np.arange(60))
    assert [drawn(split, 3, np.array([row]))[0] for row in range(60)] == together
    assert drawn(split, 3, np.arange(60)[::-1]) == together[::-1]


@pytest.mark.parametrize("max_ids", [500, 60])
def test_budgets_hold_and_what_is_longer_is_counted(tokenizer: Tokenizer, max_ids: int) -> None:
    sources = [text for text in texts(300) if len(tokenizer.encode(text)) <= max_ids]
    stored = Rows(tokenizer, sources, sources[::-1])
    split = SampledSplit(stored, tokenizer, 0.1, max_ids=max_ids, seed=1)
    assert max(split.longest_src.max(), split.longest_tgt.max()) <= max_ids
    assert (split.longest_src >= stored.src_lengths).all()
    steps = plan_epoch(split.longest_src, split.longest_tgt, max_tokens=600, tokens_per_step=900, seed=1, epoch=0)
    starts, num_stored, rows_seen = np.array([2]), 0, 0
    for step in steps:
        rows = np.concatenate(step)
        split.draw(0, rows)
        num_stored += split.num_stored
        rows_seen += split.num_drawn
        for members in step:
            batch = make_batch(split, members, starts)
            assert batch.src.numel() + batch.tgt_in.numel() <= 600 or len(members) == 1
            assert batch.num_tokens == int(split.tgt_lengths[members].sum()) + len(members)
            assert max(batch.src.shape[1], batch.tgt_in.shape[1]) <= max_ids + 1
    assert rows_seen == len(sources)
    assert num_stored < (0.1 if max_ids == 500 else 0.8) * len(sources)
    assert num_stored > 0 or max_ids == 500


def test_before_the_first_draw_rows_are_as_long_as_they_can_become(tokenizer: Tokenizer) -> None:
    split = SampledSplit(Rows(tokenizer, texts(50), texts(50)), tokenizer, 0.1, max_ids=500, seed=1)
    for row in range(50):
        assert len(split.src_ids(row)) == split.src_lengths[row] == split.longest_src[row]
        assert len(split.tgt_ids(row)) == split.tgt_lengths[row] == split.longest_tgt[row]


def test_a_row_with_an_unknown_character_keeps_its_ids(tmp_path: Path) -> None:
    settings = TokenizerConfig(vocab_size=40, byte_fallback=False)
    tokenizer = train_tokenizer(["aa ab ba bb abba"] * 50, settings, ["en"], tmp_path / "m", 1, lambda _: None)
    rows = Rows(tokenizer, ["ab ba ☃ ab", "abba"], ["ab", "ba"])
    assert UNK_ID in rows.src_ids(0)
    split = SampledSplit(rows, tokenizer, 0.1, max_ids=60, seed=1)
    for epoch in range(5):
        assert drawn(split, epoch, np.array([0]))[0][0] == rows.src_ids(0).tolist()


@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_the_draws_are_spread_as_those_of_sentencepiece(tokenizer: Tokenizer, alpha: float) -> None:
    """An independent implementation of the same distribution, seeded otherwise."""
    sampler, rng = SubwordSampler(tokenizer, alpha), random.Random(0)
    text = texts(1, 3)[0][:7] + " 👍b"
    draws = 6_000
    ours = Counter(tuple(sampler.sample(text, rng)) for _ in range(draws))
    theirs = Counter(
        map(tuple, tokenizer._processor.Encode([text] * draws, enable_sampling=True, alpha=alpha, nbest_size=-1))
    )
    frequent = [ids for ids, count in (ours + theirs).items() if count > 60]
    assert len(frequent) > 3
    for ids in frequent:
        spread = 5 * math.sqrt(max(ours[ids], theirs[ids]))
        assert abs(ours[ids] - theirs[ids]) < spread, (ids, ours[ids], theirs[ids])


def test_at_the_edge_the_draw_is_the_best_segmentation(tokenizer: Tokenizer) -> None:
    is_bpe = all(score == round(score) for _, score in tokenizer.scores().values())
    sampler = SubwordSampler(tokenizer, 0.0 if is_bpe else 1e4)
    scores = dict(tokenizer.scores().values())
    for text in [*texts(100), "☃ snow", "a", ""]:
        ours, best = sampler.sample(text, random.Random(0)), tokenizer.encode(text)
        if is_bpe:
            assert ours == best
        else:  # but for ties
            score, best_score = (sum(scores.get(token, 0.0) for token in ids) for ids in (ours, best))
            assert score == pytest.approx(best_score, abs=1e-3)


def test_another_process_draws_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(tokenizer._processor.serialized_model_proto())
    script = (
        "import random, sys; from xyd.tokenizer import Tokenizer; from xyd.subwords import SubwordSampler;"
        "print(SubwordSampler(Tokenizer.load(sys.argv[1]), 0.2).sample(sys.argv[2], random.Random('1 2 3')))"
    )
    text = texts(1)[0]
    said = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "m"), text], env=environment(), capture_output=True, text=True
    )
    assert said.stdout.strip() == str(SubwordSampler(tokenizer, 0.2).sample(text, random.Random("1 2 3"))), said.stderr


# ── in training ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_off_means_the_batches_of_the_prepared_split(toy: Toy, tmp_path: Path) -> None:
    trainer = Trainer(toy.config(tmp_path))
    stored = corpus.open_split(trainer.run, "train")
    assert type(trainer.split) is type(stored)
    starts = start_ids(trainer.tokenizer, trainer.directions)
    trainer.log.close()
    for rows in trainer._next_micro_batches():
        ours, plain = make_batch(trainer.split, rows, trainer.start_ids), make_batch(stored, rows, starts)
        assert ours.src.numpy().tobytes() == plain.src.numpy().tobytes()
        assert ours.tgt_out.numpy().tobytes() == plain.tgt_out.numpy().tobytes()


@pytest.mark.need(17)
def test_a_stopped_run_goes_on_with_the_same_segmentations(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = toy.config(tmp_path / "whole", ON)
    assert train(whole) == 0
    assert "subword sampling, alpha 0.5: segmentations are 1." in capfd.readouterr().err
    stopped = toy.config(tmp_path / "stopped", ON)
    train_step = Trainer.train_step

    def signalled(self: Trainer, micro_batches: list[np.ndarray]) -> Any:
        if self.state.step == 7:
            signal.raise_signal(signal.SIGTERM)
        return train_step(self, micro_batches)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", signalled)
        assert train(stopped) == 143
    assert train(stopped) == 0
    assert_same_run(run_of(whole), run_of(stopped))
    shares = [line["not_sampled_share"] for line in lines(run_of(whole), "train")]
    assert all(0 <= share < 0.2 for share in shares)
    tokens = np.mean([line["tokens"] for line in lines(run_of(whole), "train")][:1])
    assert tokens == pytest.approx(256, rel=0.25)  # train.tokens_per_step, of the segmentations as drawn
    plain = toy.config(tmp_path / "plain")
    assert train(plain) == 0
    assert any(
        (a != b).any() for a, b in zip(weights(run_of(plain)).values(), weights(run_of(whole)).values(), strict=True)
    )


@pytest.mark.slow
@pytest.mark.need(36)
def test_two_workers_draw_the_same(toy: Toy, tmp_path: Path) -> None:
    """The divisor of the loss counts the tokens of all ranks as they are drawn."""
    exact = ("train.epsilon=1e-3", "train.max_steps=6", ON)
    one, two = toy.config(tmp_path / "one", *exact), toy.config(tmp_path / "two", *exact, "train.workers=2")
    assert train(one) == train(two) == 0
    for first, second in zip(lines(run_of(one), "train"), lines(run_of(two), "train"), strict=True):
        for figure in ("loss", "nll", "tokens", "not_sampled_share", "gradient_norm/before_clipping"):
            assert first[figure] == pytest.approx(second[figure], abs=1e-5), figure


def test_switched_on_later_it_asks_for_reset_schedule_and_begins_an_epoch(
    toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The steps of an epoch are other ones, so a position among the old ones means nothing."""
    assert train(toy.config(tmp_path, "train.max_steps=4")) == 0
    changed = toy.config(tmp_path, "train.max_steps=8", ON)
    with pytest.raises(CheckpointError, match=r"train\.subword_sampling: None → 0\.5"):
        train(changed)
    assert train(changed, reset_schedule=True) == 0
    assert "schedule and optimiser start anew, and so does an epoch" in capfd.readouterr().err
