"""progress: when a run is over, what is best, early stopping, the plateau, and what is said when it goes wrong."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import Toy

from xyd.config import Config, TrainConfig
from xyd.progress import StepFigures, TrainState, is_better

SCORES = st.lists(st.floats(0.0, 10.0, allow_nan=False), min_size=1, max_size=30)


def figures(norm: float = 2.0, **changes: Any) -> StepFigures:
    given = {"loss_sum": 300.0, "nll_sum": 200.0, "num_tokens": 100, "num_padded": 125, "norm": norm,
             "clip_norm": 1.0, "seconds": 2.0, "data_seconds": 0.1, **changes}  # fmt: skip
    return StepFigures(**given)


def judged(scores: list[float], **train: Any) -> TrainState:
    """The state after validations with these scores, ten steps apart."""
    state, config = TrainState(), TrainConfig(**train)
    for score in scores:
        state.step += 10
        state.judge(score, config)
    return state


# ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("limits", "state", "why"),
    [
        ({"max_steps": 20}, {"step": 20}, "max_steps = 20 reached"),
        ({"max_epochs": 3}, {"epoch": 3}, "max_epochs = 3 reached"),
        ({"max_minutes": 2.5}, {"seconds": 150.0}, "max_minutes = 2.5 reached"),
        ({"patience": 4, "metric": "bleu"}, {"without_gain": 4, "best_step": 7},
         "4 validations without gain in bleu, best at step 7"),
    ],
)  # fmt: skip
def test_every_limit_ends_the_run_in_words_and_not_before(
    toy: Toy, limits: dict[str, Any], state: dict[str, Any], why: str
) -> None:
    config = Config.model_construct(train=TrainConfig(**limits))
    assert TrainState(**state).finished(config) == why
    before = {key: value - 1 for key, value in state.items()}
    assert TrainState(**before).finished(config) is None


def test_without_patience_no_number_of_bad_validations_ends_it() -> None:
    config = Config.model_construct(train=TrainConfig(patience=None))
    assert judged([1.0] + [2.0] * 50, patience=None).finished(config) is None


# ── the best, and patience ───────────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=50, deadline=None, derandomize=True)
@given(SCORES)
@pytest.mark.need(28)
def test_best_is_the_lowest_nll_and_the_highest_bleu_and_patience_counts_from_it(scores: list[float]) -> None:
    for metric, best in (("nll", min(scores)), ("bleu", max(scores)), ("chrf", max(scores))):
        state = judged(scores, metric=metric)
        assert state.best_score == best
        first = scores.index(best)
        assert state.best_step == 10 * (first + 1)
        assert state.without_gain == len(scores) - 1 - first
        assert state.last_score == scores[-1]


@pytest.mark.need(28)
def test_a_gain_below_min_gain_does_not_reset_patience_but_is_kept_as_best() -> None:
    state = judged([2.0, 1.95, 1.93], min_gain=0.1)
    assert (state.best_score, state.best_step, state.without_gain) == (1.93, 30, 2)
    state.step = 40
    assert state.judge(1.5, TrainConfig(min_gain=0.1))
    assert state.without_gain == 0


@pytest.mark.need(28)
@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("metric", ["nll", "bleu"])
def test_what_is_not_a_number_is_never_better(score: float, metric: str) -> None:
    train = TrainConfig(metric=metric)  # type: ignore[arg-type]
    assert not is_better(score, None, train)
    assert not is_better(score, 5.0, train)


def test_plateau_halves_the_rate_after_its_patience_and_counts_anew() -> None:
    plateau: dict[str, Any] = {"schedule": "plateau", "plateau_patience": 2, "plateau_factor": 0.5}
    assert judged([1.0, 1.1], **plateau).plateau_factor == 1.0
    assert judged([1.0, 1.1, 1.1], **plateau).plateau_factor == 0.5
    assert judged([1.0, 1.1, 1.1, 1.1], **plateau).plateau_factor == 0.5
    assert judged([1.0, 1.1, 1.1, 1.1, 1.1], **plateau).plateau_factor == 0.25
    assert judged([1.0, 1.1, 0.9, 1.1], **plateau).plateau_factor == 1.0
    assert judged([1.0] * 9, schedule="constant", plateau_patience=2).plateau_factor == 1.0


# ── sums ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_figures_of_a_window_are_sums_divided_once() -> None:
    state = TrainState()
    state.add(figures(norm=0.5))
    state.add(figures(norm=3.0, loss_sum=900.0, nll_sum=700.0, num_tokens=200, num_padded=275, data_seconds=0.3))
    window = state.take_window()
    assert window["loss"] == pytest.approx(1200 / 300)
    assert window["nll"] == pytest.approx(900 / 300)
    assert window["perplexity"] == pytest.approx(math.exp(3.0))
    assert window["gradient_norm/before_clipping"] == pytest.approx(1.75)
    assert window["gradient_norm/after_clipping"] == pytest.approx(0.75)
    assert window["clip_share"] == pytest.approx(0.5)
    assert window["tokens_per_second"] == pytest.approx(75.0)
    assert window["padding_share"] == pytest.approx(1 - 300 / 400)
    assert window["data_wait_share"] == pytest.approx(0.1)
    assert (state.tokens, state.seconds, state.window) == (300, 4.0, {})
    assert state.first_nll == pytest.approx(2.0)


@pytest.mark.need(8)
def test_skipped_steps_are_counted_and_do_not_spoil_the_norms() -> None:
    state = TrainState()
    for norm in (1.0, math.inf, math.nan, 3.0, math.inf):
        state.add(figures(norm=norm))
    assert (state.skipped, state.skipped_in_a_row) == (3, 1)
    window = state.take_window()
    assert window["gradient_norm/before_clipping"] == pytest.approx(2.0)
    assert window["skipped_steps"] == 3
    state.add(figures(norm=math.inf))
    assert all(math.isfinite(value) for value in state.take_window().values())


def test_the_train_nll_of_a_validation_covers_the_steps_since_the_one_before() -> None:
    state = TrainState()
    for step, nll_sum in enumerate((100.0, 300.0, 500.0), start=1):
        state.step = step
        state.add(figures(nll_sum=nll_sum))
        if step != 1:
            state.note_validation(9.0, 1.0)
    assert state.history == [[2, 2.0, 9.0], [3, 5.0, 9.0]]


def test_where_the_time_has_gone() -> None:
    state = TrainState()
    state.add(figures(seconds=80.0, data_seconds=1.0))
    state.note_validation(9.0, 20.0)
    assert state.time_spent() == "1.7 minutes, of which validation 20.0%, waiting for data 1.0%"
    assert TrainState().time_spent().startswith("0.0 minutes")


# ── worries ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def worries(history: list[list[float]], first_nll: float | None = None, warmup_steps: int = 0) -> list[str]:
    state = TrainState(history=history, first_nll=first_nll, step=int(history[-1][0]))
    return state.worries(TrainConfig(warmup_steps=warmup_steps))


@pytest.mark.parametrize(
    ("valid", "is_overfitting"),
    [([2.0, 2.1, 2.2], True), ([2.0, 2.0, 2.0], True), ([2.0, 2.2, 2.1], True), ([2.0, 2.1, 1.9], False),
     ([2.0, 1.9, 1.8], False)],
)  # fmt: skip
def test_overfitting_is_said_when_train_falls_and_valid_does_not(valid: list[float], is_overfitting: bool) -> None:
    falling = [[10, 3.0, valid[0]], [20, 2.5, valid[1]], [30, 2.0, valid[2]]]
    found = worries([[5, 4.0, 9.0], *falling])
    assert len(found) == is_overfitting
    if found:
        assert found[0].startswith("overfitting: since step 10 the train NLL falls (3.000 → 2.000) and the valid NLL")
    flat = [[step, 3.0, nll] for step, _, nll in falling]
    assert worries([[5, 4.0, 9.0], *flat]) == []
    assert worries(falling[1:]) == []


def test_a_loss_that_does_not_fall_is_said_once_after_the_warm_up() -> None:
    """The first figure that counts is that of a window which begins after the warm-up."""
    flat = [[step, 3.9, 3.9] for step in (10, 20, 30, 40)]
    assert worries(flat[:1], first_nll=4.0, warmup_steps=15) == []
    assert worries(flat[:2], first_nll=4.0, warmup_steps=15) == []
    found = worries(flat[:3], first_nll=4.0, warmup_steps=15)
    assert len(found) == 1
    assert found[0].startswith("the loss is not falling: train NLL 3.900 after the warm-up, 4.000 at the first step")
    assert worries(flat, first_nll=4.0, warmup_steps=15) == []
    assert worries([*flat[:2], [30, 2.0, 2.0]], first_nll=4.0, warmup_steps=15) == []
    assert len(worries(flat[:1], first_nll=4.0, warmup_steps=0)) == 1


def test_the_schedule_starts_anew_from_here() -> None:
    state = TrainState(step=12, without_gain=3, plateau_count=2, plateau_factor=0.25, best_score=1.0, best_step=5)
    state.restart_schedule()
    assert state == TrainState(step=12, schedule_start=12, best_score=1.0, best_step=5)
