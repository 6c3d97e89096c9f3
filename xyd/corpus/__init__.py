"""From corpora to the prepared splits: read, clean, split, train the tokenizer, encode, write Arrow and the manifest.

Two passes with bounded memory. Pass 1 (`pairs`) streams the pairs, drops the unfit and keeps the rest in a temporary
Arrow file; in memory stay only numbers (32 bytes a pair). Repeats, overlap and splits are decided on these (`fate`).
Pass 2 (`rows`) streams the file, encodes, and writes `data/{train,valid,test}.arrow` in Arrow's stream format, which
`datasets.Dataset.from_file` opens memory-mapped too. `manifest.json` is written last: without it nothing counts as
prepared. `inputs` makes the fingerprint by which prepared data is found again, `summary` the table that people read.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xyd.allocator import no_search_for_cycles
from xyd.augment import Augmenter
from xyd.config import Config, FilesSplit, SplitConfig, directions, used_directions
from xyd.corpus.augmented import Augmented
from xyd.corpus.explain import explain as explain_place
from xyd.corpus.fate import (
    REASONS,
    SPLITS,
    TOO_MANY_TOKENS,
    Fate,
    decide,
    hold_reserve,
    rule,
    time_facts,
    tokenizer_texts,
    use_reserve,
)
from xyd.corpus.inputs import content_order, fingerprint, input_hashes, is_prepared, prepared_order, tokenizer_path
from xyd.corpus.pairs import CorpusCount, Pairs, read_corpora, read_held_out, sorted_pair
from xyd.corpus.rows import PreparedSplit, RowWriter
from xyd.corpus.summary import corpus_entry, corpus_lines, input_entries, table
from xyd.errors import DataError
from xyd.files import RunDir, atomic_write, sha256_file
from xyd.formats import ReadReport
from xyd.health.table import table as health_table
from xyd.sampling import Mixture
from xyd.splitting import KINDS, TRAIN
from xyd.text import RULES_VERSION, Tally
from xyd.tokenizer import Tokenizer, train_tokenizer

__all__ = [
    "PreparedSplit",
    "explain",
    "fingerprint",
    "input_hashes",
    "is_prepared",
    "mixture",
    "open_split",
    "prepare",
    "sorted_pair",
]

Say = Callable[[str], None]

ORDER = "order.json"
"""Beside the prepared data: positions in `data.corpora` of the corpora that the manifest and the rows count from 0."""


def open_split(run: RunDir, name: str) -> PreparedSplit:
    """A prepared split, "train", "valid" or "test", memory-mapped. Raises DataError if the run has none."""
    manifest = _manifest(run)
    if name not in manifest["files"]:
        raise DataError(f"{run.root}: the run has no {name} split; set data.{name} in the config")
    return PreparedSplit(run.data_dir / f"{name}.arrow", manifest["directions"])


def explain(config: Config, run: RunDir, place: str) -> str:
    """What became of the pairs at `place` (`train.en:17`, or only the number) in the prepared data of `run`."""
    splits = {name: open_split(run, name) for name in _manifest(run)["files"]}
    return explain_place(config, run, place, splits, _order(run))


def _keep_order(run: RunDir, order: list[int]) -> None:
    path, text = run.data_dir / ORDER, json.dumps(order)
    if not path.is_file() or path.read_bytes() != text.encode():
        atomic_write(path, text)


def _order(run: RunDir) -> list[int]:
    try:
        order: list[int] = json.loads((run.data_dir / ORDER).read_text(encoding="utf-8"))
        if sorted(order) == list(range(len(order))):
            return order
    except (OSError, ValueError, TypeError):  # gone or damaged
        pass
    raise DataError(f"{run.data_dir / ORDER}: missing or damaged; run `xyd prepare CONFIG`, which writes it again")


def mixture(config: Config, run: RunDir, split: PreparedSplit, is_current: bool = True) -> Mixture:
    """How often each row of the train split is seen, from the weights, caps and temperature of `config`.

    `is_current`: `prepare` has seen this config last; another may list the corpora in another order.
    Raises DataError where an epoch would show none.
    """
    order = _order(run) if is_current else prepared_order(config, run)
    corpora = [config.data.corpora[position] for position in order]
    weights, caps = [corpus.weight for corpus in corpora], [corpus.cap for corpus in corpora]
    found = Mixture(split.direction, split.corpus, weights, caps, config.data.temperature, config.run.seed)
    if not any(cell.quota for cell in found.cells):
        told = ", ".join(f"{corpus.weight:g}" for corpus in config.data.corpora)
        raise DataError(
            f"data.corpora: with weights of {told} an epoch shows none of the {len(split):,} rows of train; raise one"
        )
    return found


def _manifest(run: RunDir) -> dict[str, Any]:
    """The manifest. Raises DataError if there is none, or if the files beside it are not those it tells of."""
    try:
        manifest: dict[str, Any] = json.loads(run.manifest_path.read_text(encoding="utf-8"))
        sizes, tokenizer = manifest["files"], manifest["tokenizer"]["sha256"]
    except FileNotFoundError as error:
        raise DataError(f"{run.root}: the data is not prepared; run `xyd prepare CONFIG`") from error
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise DataError(f"{run.manifest_path}: damaged; run `xyd prepare CONFIG` again") from error
    for name, size in sizes.items():
        path = run.data_dir / f"{name}.arrow"
        if not path.is_file() or path.stat().st_size != size:
            raise DataError(f"{path}: missing or not whole; run `xyd prepare CONFIG` again")
    if not run.tokenizer_path.is_file() or sha256_file(run.tokenizer_path) != tokenizer:
        raise DataError(
            f"{run.tokenizer_path}: missing, or not the tokenizer that {run.manifest_path} tells of; "
            "run `xyd prepare CONFIG` again"
        )
    return manifest


def prepare(
    config: Config, run: RunDir, say: Say, tokenizer_from: Path | None = None, strict: bool = False
) -> dict[str, Any]:
    """Prepare the data of a run; returns the manifest. At once if it is prepared already from the same content.

    Args:
        tokenizer_from: a run directory or a model file to take the tokenizer from instead of training one.
        strict: refuse corpora that overlap with the user's own valid and test files, not just leave the overlap out.

    Raises DataError for corpora that cannot be used; until they are read and split, earlier data stays as it is.
    """
    hashes = input_hashes(config, run)
    current = fingerprint(config, tokenizer_from, hashes)
    order = content_order(config, hashes)
    if run.manifest_path.exists():
        try:
            manifest = _manifest(run)
        except DataError as error:
            say(f"data: prepared anew: {error}")
        else:
            if manifest.get("fingerprint") == current:
                if strict:
                    _refuse_overlap(manifest["overlap"], manifest["corpora"])
                gone = [path for path in hashes if not Path(path).exists()]
                missed = f"; no longer there: {', '.join(gone)}" if gone else ""
                say(f"data: already prepared from the same inputs and settings ({run.data_dir}){missed}")
                _keep_order(run, order)  # the config may name them in another order now
                return manifest
            say("data: prepared anew: inputs or settings have changed")
    run.data_dir.mkdir(parents=True, exist_ok=True)
    for remains in run.data_dir.glob(".*.part"):  # of a killed preparation
        remains.unlink()
    work = run.data_dir / ".reading"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        corpora = [config.data.corpora[position] for position in order]
        ordered = config.model_copy(update={"data": config.data.model_copy(update={"corpora": corpora})})
        with no_search_for_cycles():
            manifest = _prepare(ordered, run, say, tokenizer_from, strict, current, hashes, work)
        _keep_order(run, order)
        return manifest
    except MemoryError as error:
        raise DataError("data: too little memory to prepare it; free some, or give fewer pairs") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _prepare(
    config: Config,
    run: RunDir,
    say: Say,
    tokenizer_from: Path | None,
    strict: bool,
    current: str,
    hashes: dict[str, str | None],
    work: Path,
) -> dict[str, Any]:
    wanted = directions(config)
    language_pairs = sorted({sorted_pair(*direction) for direction in wanted})
    seed, max_ids = config.run.seed, config.model.max_length - 1
    report = ReadReport()
    pairs = Pairs(work / "corpora.arrow", language_pairs, config.data.split)
    counts = read_corpora(config, pairs, report)
    held_out: dict[str, Pairs] = {}
    left_out: dict[str, Tally] = {}
    own_keys = SplitConfig(fold_digits=config.data.split.fold_digits)
    for name, split in (("valid", config.data.valid), ("test", config.data.test)):
        if isinstance(split, FilesSplit):
            held_out[name] = Pairs(work / f"{name}.arrow", language_pairs, own_keys)
            left_out[name] = read_held_out(config, split, held_out[name], report)

    decision = decide(config.data, pairs, held_out, seed)
    fate = decision.fate
    for numbers, batch in pairs.batches(fate < TRAIN):
        for number, origin in zip(numbers, batch.column("origin").to_pylist(), strict=True):
            counts[pairs.corpus[number]].dropped.add(REASONS[int(fate[number])], origin)
    if strict:
        _refuse_overlap(decision.overlap, [corpus_entry(count) for count in counts])
    hold_reserve(pairs, decision, seed, max_ids)
    _balance(pairs, fate, counts)
    health = [count.health.finish() for count in counts]
    seen = [{"path": path, **found} for path, found in report.as_dict().items()]
    say(health_table(health, seen))
    atomic_write(run.health_path, json.dumps({"corpora": health, "files": seen}, ensure_ascii=False, indent=1) + "\n")

    run.manifest_path.unlink(missing_ok=True)  # from here on the files beside it change
    targets = sorted({tgt for _, tgt in wanted})
    if tokenizer_from is not None:
        tokenizer = _taken_tokenizer(tokenizer_path(tokenizer_from), targets, run)
    else:
        texts = tokenizer_texts(pairs, fate == TRAIN, config.tokenizer.sample_size, seed)
        if len(texts) == config.tokenizer.sample_size:
            sides = 2 * int((fate == TRAIN).sum())
            say(f"tokenizer: trained on {len(texts):,} texts of the {sides:,} in train (tokenizer.sample_size)")
        tokenizer = train_tokenizer(texts, config.tokenizer, targets, run.tokenizer_path, seed, say)

    def drop(number: int, origin: str) -> None:
        fate[number] = TOO_MANY_TOKENS
        counts[pairs.corpus[number]].dropped.add(REASONS[TOO_MANY_TOKENS], origin)

    rows = RowWriter(tokenizer, wanted, max_ids, [used_directions(config, corpus) for corpus in config.data.corpora])
    rows.drop_too_long(pairs, fate > TRAIN, drop)
    use_reserve(pairs, decision, seed)
    held_out_keys = [side[fate > TRAIN] for side in (pairs.keys.a, pairs.keys.b)]
    held_out_keys += [side for own in held_out.values() for side in (own.keys.a, own.keys.b)]
    augmented = Augmented(Augmenter(config.augment, seed), tokenizer, max_ids, np.concatenate(held_out_keys))
    split_rows: dict[str, Any] = {"rule": rule(config.data.split), "seed": seed}
    over_length: dict[str, Any] = {}
    files: dict[str, int] = {}
    for name, number in SPLITS.items():
        path = run.data_dir / f"{name}.arrow"
        if name in held_out:
            own = held_out[name]
            first_id = len(pairs) + (len(held_out["valid"]) if name == "test" and "valid" in held_out else 0)
            everything = np.ones(len(own), bool)
            split_rows[name], over_length[name] = rows.write(path, own, everything, first_id, with_text=True, drop=None)
        elif name == "train":
            split_rows[name], _ = rows.write(path, pairs, fate == TRAIN, 0, False, drop, augmented)
        elif name in decision.quotas or (name == "test" and config.data.has_test):
            split_rows[name], _ = rows.write(path, pairs, fate == number, 0, with_text=True, drop=drop)
        else:
            path.unlink(missing_ok=True)
            continue
        files[name] = path.stat().st_size
    _balance(pairs, fate, counts)
    if pairs.times is not None:
        decision.facts["time"] = time_facts(pairs, fate)

    manifest = {
        "fingerprint": current,
        "rules_version": RULES_VERSION,
        "languages": sorted({lang for pair in language_pairs for lang in pair}),
        "directions": ["-".join(direction) for direction in wanted],
        "inputs": input_entries(hashes, report),
        "corpora": [corpus_entry(count) for count in counts],
        "split": split_rows,
        "left_out": {name: tally.as_dict() for name, tally in left_out.items()},
        "augmented": dict(augmented.rows),
        "augmented_left_out": dict(augmented.left_out),
        "groups": decision.facts,
        "overlap": decision.overlap,
        "over_length": over_length,
        "tokenizer": {
            "sha256": tokenizer.sha256,
            "vocab_size": tokenizer.vocab_size,
            "requested_vocab_size": config.tokenizer.vocab_size,
            "type": config.tokenizer.type,
        },
        "files": files,
    }
    asked = {
        name: {"-".join(pairs.language_pairs[lp]): size for lp, size in quota.items()}
        for name, quota in decision.quotas.items()
    }
    say(table(manifest, asked))
    atomic_write(run.manifest_path, json.dumps(manifest, ensure_ascii=False, indent=1) + "\n")
    return manifest


def _refuse_overlap(overlap: Mapping[str, Any], corpora: Sequence[Mapping[str, Any]]) -> None:
    """What --strict does: DataError with the counts and first places, if any pair of train is in valid or test."""
    kinds = [kind for kind in KINDS if overlap.get(kind)]
    between = {kind: count for kind, count in overlap.get("valid_in_test", {}).items() if count}
    if not kinds and not between:
        return
    lines = ["--strict: the corpora overlap with your own valid and test files"] if kinds else []
    for kind in kinds:
        found = [entry["dropped"].get(f"overlap_{kind}", {"first": []}) for entry in corpora]
        places = [place for dropped in found for place in dropped["first"]]
        more = ", …" if overlap[kind] > len(places[:10]) else ""
        count = f"{overlap[kind]:,} {'pair' if overlap[kind] == 1 else 'pairs'}"
        lines.append(f"  {kind.replace('_', ' ')}: {count}: {', '.join(places[:10])}{more}")
    if between:
        counts = ", ".join(f"{kind.replace('_', ' ')} {count:,}" for kind, count in between.items())
        lines.append(f"--strict: your valid files overlap with your test files: {counts}")
    lines.append(
        "take these pairs out, or leave out --strict: what is in train only is then removed from it and counted"
    )
    raise DataError("\n".join(lines))


def _taken_tokenizer(path: Path, targets: list[str], run: RunDir) -> Tokenizer:
    tokenizer = Tokenizer.load(path)
    missing = [lang for lang in targets if lang not in tokenizer.languages]
    if missing:
        raise DataError(
            f"{path}: the tokenizer has no tag for {', '.join(missing)} (it has {', '.join(tokenizer.languages)}); "
            "train a new one, or leave out these target languages"
        )
    if path.resolve() != run.tokenizer_path.resolve():
        atomic_write(run.tokenizer_path, path.read_bytes())
    return tokenizer


def _balance(pairs: Pairs, fate: Fate, counts: list[CorpusCount]) -> None:
    """Every pair read was kept or dropped, once; DataError if none is left to train on."""
    kept = np.bincount(pairs.corpus[fate >= TRAIN], minlength=len(counts))
    for count, number in zip(counts, kept.tolist(), strict=True):
        count.kept = number
        assert count.read == count.kept + count.dropped.total(), f"{count.name}: pairs were lost or counted twice"
    if not (fate == TRAIN).any():
        lines = corpus_lines([corpus_entry(count) for count in counts])
        raise DataError("no pair is left to train on; give more data or drop less:\n" + "\n".join(lines))
