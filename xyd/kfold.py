"""K runs, each with another fold as its test split, one after the other; mean and spread of their scores.

Each run is an ordinary run directory, `<name>-fold1` to `<name>-foldK`: a stopped command goes on where it was.
"""

import json
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from xyd import distributed
from xyd.config import Config
from xyd.errors import ConfigError
from xyd.files import RunDir, atomic_write
from xyd.resume import run_dir
from xyd.train import train

SCORES = ("nll", "bleu", "chrf")


def train_folds(config: Config, runs: Sequence[Config], say: Callable[[str], None], **options: bool) -> int:
    """Train every fold and write `<run.dir>/<name>-kfold.json`. Returns the exit code.

    Args:
        config: the whole; `runs`: of each fold, from `config.with_fold`.
        options: those of `train`.
    """
    if distributed.under_launcher():
        raise ConfigError("several folds cannot follow each other under torchrun; start one for each, with --fold N")
    for number, one in enumerate(runs, start=1):
        say(f"── fold {number} of {len(runs)}: {one.run.name} ──")
        code = train(one, **options)
        if code:
            return code
    reports = {one.run.name: _test_report(run_dir(one)) for one in runs}
    directions = spread(list(reports.values()))
    record = {"folds": list(reports), "seed": config.run.seed, "directions": directions}
    path = run_dir(config).root.with_name(f"{config.run.name}-kfold.json")
    atomic_write(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    say(f"\ntest, mean ± standard deviation over {len(runs)} folds\n{table(directions)}\n{path}")
    return 0


def _test_report(run: RunDir) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.report_path.read_text(encoding="utf-8"))["test"]["directions"]
    return found


def spread(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Direction → score → values of the folds, mean and standard deviation (of the sample, n - 1; null below two).

    `reports`: direction → score → value or None, of each fold; a value that is None is left out of the mean.
    """
    found: dict[str, Any] = {}
    for direction in dict.fromkeys(name for report in reports for name in report):
        for score in SCORES:
            values = [report.get(direction, {}).get(score) for report in reports]
            there = [value for value in values if value is not None]
            found.setdefault(direction, {})[score] = {
                "values": values,
                "mean": statistics.fmean(there) if there else None,
                "standard_deviation": statistics.stdev(there) if len(there) > 1 else None,
            }
    return found


def table(directions: dict[str, Any]) -> str:
    """One line a direction: NLL, BLEU and chrF, each as mean ± standard deviation."""
    rows = [["direction", "NLL", "BLEU", "chrF"]]
    rows += [[name, *(_cell(scores[score]) for score in SCORES)] for name, scores in directions.items()]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )


def _cell(score: dict[str, Any]) -> str:
    if score["mean"] is None:
        return "-"
    deviation = score["standard_deviation"]
    return f"{score['mean']:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")
