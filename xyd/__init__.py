"""xyd trains small translation models from a person's own parallel text, and uses them.

The modules, in the order a sentence pair meets them:

- ``cli`` verbs and flags; ``config`` the YAML and its special ids
- ``errors``, ``text``, ``files``, ``memory``, ``allocator``, ``distributed``, ``runlog`` the ground that all stand on
- ``formats`` files as users bring them → ``SentencePair``; ``cleaning`` filters, each counted; ``health`` what is
  wrong with a corpus; ``splitting`` leak-safe groups → train, valid, test; ``augment`` robustness pairs; ``tokenizer``
  SentencePiece; ``corpus`` all of these → Arrow and manifest.json (``tokenizer_report`` what became of the text);
  ``sampling`` how often each corpus and direction is seen; ``subwords`` segmentations drawn at random; ``batching``
  rows → padded ``Batch``
- ``model`` the Transformer; ``loss`` a sum and a count; ``optim`` parameter groups and schedules; ``decode`` greedy,
  beam, sampling over ids; ``checkpoint`` weights and state on disk
- ``search`` ids → hypotheses in batches, with ``quantize`` for cheap products and ``capture`` for GPUs
- ``translate`` texts → translations, with ``guards`` against long texts and loops; ``lines`` the same for files,
  ``prompt`` for people; ``evaluate`` NLL, BLEU, chrF → ``report``
- ``train`` the loop, ``kfold`` several of it; ``step`` the gradient of a step, in halves where memory is too little;
  ``workers`` how many processes; ``plan`` what a model takes; ``progress`` what it knows of itself; ``resume``
  start, go on, or leave alone; ``finish`` average, choose, test
- ``init`` a config fitted to a corpus; ``check`` everything that can fail, tried small; ``planner`` what a run takes,
  with the data that ``outlook`` foresees

Public API: ``load(run)`` → ``Translator``; ``Translator``; ``Trainer``. They are imported when first used, so that
``import xyd`` and ``xyd --help`` answer without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pathlib import Path

    from xyd.train import Trainer
    from xyd.translate import Translator

__all__ = ["Trainer", "Translator", "__version__", "load"]


def load(run: str | Path, checkpoint: str | None = None, device: str = "auto") -> Translator:
    """The trained model in the run directory ``run``, ready to translate.

    ``load("runs/demo").translate(["…"], to="fr")`` gives a list of ``Translation``. ``checkpoint`` is best, averaged or
    last; None is the one the finished run chose. Raises ``CheckpointError`` when the directory holds no such model.
    """
    from xyd.translate import Translator

    return Translator.load(run, checkpoint=checkpoint, device=device)


def __getattr__(name: str) -> Any:
    if name == "Translator":
        from xyd.translate import Translator

        return Translator
    if name == "Trainer":
        from xyd.train import Trainer

        return Trainer
    raise AttributeError(f"module 'xyd' has no attribute {name!r}")
