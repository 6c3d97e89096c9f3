"""The end of a run: average the best snapshots, choose on valid, evaluate what was chosen once on test, report.json.

Every rank takes part: each evaluates its share, rank 0 decides, writes and speaks.
"""

import json
import os
import shlex
from collections.abc import Callable
from typing import Any

from xyd import checkpoint, corpus, distributed
from xyd.evaluate import EvalReport, evaluate_split
from xyd.files import RunDir, atomic_write
from xyd.progress import TrainState, is_better
from xyd.runlog import RunLog
from xyd.translate import Translator


def finish(
    run: RunDir, translator: Translator, state: TrainState, log: RunLog, evaluate_valid: Callable[[], EvalReport]
) -> None:
    """Ends with the chosen weights in the translator's model. Raises CheckpointError where `best` is gone."""
    t, model = translator.config.train, translator.model
    averaged: list[str] = distributed.on_main(lambda: _to_average(run, t.metric, t.average))
    _load_weights(run, "best", translator)
    candidates = {"best": evaluate_valid()}
    if len(averaged) > 1:
        distributed.on_all(lambda: checkpoint.average(run, averaged, model))
        candidates["averaged"] = evaluate_valid()
        facts = {"average_of": averaged}
        distributed.on_main(lambda: checkpoint.save(run, ["averaged"], model, state.step, facts))
    scores = {name: getattr(report, t.metric) for name, report in candidates.items()}
    is_averaged = "averaged" in scores and is_better(scores["averaged"], scores["best"], t)
    chosen = distributed.from_main("averaged" if is_averaged else "best")
    told = ", ".join(f"{name} {t.metric} {score:.4f}" for name, score in scores.items())
    log.say(f"\nvalid, checkpoint {chosen} ({told})\n{candidates[chosen].table()}")
    test = None
    if translator.config.data.has_test:
        _load_weights(run, chosen, translator)
        split, samples = corpus.open_split(run, "test"), translator.config.evaluate.samples
        test = evaluate_split(translator, split, samples=samples)
        log.say(f"\ntest, checkpoint {chosen}\n{test.table()}")
    report: dict[str, Any] = {
        "checkpoint": chosen,
        "step": state.step,
        "best_step": state.best_step,
        "tokens": state.tokens,
        "seconds": round(state.seconds, 1),
        "seed": translator.config.run.seed,
        "valid": {name: r.as_dict() for name, r in candidates.items()},
        "test": None if test is None else test.as_dict(),
    }
    text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    distributed.on_main(lambda: atomic_write(run.report_path, text))
    log.say(f"\nreport: {run.report_path}\ntranslate with: xyd translate {shlex.quote(os.path.relpath(run.root))}")


def _to_average(run: RunDir, metric: str, most: int) -> list[str]:
    """The best snapshots, those that are whole."""
    names = [name for _, name in checkpoint.snapshots(run, metric, lowest_first=metric == "nll")[:most]]
    return [name for name in names if checkpoint.index_of(run.checkpoints_dir / name) is not None]


def _load_weights(run: RunDir, name: str, translator: Translator) -> None:
    distributed.on_all(lambda: checkpoint.load_weights(translator.model, checkpoint.find(run, name)[0]))
