"""Texts to translations: normalise, split what is too long, batch by length, search, join, in the order given.

One text in is one translation out, always. Nothing is cut in silence: `Translation.status` and `warnings` tell.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict

import torch

from xyd import checkpoint as checkpoints
from xyd.batching import start_id
from xyd.config import Config
from xyd.decode import Hypothesis, penalty
from xyd.distributed import choose_device
from xyd.errors import CheckpointError, ConfigError
from xyd.files import RunDir
from xyd.guards import altered, split_text, without_loops
from xyd.model import Transformer
from xyd.search import Searcher, with_kept_workers
from xyd.text import normalise
from xyd.tokenizer import Tokenizer

Status = Literal["complete", "split", "looped", "limit", "blank"]

# Written without spaces between sentences.
UNSPACED_LANGUAGES = frozenset({"zh", "ja", "th", "lo", "my", "km", "yue", "wuu"})

# Kept by `normalise` because they shape letters and emoji; alone they are nothing to translate.
_INVISIBLE = "\u200c\u200d\ufe0e\ufe0f "


class Candidate(TypedDict):
    """One of the n best translations of a text."""

    text: str
    score: float


@dataclass(frozen=True, slots=True)
class Translation:
    """What became of one text.

    `source` is the text as given, `text` its translation on one line, `score` the length-normalised log-prob in nats.
    `status`: `complete`; `blank` (nothing to translate, no model call); `split` (too long for the model, translated in
    parts); `limit` (the maximum length cut it); `looped` (the model repeated itself, the repeats were taken out).
    `n_best` holds distinct texts, best first; the first is `text`.
    """

    source: str
    text: str
    score: float
    status: Status
    warnings: list[str] = field(default_factory=list)
    n_best: list[Candidate] = field(default_factory=list)


class _Part(NamedTuple):
    """A text, or a part of one, short enough for the model."""

    source: str  # normalised
    ids: list[int]


class _Outcome(NamedTuple):
    """What became of a part: hypotheses with distinct texts, best first, and what befell the best."""

    texts: list[str]
    hypotheses: list[Hypothesis]
    looped: bool


class Translator:
    """A model, its tokenizer and its directions, ready to translate; also used in training, around the live model."""

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        config: Config,
        directions: Sequence[str],
        device: torch.device | str,
    ) -> None:
        """`directions` in the order of the run, such as ["en-zh", "zh-en"]."""
        self.model = model
        self.tokenizer = tokenizer
        self.config = config
        self.directions = list(directions)
        self.device = torch.device(device)
        self._searcher: Searcher | None = None

    @classmethod
    def load(cls, run: str | Path, checkpoint: str | None = None, device: str = "auto") -> Translator:
        """Open a run directory. Raises CheckpointError if it is not whole or its parts do not belong together.

        `checkpoint`: best, averaged or last; None: the one that the finished run chose.
        """
        run_dir = RunDir(Path(run))
        chosen = choose_device(device)
        config = checkpoints.saved_config(run_dir)
        config = config.model_copy(update={"decode": with_kept_workers(config.decode, run_dir)})
        model = checkpoints.load_model(run_dir, checkpoint, chosen)
        try:
            directions = json.loads(run_dir.manifest_path.read_text(encoding="utf-8"))["directions"]
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointError(
                f"{run_dir.manifest_path}: missing or damaged ({error!r}); xyd prepare writes it anew"
            ) from error
        return cls(model, Tokenizer.load(run_dir.tokenizer_path), config, directions, chosen)

    @property
    def targets(self) -> list[str]:
        """The languages it can translate into."""
        return list(dict.fromkeys(direction.split("-")[1] for direction in self.directions))

    def translate(
        self,
        texts: Sequence[str],
        to: str | None = None,
        source: str | None = None,
        beam_size: int | None = None,
        n_best: int = 1,
        length_penalty: float | None = None,
    ) -> list[Translation]:
        """Translate each text; the result has the same length and order, whatever the texts are.

        Args:
            to: target language; needed when the run has several.
            source: source language; the model does not need it, but when given the direction must be a trained one.
            beam_size, length_penalty: instead of those of the run's configuration; a beam of 1 is greedy search.
            n_best: how many distinct translations of each text, at most the beam size.

        Raises ConfigError when a language is unknown or missing, or the search settings are impossible.
        """
        if isinstance(texts, str):
            raise TypeError("translate() takes a list of texts; put the one text in a list")
        to = self._target(to, source)
        beam_size = self.config.decode.beam_size if beam_size is None else beam_size
        alpha = self.config.decode.length_penalty if length_penalty is None else length_penalty
        self._check_search(beam_size, n_best, alpha)
        parts_of = self._parts(texts)
        parts = [part for parts in parts_of for part in parts]
        outcomes = iter(self._search(parts, to, beam_size, n_best, alpha))
        return [
            self._join(text, parts, [next(outcomes) for _ in parts], to, n_best, alpha)
            for text, parts in zip(texts, parts_of, strict=True)
        ]

    def _target(self, to: str | None, source: str | None) -> str:
        """The target language, checked."""
        sources = list(dict.fromkeys(direction.split("-")[0] for direction in self.directions))
        if source is not None and source not in sources:
            raise ConfigError(f"unknown source language {source!r}; this run translates from: {', '.join(sources)}")
        choices = [t for t in self.targets if source is None or f"{source}-{t}" in self.directions]
        if to is None and len(choices) > 1:
            raise ConfigError(f"which target language? This run translates into: {', '.join(choices)}")
        if to is not None and to not in self.targets:
            raise ConfigError(f"unknown target language {to!r}; this run translates into: {', '.join(self.targets)}")
        if to is not None and to not in choices:
            raise ConfigError(f"this run was not trained on {source}-{to}, but on: {', '.join(self.directions)}")
        return choices[0] if to is None else to

    def _check_search(self, beam_size: int, n_best: int, alpha: float) -> None:
        if beam_size < 1:
            raise ConfigError(f"beam size {beam_size}: must be at least 1")
        if n_best < 1:
            raise ConfigError(f"n-best {n_best}: must be at least 1")
        if n_best > beam_size:
            raise ConfigError(f"n-best {n_best} is above the beam size {beam_size}; raise the beam size to {n_best}")
        if n_best > 1 and self.config.decode.temperature is not None:
            raise ConfigError(f"n-best {n_best} needs a search: set decode.temperature to null")
        if not 0 <= alpha <= 100:  # below 0 the beam's stop rule is wrong, far above it a float has no room
            raise ConfigError(f"length penalty {alpha}: must be from 0 to 100; 1 is the mean per token")

    def _parts(self, texts: Sequence[str]) -> list[list[_Part]]:
        """The parts of each text: none when blank, one as a rule, several when it is too long for the model."""
        clean = [normalise(text) for text in texts]
        to_encode = [text for text in clean if text.strip(_INVISIBLE)]
        encoded = iter(self.tokenizer.encode_batch(to_encode) if to_encode else [])
        parts: list[list[_Part]] = []
        for text in clean:
            if not text.strip(_INVISIBLE):
                parts.append([])
                continue
            ids = next(encoded)
            if len(ids) <= self._room:
                parts.append([_Part(text, ids)])
            else:
                pieces = split_text(text, self._sizes, self._room)
                parts.append([_Part(piece, self.tokenizer.encode(piece)) for piece in pieces])
        return parts

    def _sizes(self, texts: list[str]) -> list[int]:
        return [len(ids) for ids in self.tokenizer.encode_batch(texts)]

    @property
    def _room(self) -> int:
        """Bare ids that fit into the model, on either side: one place is EOS's, or the start's."""
        return self.config.model.max_length - 1

    def _search(self, parts: list[_Part], to: str, beam_size: int, n_best: int, alpha: float) -> list[_Outcome]:
        """The outcome of each part, in order."""
        # Two hypotheses may spell the same text: with the whole beam to choose from, n distinct ones are likelier.
        num_kept = 1 if n_best == 1 else beam_size
        found = self._search_ids([part.ids for part in parts], to, beam_size, num_kept, alpha)
        return [self._outcome(part, hypotheses, n_best) for part, hypotheses in zip(parts, found, strict=True)]

    def _search_ids(
        self, sources: list[list[int]], to: str, beam_size: int, n_best: int, alpha: float
    ) -> list[list[Hypothesis]]:
        decode = self.config.decode
        limits = [int(decode.max_length_factor * len(ids)) + decode.max_length_extra for ids in sources]
        max_lengths = [min(max(limit, 1), self._room) for limit in limits]
        start = start_id(self.tokenizer, self.directions, to)
        return self.searcher.search(sources, start, max_lengths, beam_size, alpha, n_best, self.config.run.seed)

    @property
    def searcher(self) -> Searcher:
        """The model made ready for search."""
        if self._searcher is None:
            self._searcher = Searcher(self.model, self.config.decode, self.device, self.tokenizer.banned_ids)
        return self._searcher

    def refresh(self) -> None:
        """The model's weights have changed: make it ready for search anew."""
        self._searcher = None

    def _outcome(self, part: _Part, hypotheses: list[Hypothesis], n_best: int) -> _Outcome:
        """Hypotheses of one part → distinct texts without loops."""
        outcome = _Outcome([], [], False)
        for hypothesis in hypotheses:
            raw = normalise(self.tokenizer.decode(hypothesis.ids))
            text = without_loops(raw, part.source)
            if not outcome.texts:
                outcome = outcome._replace(looped=text != raw)
            if text not in outcome.texts and len(outcome.texts) < n_best:
                outcome.texts.append(text)
                outcome.hypotheses.append(hypothesis)
        return outcome

    def _join(
        self, source: str, parts: list[_Part], outcomes: list[_Outcome], to: str, n_best: int, alpha: float
    ) -> Translation:
        """The outcomes of a text's parts → its Translation."""
        if not parts:
            return Translation(source, "", 0.0, "blank")
        warnings: list[str] = []
        status: Status = "complete"
        if len(parts) > 1:
            status = "split"
            warnings.append(f"longer than {self._room} tokens: translated in {len(parts)} parts")
        for number, outcome in enumerate(outcomes, 1):
            where = f"part {number}: " if len(parts) > 1 else ""
            best = outcome.hypotheses[0]
            if outcome.looped:
                status = "looped"
                warnings.append(f"{where}the model repeated itself; the repeats were taken out")
            elif not best.finished:
                status = "limit" if status != "looped" else status
                warnings.append(f"{where}cut at the maximum length of {len(best.ids)} tokens")
            if not outcome.texts[0]:
                warnings.append(f"{where}the model's translation is empty")
        if len(parts) == 1:
            texts, found = outcomes[0].texts, outcomes[0].hypotheses
            candidates = [Candidate(text=text, score=h.score) for text, h in zip(texts, found, strict=True)]
        else:
            joint = ("" if to in UNSPACED_LANGUAGES else " ").join(o.texts[0] for o in outcomes if o.texts[0])
            bests = [o.hypotheses[0] for o in outcomes]
            length = sum(len(h.ids) + 1 for h in bests)
            divisor = penalty(length, alpha, self.config.decode.length_penalty_form)
            candidates = [Candidate(text=joint, score=sum(h.log_prob for h in bests) / divisor)]
        warnings += altered(" ".join(part.source for part in parts), candidates[0]["text"])
        if len(candidates) < n_best:
            warnings.append(f"{len(candidates)} of {n_best} translations: there were no more distinct ones")
        return Translation(source, candidates[0]["text"], candidates[0]["score"], status, warnings, candidates)
