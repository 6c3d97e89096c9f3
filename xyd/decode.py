"""Greedy search, beam search and sampling over a step function. Ids only: no model, no text.

A hypothesis is a sequence of bare ids followed by EOS. Its `log_prob` is the natural logarithm of the probability
that the step function gives to all of it, EOS included, so that teacher forcing on the same ids gives the same number;
its `score` is `log_prob / penalty(len)`, where `len` counts the ids and EOS.

A hypothesis that reaches its maximum length gets EOS whether it wants it or not, at EOS's own price. So one that was
cut short competes with the others on equal terms, and usually loses; it is `finished` only if EOS was its likeliest
next id.

Letters of the shapes: B sentences, W beam width, R = B·W rows, V vocabulary size, T longest maximum length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from xyd.errors import NumericsError

PenaltyForm = Literal["length", "gnmt"]
GROUP = 64  # see _top


@runtime_checkable  # the tests execute the types of this module
class Step(Protocol):
    """One step of a decoder that remembers what it has been fed."""

    def __call__(self, ids: Int[Tensor, " R"]) -> Iterable[Tensor]:
        """Feed one id to each row; gives the logits of the next id, (n,V), some rows at a time.
        The search may overwrite them.

        At the first call there is one row for each sentence.
        """
        ...

    def reorder(self, rows: Int[Tensor, " R2"]) -> None:
        """New row i continues what row `rows[i]` was; rows stay grouped by sentence, equally many for each."""
        ...

    def keep(self, sentences: Int[Tensor, " B2"]) -> None:
        """Only these sentences go on, with all their rows."""
        ...


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One output of a search.

    `ids` are bare (no specials); `log_prob` in nats, EOS included; `score` is `log_prob` over the length penalty;
    `finished` is false when the maximum length cut it short.
    """

    ids: list[int]
    log_prob: float
    score: float
    finished: bool


def penalty(length: int, length_penalty: float, form: PenaltyForm) -> float:
    """What the log-prob of a hypothesis of `length` ids, EOS counted, is divided by.

    `length` is len^α; `gnmt` is ((5 + len) / 6)^α (Wu et al. 2016, equation 14); α is `length_penalty`.
    """
    return float(length**length_penalty if form == "length" else ((5.0 + length) / 6.0) ** length_penalty)


@dataclass
class _Finished:
    """The best hypotheses of each sentence so far, best first; a score of -inf is an empty place."""

    ids: Int[Tensor, "B N T"]
    length: Int[Tensor, "B N"]
    log_prob: Float[Tensor, "B N"]
    score: Float[Tensor, "B N"]
    at_end: Tensor  # (B, N) bool, see Hypothesis.finished

    @classmethod
    def empty(cls, num_sentences: int, n_best: int, max_length: int, device: torch.device) -> _Finished:
        shape = (num_sentences, n_best)
        worst = torch.full(shape, -torch.inf, device=device)
        length = torch.zeros(shape, dtype=torch.int64, device=device)
        ids = torch.zeros((*shape, max_length), dtype=torch.int64, device=device)
        return cls(ids, length, worst, worst.clone(), torch.zeros(shape, dtype=torch.bool, device=device))

    def add(self, ids: Tensor, log_prob: Tensor, divisor: float, length: int, at_end: Tensor) -> None:
        """Merge candidates of one length: ids (B,W,T), log_prob and at_end (B,W). Of equals the older stays ahead."""
        n_best = self.score.shape[1]
        score, order = torch.cat([self.score, log_prob / divisor], dim=1).sort(dim=1, descending=True, stable=True)
        order = order[:, :n_best]
        self.score = score[:, :n_best]
        self.log_prob = torch.cat([self.log_prob, log_prob], dim=1).gather(1, order)
        lengths = torch.full(log_prob.shape, length, device=order.device)
        self.length = torch.cat([self.length, lengths], dim=1).gather(1, order)
        self.at_end = torch.cat([self.at_end, at_end], dim=1).gather(1, order)
        self.ids = torch.cat([self.ids, ids], dim=1).gather(1, order.unsqueeze(2).expand(-1, -1, ids.shape[2]))

    def keep(self, sentences: Tensor) -> None:
        self.ids, self.length, self.log_prob = self.ids[sentences], self.length[sentences], self.log_prob[sentences]
        self.score, self.at_end = self.score[sentences], self.at_end[sentences]

    def hypotheses(self, sentences: Tensor) -> list[list[Hypothesis]]:
        """The hypotheses of some of the sentences, best first, empty places left out."""
        columns = (self.ids, self.length, self.log_prob, self.score, self.at_end)
        found = zip(*(column[sentences].tolist() for column in columns), strict=True)
        return [
            [
                Hypothesis(ids[:length], log_prob, score, at_end)
                for ids, length, log_prob, score, at_end in zip(*sentence, strict=True)
                if score != -torch.inf
            ]
            for sentence in found
        ]


