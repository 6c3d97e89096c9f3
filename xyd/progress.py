"""What a run knows of itself: its state, when it is over, what is best, and what should worry a person.

No tensors here: `TrainState` is all that the loop mutates beside weights and optimiser, as plain values. It is the same
on every rank; times are of rank 0's clock.
"""

import math
from dataclasses import dataclass, field

from xyd.config import Config, TrainConfig


@dataclass(frozen=True)
class StepFigures:
    """What one step was, summed over micro-batches and ranks."""

    loss_sum: float  # with label smoothing
    nll_sum: float  # plain, in nats
    num_tokens: int  # real target tokens
    num_padded: int  # places of tgt_out, padding included
    norm: float  # of the gradient, before clipping
    clip_norm: float  # the threshold; infinite where nothing is clipped
    seconds: float  # since the step, validation or save before it
    data_seconds: float  # a rank waited for its batches, on average
    num_sampled: int = 0  # pairs whose segmentation was drawn
    num_stored: int = 0  # of them, those for which the draw was too long, so that they kept the best one
    stop_signal: int = 0  # the signal some rank has received; 0 for none

    @property
    def is_skipped(self) -> bool:
        return not math.isfinite(self.norm)


@dataclass
class TrainState:
    """Where a run stands. Sums live here too, so that a resumed run logs what an unbroken one would."""

    step: int = 0
    schedule_start: int = 0  # the step at which the schedule began; later than 0 after --reset-schedule
    epoch: int = 0
    step_in_epoch: int = 0
    tokens: int = 0  # real target tokens seen
    seconds: float = 0.0  # of training, validation and saving
    validation_seconds: float = 0.0
    data_seconds: float = 0.0  # waited for batches
    best_score: float | None = None
    best_step: int = 0
    last_score: float | None = None
    without_gain: int = 0  # validations since the best one
    plateau_factor: float = 1.0
    plateau_count: int = 0
    skipped: int = 0  # steps whose gradient was not finite
    skipped_in_a_row: int = 0
    halved: int = 0  # micro-batches that did not fit into memory
    first_nll: float | None = None  # of the first step, per token
    history: list[list[float]] = field(default_factory=list)  # [step, train NLL, valid NLL] of every validation
    window: dict[str, float] = field(default_factory=dict)  # sums since the last log line
    since_validation: dict[str, float] = field(default_factory=dict)

    def finished(self, config: Config) -> str | None:
        """Why training is over, in words; None while it is not."""
        t = config.train
        if self.step >= t.max_steps:
            return f"max_steps = {t.max_steps} reached"
        if t.max_epochs is not None and self.epoch >= t.max_epochs:
            return f"max_epochs = {t.max_epochs} reached"
        if t.max_minutes is not None and self.seconds >= 60 * t.max_minutes:
            return f"max_minutes = {t.max_minutes:g} reached"
        if t.patience is not None and self.without_gain >= t.patience:
            return f"{self.without_gain} validations without gain in {t.metric}, best at step {self.best_step}"
        return None

    def add(self, figures: StepFigures) -> None:
        """Count one step."""
        self.tokens += figures.num_tokens
        self.seconds += figures.seconds
        self.data_seconds += figures.data_seconds
        self.skipped += figures.is_skipped
        self.skipped_in_a_row = self.skipped_in_a_row + 1 if figures.is_skipped else 0
        if self.first_nll is None:
            self.first_nll = figures.nll_sum / figures.num_tokens
        norm = 0.0 if figures.is_skipped else figures.norm
        sums = {
            "steps": 1.0,
            "updates": float(not figures.is_skipped),
            "tokens": float(figures.num_tokens),
            "padded": float(figures.num_padded),
            "loss": figures.loss_sum,
            "nll": figures.nll_sum,
            "norm": norm,
            "norm_after": min(norm, figures.clip_norm),
            "clipped": float(norm > figures.clip_norm),
            "seconds": figures.seconds,
            "data_seconds": figures.data_seconds,
        }
        if figures.num_sampled:
            sums |= {"sampled": float(figures.num_sampled), "stored": float(figures.num_stored)}
        for window in (self.window, self.since_validation):
            for key, value in sums.items():
                window[key] = window.get(key, 0.0) + value

    def take_window(self) -> dict[str, float]:
        """Figures of the steps since the last call, as TensorBoard tags; the sums start anew."""
        w, self.window = self.window, {}
        nll, updates = w["nll"] / w["tokens"], max(1.0, w["updates"])
        sampling = {"not_sampled_share": w["stored"] / w["sampled"]} if "sampled" in w else {}
        return {
            **sampling,
            "nll": nll,
            "perplexity": perplexity(nll),
            "loss": w["loss"] / w["tokens"],
            "gradient_norm/before_clipping": w["norm"] / updates,
            "gradient_norm/after_clipping": w["norm_after"] / updates,
            "clip_share": w["clipped"] / updates,
            "tokens_per_second": w["tokens"] / w["seconds"],
            "padding_share": 1 - w["tokens"] / w["padded"],
            "data_wait_share": w["data_seconds"] / w["seconds"],
            "epoch": self.epoch,
            "tokens": self.tokens,
            "skipped_steps": self.skipped,
        }

    def judge(self, score: float, train: TrainConfig) -> bool:
        """Take in the metric of one validation; True if it is the best so far. Counts validations without gain."""
        self.last_score = score
        is_best = is_better(score, self.best_score, train)
        if is_better(score, self.best_score, train, train.min_gain):
            self.without_gain = self.plateau_count = 0
        else:
            self.without_gain += 1
            self.plateau_count += 1
        if is_best:  # a gain below min_gain does not reset patience, but the best is kept all the same
            self.best_score, self.best_step = score, self.step
        if train.schedule == "plateau" and self.plateau_count >= train.plateau_patience:
            self.plateau_factor *= train.plateau_factor
            self.plateau_count = 0
        return is_best

    def restart_schedule(self, has_same_steps: bool = True) -> None:
        """The schedule, patience and plateau begin after this step; with other steps an epoch too.

        The position in an epoch means nothing once its pairs are put together to other steps.
        """
        self.schedule_start, self.without_gain, self.plateau_count, self.plateau_factor = self.step, 0, 0, 1.0
        if not has_same_steps and self.step_in_epoch:
            self.epoch, self.step_in_epoch = self.epoch + 1, 0

    def note_validation(self, valid_nll: float, seconds: float) -> None:
        """Count one validation, which took `seconds`."""
        self.seconds += seconds
        self.validation_seconds += seconds
        since = self.since_validation
        self.history.append([self.step, since["nll"] / since["tokens"] if since else math.nan, valid_nll])
        self.since_validation = {}

    def time_spent(self) -> str:
        """Where the time of the whole run has gone, in words."""
        total = max(self.seconds, 1e-9)
        return (
            f"{self.seconds / 60:.1f} minutes, of which validation {self.validation_seconds / total:.1%}, "
            f"waiting for data {self.data_seconds / total:.1%}"
        )

    def worries(self, train: TrainConfig) -> list[str]:
        """In words, what a person should know about the course so far."""
        found = []
        last = self.history[-3:]
        if len(last) == 3:
            (step, train_1, valid_1), (_, train_2, valid_2), (_, train_3, valid_3) = last
            if train_1 > train_2 > train_3 and valid_1 <= min(valid_2, valid_3):
                found.append(
                    f"overfitting: since step {step:.0f} the train NLL falls ({train_1:.3f} → {train_3:.3f}) and the "
                    f"valid NLL does not ({valid_1:.3f} → {valid_3:.3f}). More data, more dropout or a smaller model "
                    "would help."
                )
        begins = [0.0, *(step for step, _, _ in self.history)]
        past_warmup = [e for begin, e in zip(begins, self.history, strict=False) if begin >= train.warmup_steps]
        if len(past_warmup) == 1 and self.first_nll is not None and past_warmup[0][1] > 0.9 * self.first_nll:
            found.append(
                f"the loss is not falling: train NLL {past_warmup[0][1]:.3f} after the warm-up, {self.first_nll:.3f} "
                "at the first step. Is train.learning_rate too high, or are the sides no translations of each other?"
            )
        return found


def is_better(score: float, than: float | None, train: TrainConfig, gain: float = 0.0) -> bool:
    """Whether `score` beats `than` by more than `gain` in the metric of the run; NLL falls, BLEU and chrF rise."""
    if not math.isfinite(score):
        return False
    if than is None:
        return True
    return score < than - gain if train.metric == "nll" else score > than + gain


def perplexity(nll: float) -> float:
    return math.inf if nll > 700 else math.exp(nll)
