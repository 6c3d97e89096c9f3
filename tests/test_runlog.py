"""The run log: valid JSON lines whatever the values, no step twice after a resume, a log file without bar redraws."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xyd.runlog as runlog
from xyd.errors import DataError
from xyd.files import RunDir
from xyd.runlog import DISCARDED_NAME, RunLog, read_metrics


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "run")


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def load_events(directory: Path) -> Any:
    """TensorBoard's own reader, which hides what a resume purged."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(directory)).Reload()


def strict_json(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_lines_hold_step_time_kind_and_are_flushed_at_once(run: RunDir) -> None:
    with RunLog(run) as log:
        log.scalars(10, {"nll": np.float32(2.5), "learning_rate": 1e-3})
        log.scalars(10, {"nll": 3.0}, side="valid")
        log.event({"event": "save", "path": Path("checkpoints/last"), "pair_ids": np.array([3, 4])})
        first, second, third = read_metrics(run.metrics_path)  # before close
    assert first["step"] == 10
    assert first["kind"] == "train"
    assert first["nll"] == 2.5
    assert first["time"] > 1.6e9
    assert second["kind"] == "valid"
    assert third["kind"] == "event"
    assert third["step"] == 10
    assert third["pair_ids"] == [3, 4]


def test_not_finite_values_are_null_with_a_name(run: RunDir) -> None:
    with RunLog(run) as log:
        log.scalars(1, {"nll": float("nan"), "norm": float("inf"), "lr": 0.1})
        log.event({"event": "skip", "bleu": {"en-zh": float("-inf")}, "losses": [1.0, float("nan")]})
    first, second = (strict_json(line) for line in run.metrics_path.read_text(encoding="utf-8").splitlines())
    assert first["nll"] is None
    assert first["norm"] is None
    assert first["lr"] == 0.1
    assert first["not_finite"] == {"nll": "nan", "norm": "inf"}
    assert second["bleu"] == {"en-zh": None}
    assert second["losses"] == [1.0, None]
    assert second["not_finite"] == {"bleu.en-zh": "-inf", "losses.1": "nan"}


def test_resume_moves_later_lines_and_deletes_nothing(run: RunDir) -> None:
    with RunLog(run) as log:
        for step in range(1, 7):
            log.scalars(step, {"nll": float(step)})
    with RunLog(run, resume_step=4) as log:
        for step in range(5, 8):
            log.scalars(step, {"nll": 100.0 + step})
    lines = read_metrics(run.metrics_path)
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6, 7]
    assert [line["nll"] for line in lines] == [1, 2, 3, 4, 105, 106, 107]
    assert [line["nll"] for line in read_metrics(run.root / DISCARDED_NAME)] == [5, 6]


def test_resume_with_a_half_line_at_the_end(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    with RunLog(run) as log:
        log.scalars(1, {"nll": 1.0})
        log.scalars(2, {"nll": 2.0})
    with run.metrics_path.open("a") as file:
        file.write('{"step": 3, "nl')
    assert [line["step"] for line in read_metrics(run.metrics_path)] == [1, 2]
    with RunLog(run, resume_step=2) as log:
        log.scalars(3, {"nll": 3.0})
    assert [line["step"] for line in read_metrics(run.metrics_path)] == [1, 2, 3]
    assert strict_json((run.root / DISCARDED_NAME).read_text()) == {"unreadable": '{"step": 3, "nl'}
    assert "1 lines after step 2 moved" in capsys.readouterr().err


def test_a_whole_last_line_without_its_line_end_is_kept(run: RunDir) -> None:
    with RunLog(run) as log:
        log.scalars(1, {"nll": 1.0})
    run.metrics_path.write_bytes(run.metrics_path.read_bytes().rstrip(b"\n"))
    with RunLog(run, resume_step=1) as log:
        log.scalars(2, {"nll": 2.0})
    assert [line["step"] for line in read_metrics(run.metrics_path)] == [1, 2]


def test_start_from_scratch_moves_all_lines(run: RunDir) -> None:
    for _ in range(2):
        with RunLog(run) as log:
            log.event({"event": "start", "step": 0})
            log.scalars(1, {"nll": 1.0})
    assert [line["step"] for line in read_metrics(run.metrics_path)] == [0, 1]
    assert [line["step"] for line in read_metrics(run.root / DISCARDED_NAME)] == [0, 1]


def test_a_broken_line_inside_is_named(run: RunDir) -> None:
    run.root.mkdir()
    run.metrics_path.write_text('{"step": 1}\n???\n{"step": 2}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl:2: "):
        read_metrics(run.metrics_path)


def test_tensorboard_shares_tags_and_has_no_step_twice_after_a_resume(run: RunDir) -> None:
    with RunLog(run) as log:
        log.hparams({"train.learning_rate": 1e-3, "data.corpora": ["a", "b"], "x": None})
        for step in range(1, 7):
            log.scalars(step, {"nll": float(step)})
        log.scalars(6, {"nll": 9.0}, side="valid")
        log.text("samples", 6, "a*b*<c>\nd")
    with RunLog(run, resume_step=4) as log:
        log.hparams({"train.learning_rate": 1e-3})
        log.scalars(5, {"nll": 105.0})
        log.scalars(6, {"nll": 109.0}, side="valid")
    train, valid = load_events(run.tensorboard_dir / "train"), load_events(run.tensorboard_dir / "valid")
    assert [(point.step, point.value) for point in train.Scalars("nll")] == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 105)]
    assert [(point.step, point.value) for point in valid.Scalars("nll")] == [(6, 109)]
    assert {path.name for path in run.tensorboard_dir.iterdir()} == {"train", "valid"}  # no further run for hparams
    assert "_hparams_/experiment" in valid.summary_metadata


