"""`xyd check`: everything that can fail is tried once, small, before training; each trial is a line with its remedy.

Rooms inside: `findings` what is said, and the folder that trials write to; `inputs` run directory, device, corpora,
disk; `sample` rows of a sample; `model` tokenizer, memory, model, learning, checkpoint, translation on that sample.
A run that stands there is only looked at. What a sample cannot show is said.
"""

from collections.abc import Callable

from xyd.check.findings import Findings, Workplace
from xyd.check.inputs import InputTrials
from xyd.check.model import ModelTrials
from xyd.config import Config
from xyd.resume import run_dir

SECONDS = 110.0

__all__ = ["SECONDS", "check"]


def check(config: Config, say: Callable[[str], None], seconds: float = SECONDS) -> int:
    """Try everything, for about `seconds`, and say what came of it, a line each; the exit code: 2 where something
    failed, else 0. Nothing of it stays behind."""
    findings = Findings(say, seconds)
    with Workplace(run_dir(config).root) as place:
        inputs = InputTrials(config, findings, place)
        findings.attempt("run directory", inputs.try_run_directory)
        findings.attempt("device", inputs.try_device)
        findings.attempt("corpora", inputs.try_corpora)
        findings.attempt("valid and test", inputs.try_splits)
        findings.attempt("disk", inputs.try_disk)
        model = ModelTrials(config, findings, place, inputs)
        findings.attempt("tokenizer", model.try_tokenizer)
        findings.attempt("memory", model.try_memory)
        findings.attempt("model", model.try_model)
        findings.attempt("largest micro-batch", model.try_largest_batch)
        findings.attempt("learning", model.try_learning)
        findings.attempt("checkpoint", model.try_checkpoint)
        findings.attempt("translation", model.try_translation)
    return findings.conclude()