def beam_search(
    step: Step,
    start_ids: Int[Tensor, " B"],
    max_lengths: Int[Tensor, " B"],
    banned: Sequence[int],
    eos_id: int,
    beam_size: int,
    length_penalty: float,
    form: PenaltyForm = "length",
    n_best: int = 1,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, at most `n_best`, best first, no two with the same ids.

    `max_lengths` counts ids without EOS. `banned` ids are never produced; they keep their share of the probability.
    At each step EOS is tried on all W live prefixes, and the W best of the other continuations stay alive, so finished
    hypotheses take no place in the beam. A sentence ends when its best live prefix cannot beat the worst of its kept
    `n_best`, whatever follows: log-probs only fall, so the bound is the log-prob over the largest penalty still in
    reach. Hence the best of `n_best=1` is the first of `n_best=5`. Fewer than `n_best` come back only if no
    more were found.

    Raises NumericsError when the logits of a row are NaN or infinite.
    """
    assert 1 <= n_best <= beam_size, f"n_best {n_best} must be between 1 and beam_size {beam_size}"
    device = start_ids.device
    num_sentences = start_ids.shape[0]
    results: list[list[Hypothesis]] = [[] for _ in range(num_sentences)]
    if num_sentences == 0:
        return results
    blocked, max_length = _blocked(banned, eos_id, device), int(max_lengths.max())
    finished = _Finished.empty(num_sentences, n_best, max_length, device)
    origin = torch.arange(num_sentences, device=device)  # place in the caller's order of each sentence still here
    last_penalty = torch.tensor([penalty(n + 1, length_penalty, form) for n in max_lengths.tolist()], device=device)
    live_BW = torch.zeros((num_sentences, 1), device=device)
    ids_BWT = torch.zeros((num_sentences, 1, max_length), dtype=torch.int64, device=device)
    next_ids = start_ids

    for length in range(max_length + 1):  # of the live prefixes
        num_left, width = live_BW.shape
        top_log_probs, top_ids, eos_log_prob, is_eos_best = _best(step(next_ids), beam_size, eos_id, blocked, length)

        ended_BW = live_BW + eos_log_prob.view(num_left, width)
        at_limit = (max_lengths == length).unsqueeze(1)
        wants_end = is_eos_best.view(num_left, width)
        divisor = penalty(length + 1, length_penalty, form)
        finished.add(ids_BWT, ended_BW, divisor, length, ~at_limit | wants_end)

        candidates = (live_BW.view(-1, 1) + top_log_probs).view(num_left, -1).masked_fill(at_limit, -torch.inf)
        if candidates.shape[1] < beam_size:  # fewer continuations than places: the others stay empty
            candidates = pad(candidates, (0, beam_size - candidates.shape[1]), value=-torch.inf)
        # A stable sort: of equals, the one from the better prefix comes first. topk promises no order.
        live_BW, order = candidates.sort(dim=1, descending=True, stable=True)
        live_BW, order = live_BW[:, :beam_size], order[:, :beam_size]
        order = order.clamp(max=width * top_ids.shape[1] - 1)
        parent_BW = order // top_ids.shape[1]
        chosen_BW = top_ids.view(num_left, -1).gather(1, order)

        best_penalty = last_penalty.clamp(min=penalty(length + 2, length_penalty, form))
        done = live_BW[:, 0] / best_penalty <= finished.score[:, -1]
        live_BW = live_BW.masked_fill(done.unsqueeze(1), -torch.inf)  # done ones wait, unchanged, until they leave
        num_done = int(done.sum())
        if _worth_leaving(num_done, num_left):
            done_at = done.nonzero().squeeze(1)
            for place, found in zip(origin[done_at].tolist(), finished.hypotheses(done_at), strict=True):
                results[place] = found
            if num_done == num_left:
                break
            stay = (~done).nonzero().squeeze(1)
            step.keep(stay)
            finished.keep(stay)
            origin, max_lengths, last_penalty = origin[stay], max_lengths[stay], last_penalty[stay]
            live_BW, ids_BWT, parent_BW, chosen_BW = live_BW[stay], ids_BWT[stay], parent_BW[stay], chosen_BW[stay]

        step.reorder((parent_BW + torch.arange(parent_BW.shape[0], device=device).unsqueeze(1) * width).flatten())
        ids_BWT = ids_BWT.gather(1, parent_BW.unsqueeze(2).expand(-1, -1, max_length))
        ids_BWT[:, :, length] = chosen_BW
        next_ids = chosen_BW.flatten()
    return results


def greedy(
    step: Step,
    start_ids: Int[Tensor, " B"],
    max_lengths: Int[Tensor, " B"],
    banned: Sequence[int],
    eos_id: int,
    length_penalty: float = 1.0,
    form: PenaltyForm = "length",
) -> list[Hypothesis]:
    """The likeliest id at each step until EOS or the maximum length; of equals the lowest id.

    The length penalty changes only `score`. Raises NumericsError when the logits of a row are NaN or infinite.
    """
    blocked = _blocked(banned, eos_id, start_ids.device)

    def choose(logits: Iterable[Tensor], length: int) -> tuple[Tensor, Tensor, Tensor]:
        log_prob, ids, eos_log_prob, is_eos_best = _best(logits, 1, eos_id, blocked, length)
        chosen = torch.where(is_eos_best, eos_id, ids[:, 0])
        return chosen, torch.where(is_eos_best, eos_log_prob, log_prob[:, 0]), eos_log_prob

    return _one_each(step, start_ids, max_lengths, eos_id, choose, length_penalty, form)


def sample(
    step: Step,
    start_ids: Int[Tensor, " B"],
    max_lengths: Int[Tensor, " B"],
    banned: Sequence[int],
    eos_id: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    length_penalty: float = 1.0,
    form: PenaltyForm = "length",
) -> list[Hypothesis]:
    """One hypothesis for each sentence, drawn id by id from softmax(logits / temperature).

    `top_k` draws from the k likeliest ids only; `top_p` from the smallest set of likeliest ids that holds at least that
    share of the probability (Holtzman et al. 2020); both: first k, then p of what is left. `log_prob` is that of the
    step function itself, without temperature. Draws are shared by the batch: another batch gives other draws.
    Raises NumericsError when the logits of a row are NaN or infinite.
    """
    assert temperature > 0, f"temperature {temperature} must be above 0"
    assert top_k is None or top_k >= 1, f"top_k {top_k} must be at least 1"
    assert top_p is None or 0 < top_p <= 1, f"top_p {top_p} must be in (0, 1]"

    blocked = _blocked(banned, eos_id, start_ids.device)[1:]

    def draw(logits: Tensor) -> Tensor:
        num_kept = logits.shape[1] if top_k is None else min(top_k, logits.shape[1])
        if top_p is None and top_k is None:
            return torch.multinomial((logits / temperature).softmax(1), 1, generator=generator)
        kept, ids = (logits / temperature).topk(num_kept, dim=1)
        probs = kept.softmax(1)
        if top_p is not None:
            before = probs.cumsum(1) - probs  # what the likelier ids hold without this one; 0 for the first
            probs = probs.masked_fill(before >= top_p, 0.0)
        return ids.gather(1, torch.multinomial(probs, 1, generator=generator))

    def choose(blocks: Iterable[Tensor], length: int) -> tuple[Tensor, Tensor, Tensor]:
        logits = torch.cat([block.float() for block in blocks])
        total = logits.logsumexp(1, keepdim=True)
        _check(total, length)
        chosen = draw(logits.index_fill(1, blocked, -torch.inf))
        return chosen[:, 0], (logits.gather(1, chosen) - total)[:, 0], (logits[:, eos_id, None] - total)[:, 0]

    return _one_each(step, start_ids, max_lengths, eos_id, choose, length_penalty, form)


def _one_each(
    step: Step,
    start_ids: Int[Tensor, " B"],
    max_lengths: Int[Tensor, " B"],
    eos_id: int,
    choose: Callable[[Iterable[Tensor], int], tuple[Tensor, Tensor, Tensor]],
    length_penalty: float,
    form: PenaltyForm,
) -> list[Hypothesis]:
    """One row for each sentence; `choose` picks its next id from logits and gives the log-prob of that id and EOS's."""
    device = start_ids.device
    num_sentences = start_ids.shape[0]
    results: list[Hypothesis] = [Hypothesis([], 0.0, 0.0, False)] * num_sentences
    if num_sentences == 0:
        return results
    max_length = int(max_lengths.max())
    ids_BT = torch.zeros((num_sentences, max_length), dtype=torch.int64, device=device)
    log_prob = torch.zeros(num_sentences, device=device)
    lengths = torch.full((num_sentences,), -1, dtype=torch.int64, device=device)  # -1: goes on
    at_end = torch.zeros(num_sentences, dtype=torch.bool, device=device)
    origin = torch.arange(num_sentences, device=device)
    next_ids = start_ids

    for length in range(max_length + 1):
        chosen, gain, eos_gain = choose(step(next_ids), length)
        running = lengths < 0
        ended = running & ((chosen == eos_id) | (max_lengths == length))
        at_end = at_end | (ended & (chosen == eos_id))
        chosen = chosen.masked_fill(ended, eos_id)
        log_prob = log_prob + torch.where(ended, eos_gain, gain).clamp(max=0).masked_fill(~running, 0.0)
        lengths = lengths.masked_fill(ended, length)
        if length < max_length:
            ids_BT[:, length] = chosen
        next_ids = chosen

        done = lengths >= 0
        num_done = int(done.sum())
        if _worth_leaving(num_done, done.shape[0]):
            done_at = done.nonzero().squeeze(1)
            columns = (origin, ids_BT, lengths, log_prob, at_end)
            for place, ids, n, total_log_prob, ended_well in zip(*(c[done_at].tolist() for c in columns), strict=True):
                score = total_log_prob / penalty(n + 1, length_penalty, form)
                results[place] = Hypothesis(ids[:n], total_log_prob, score, ended_well)
            if num_done == done.shape[0]:
                break
            stay = (~done).nonzero().squeeze(1)
            step.keep(stay)
            origin, max_lengths, lengths, at_end = origin[stay], max_lengths[stay], lengths[stay], at_end[stay]
            ids_BT, log_prob, next_ids = ids_BT[stay], log_prob[stay], next_ids[stay]
    return results


def _blocked(banned: Sequence[int], eos_id: int, device: torch.device) -> Int[Tensor, " N"]:
    """EOS, then the banned ids: what may not continue a prefix."""
    assert eos_id not in banned, "EOS must not be banned: no hypothesis could end"
    return torch.tensor([eos_id, *banned], dtype=torch.int64, device=device)


def _best(
    blocks: Iterable[Tensor], k: int, eos_id: int, blocked: Int[Tensor, " N"], length: int
) -> tuple[Float[Tensor, "R k"], Int[Tensor, "R k"], Float[Tensor, " R"], Tensor]:
    """Log-probs and ids of the k likeliest ids that are not blocked, best first; EOS's log-prob; whether EOS is best.

    Everything of size V happens inside one block of rows, while it is in the processor's caches.
    """
    parts = []
    for raw in blocks:
        logits = raw.float()
        probs = logits.softmax(1)
        eos_logit = logits[:, eos_id].clone()
        kept = logits[:, blocked]
        logits[:, blocked] = -torch.inf
        top_logits, top_ids = _top(logits, min(k, logits.shape[1]))
        # The likeliest id's probability gives the logsumexp exactly, unless it is next to nothing beside a blocked one.
        total = top_logits[:, :1] - probs.gather(1, top_ids[:, :1]).log()
        if not bool(total.isfinite().all()):
            logits[:, blocked] = kept
            total = logits.logsumexp(1, keepdim=True)
            _check(total, length)
        # Rounding may put a log-prob just above 0; the stop rule of the beam needs them to fall.
        parts.append(
            (
                (top_logits - total).clamp(max=0),
                top_ids,
                (eos_logit - total[:, 0]).clamp(max=0),
                (eos_logit > top_logits[:, 0]) | ((eos_logit == top_logits[:, 0]) & (eos_id < top_ids[:, 0])),
            )
        )
    log_probs, ids, eos_log_prob, is_eos_best = (torch.cat(part) for part in zip(*parts, strict=True))
    return log_probs, ids, eos_log_prob, is_eos_best


def _top(logits: Float[Tensor, "n V"], k: int) -> tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]]:
    """The k largest of each row, largest first. Of equals, with k = 1, the lowest id.

    On a CPU torch's topk takes as long as a product of matrices. The k largest lie in the k groups with the largest
    maxima, and maxima are cheap.
    """
    n, V = logits.shape
    if k == 1 and (V % GROUP or logits.device.type != "cpu"):
        values, ids = logits.max(dim=1, keepdim=True)
        return values, ids
    if V % GROUP or k > V // GROUP or logits.device.type != "cpu":
        values, ids = logits.topk(k, dim=1)
        return values, ids
    groups = logits.view(n, V // GROUP, GROUP)
    best = _top_of(groups.amax(2), k).sort(dim=1).values
    candidates = groups.gather(1, best.unsqueeze(2).expand(-1, -1, GROUP)).flatten(1)
    places = _top_of(candidates, k)
    return candidates.gather(1, places), best.gather(1, places // GROUP) * GROUP + places % GROUP


def _top_of(values: Float[Tensor, "n m"], k: int) -> Int[Tensor, "n k"]:
    return values.max(dim=1, keepdim=True).indices if k == 1 else values.topk(k, dim=1).indices


def _check(total: Float[Tensor, "R 1"], length: int) -> None:
    """NumericsError unless the logsumexp of every row is finite."""
    is_finite = total.isfinite()
    if not bool(is_finite.all()):
        raise NumericsError(
            f"the model's logits are NaN or infinite at position {length} of the translation, in "
            f"{int((~is_finite).sum())} of {len(total)} rows. The weights are damaged or the precision is too low: use "
            "another checkpoint."
        )


def _worth_leaving(num_done: int, num_left: int) -> bool:
    """Whether the finished sentences leave the batch now: `Step.keep` copies its cache, so not for each one singly."""
    return num_done > 0 and num_done * 4 >= num_left