def test_hyper_parameters_are_written_once(run: RunDir) -> None:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    with RunLog(run) as log:
        for _ in range(2):
            log.hparams({"train.learning_rate": 1e-3})
    with RunLog(run, resume_step=5) as log:
        log.hparams({"train.learning_rate": 1e-3})
    files = sorted((run.tensorboard_dir / "valid").iterdir())
    tags = [value.tag for path in files for event in EventFileLoader(str(path)).Load() for value in event.summary.value]
    assert tags == ["_hparams_/experiment", "_hparams_/session_start_info", "_hparams_/session_end_info"]


def test_texts_are_shown_as_they_are(run: RunDir) -> None:
    with RunLog(run) as log:
        log.text("samples", 3, "a*b*<c>\n猫追狗")
    (event,) = load_events(run.tensorboard_dir / "valid").Tensors("samples/text_summary")
    assert event.step == 3
    assert event.tensor_proto.string_val[0].decode() == "    a*b*<c>\n    猫追狗"


def test_disabled_does_nothing(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    with RunLog(run, enabled=False) as log:
        log.say("hello")
        log.bar(10)
        log.advance(shown={"loss": 1.0})
        log.scalars(1, {"nll": 1.0})
        log.text("samples", 1, "x")
        log.hparams({"a": 1})
        log.event({"event": "x"})
        log.flush()
    assert not run.root.exists()
    assert capsys.readouterr() == ("", "")


def test_a_log_file_gets_few_whole_lines(
    run: RunDir, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(float(second) for second in range(10_000))
    monkeypatch.setattr(runlog.time, "monotonic", lambda: next(clock))
    with RunLog(run) as log:
        log.bar(1000, done=900)
        for step in range(100):
            log.advance(shown={"loss": 3.14159, "tokens/s": 12345.6, "lr": 7e-4})
            if step == 50:
                log.say("valid: nll 2.0")
    out, err = capsys.readouterr()
    assert out == ""
    assert "\r" not in err
    assert "\x1b" not in err
    lines = err.splitlines()
    assert lines[0].startswith("step 901/1,000 (90%)  loss 3.142  tokens/s 12,346  lr 0.0007")
    assert lines[-1].startswith("step 1,000/1,000 (100%)")
    assert lines[-1].endswith("left 00:00")
    assert "valid: nll 2.0" in lines
    assert len(lines) == 6


def test_on_a_terminal_messages_stand_on_lines_of_their_own(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with RunLog(run) as log:
        log.bar(3)
        log.advance(shown={"loss": 3.0})
        log.say("valid: nll 2.0")
        log.advance(2)
    text = terminal.getvalue()
    assert "\r" in text  # a bar that redraws itself
    assert any(piece == "valid: nll 2.0" for piece in text.replace("\r", "\n").split("\n"))
