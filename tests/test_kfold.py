"""kfold: every pair is tested once, each run is an ordinary one, and the figures of all are told together."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest
from toy import Toy

from xyd.cli import main
from xyd.config import load, with_fold
from xyd.corpus import open_split
from xyd.errors import ConfigError
from xyd.files import RunDir
from xyd.kfold import spread, table


def test_three_folds_are_three_runs_and_one_summary(
    toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["train", str(toy.yaml)]
    for override in (
        f"run.dir={tmp_path}", "data.test=null", "data.split.kfold=3", "train.max_steps=2", "train.validate_every=2",
        "decode.beam_size=1", "evaluate.samples=0",
    ):  # fmt: skip
        arguments += ["--set", override]
    assert main(arguments) == 0
    said = capfd.readouterr().err
    assert "fold 3 of 3: toy-fold3" in said
    assert "mean ± standard deviation over 3 folds" in said
    runs = [RunDir(tmp_path / f"toy-fold{fold}") for fold in (1, 2, 3)]
    origins = [{split.origin(row) for row in range(len(split))} for split in (open_split(run, "test") for run in runs)]
    assert [len(own) for own in origins] == [100, 100, 100]
    assert len(set.union(*origins)) == 300
    for run, tested in zip(runs, origins, strict=True):
        for name, size in (("train", 180), ("valid", 20)):
            split = open_split(run, name)
            assert len(split) == size
            assert not tested & {split.origin(row) for row in range(size)}
    summary = json.loads((tmp_path / "toy-kfold.json").read_text(encoding="utf-8"))
    assert summary["folds"] == ["toy-fold1", "toy-fold2", "toy-fold3"]
    tests = [json.loads(run.report_path.read_text(encoding="utf-8"))["test"]["directions"]["xx-yy"] for run in runs]
    for score in ("nll", "bleu", "chrf"):
        values = [report[score] for report in tests]
        assert summary["directions"]["xx-yy"][score]["values"] == values
        assert summary["directions"]["xx-yy"][score]["mean"] == pytest.approx(statistics.fmean(values))
        assert summary["directions"]["xx-yy"][score]["standard_deviation"] == pytest.approx(statistics.stdev(values))
    # the same command again: all is done already
    assert main(arguments) == 0
    assert capfd.readouterr().err.count("already done") == 3
    # a run directory of a fold means that fold, and trains on by itself
    config = load(runs[1].config_path)
    assert (config.run.name, config.data.split.fold) == ("toy-fold2", 2)
    assert main(["prepare", str(runs[1].config_path)]) == 0
    assert "already prepared" in capfd.readouterr().out


def test_one_fold_alone(toy: Toy, tmp_path: Path) -> None:
    flags = ["--set", f"run.dir={tmp_path}", "--set", "data.test=null", "--set", "data.split.kfold=4"]
    assert main(["prepare", str(toy.yaml), *flags, "--fold", "4"]) == 0
    assert [path.name for path in sorted(tmp_path.iterdir()) if path.is_dir()] == ["toy-fold4"]
    manifest = json.loads((tmp_path / "toy-fold4" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["groups"]["fold_sizes"] == [75] * 4
    assert manifest["split"]["test"] == {"xx-yy": 75}
    assert "fold 4 of 4 is test" in manifest["split"]["rule"]


@pytest.mark.parametrize(
    ("kfold", "fold", "message"), [("4", 5, "the folds are 1 to 4"), ("null", 1, "set data.split.kfold")]
)
def test_a_fold_that_is_not_there(toy: Toy, kfold: str, fold: int, message: str) -> None:
    config = load(toy.yaml, ["data.test=null", f"data.split.kfold={kfold}"])
    with pytest.raises(ConfigError, match=f"--fold {fold}: .*{message}"):
        with_fold(config, fold)


def test_spread_leaves_out_what_is_missing_and_says_no_deviation_of_one() -> None:
    found = spread([{"en-fr": {"nll": 1.0, "bleu": 10.0, "chrf": None}}, {"en-fr": {"nll": 3.0, "bleu": None}}])
    assert found["en-fr"]["nll"] == {"values": [1.0, 3.0], "mean": 2.0, "standard_deviation": pytest.approx(2**0.5)}
    assert found["en-fr"]["bleu"] == {"values": [10.0, None], "mean": 10.0, "standard_deviation": None}
    assert found["en-fr"]["chrf"]["mean"] is None
    assert table(found).splitlines()[1].split() == ["en-fr", "2.00", "±", "1.41", "10.00", "-"]
