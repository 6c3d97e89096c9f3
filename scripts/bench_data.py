"""How fast the data engine is and how much memory it takes, on a synthetic corpus, beside the loop a newcomer writes.

    python scripts/bench_data.py                  1, 3 and 10 million pairs
    python scripts/bench_data.py --pairs 200000   a short look

Read + clean + health report + split + tokenise + write, near-duplicates and augmentation off; SentencePiece is trained
before and timed apart. The loop does the same by the same rules, line by line, one `encode` a side, in one process; it
writes no health report, no origins and no manifest. Last line of stdout: JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from xyd import config as configuration
from xyd import corpus
from xyd.batching import make_batch, plan_epoch, start_ids
from xyd.cleaning import Cleaner
from xyd.config import Config
from xyd.files import RunDir
from xyd.text import faults, fold, normalise
from xyd.tokenizer import Tokenizer

WORDS, MEAN_WORDS, REPEATS = 60_000, 14, 0.05
MAX_TOKENS = 4096
BASE_MICRO_BATCHES = 0.5  # a second, of the 51.7 M model on two cores (docs/performance.md)


# ── corpus ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _vocabulary(rng: random.Random, syllables: list[str], accents: str) -> list[str]:
    words: dict[str, None] = {}
    while len(words) < WORDS:
        word = "".join(rng.choices(syllables, k=rng.choice((1, 2, 2, 3, 3, 4))))
        words[word[:-1] + rng.choice(accents) if accents and rng.random() < 0.15 else word] = None
    return list(words)


def write_corpus(folder: Path, pairs: int, seed: int) -> dict[str, Path]:
    """Zipf-distributed made-up words in two languages; some repeats, digits, double spaces and empty lines."""
    rng, draw = random.Random(seed), np.random.default_rng(seed)
    syllables = [c + v for c in "bcdfghjklmnprstvwz" for v in ("a", "e", "i", "o", "u", "ou", "en", "er")]
    languages = {"en": _vocabulary(rng, syllables, ""), "fr": _vocabulary(rng, syllables[::-1], "éèàçêô")}
    paths = {lang: folder / f"{pairs}.{lang}" for lang in languages}
    files = {lang: path.open("w", encoding="utf-8", newline="\n") for lang, path in paths.items()}
    for start in range(0, pairs, 100_000):
        size = min(100_000, pairs - start)
        lengths = np.maximum(1, draw.poisson(MEAN_WORDS, size))
        ranks = np.minimum(draw.zipf(1.15, int(lengths.sum())), WORDS) - 1
        ends = np.cumsum(lengths)
        rows: dict[str, list[str]] = {}
        for lang, words in languages.items():
            flat = [words[rank] for rank in ranks.tolist()]
            rows[lang] = [
                " ".join(flat[end - n : end]).capitalize() + "."
                for end, n in zip(ends.tolist(), lengths.tolist(), strict=True)
            ]
        for i in range(0, size, 37):
            rows["en"][i] = rows["en"][i].replace(" ", "  ", 1)
            rows["fr"][i] += f" {i}"
            rows["en"][i] += f" {i}"
        for i in np.flatnonzero(draw.random(size) < REPEATS).tolist():
            for lang in rows:
                rows[lang][i] = rows[lang][i // 2]
        for i in range(11, size, 997):
            rows["fr"][i] = ""
        for lang, file in files.items():
            file.write("\n".join(rows[lang]) + "\n")
    for file in files.values():
        file.close()
    return paths


# ── measuring ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _tree(int(child))
    except OSError:  # gone meanwhile
        return


def _held(pid: int) -> int:
    """Bytes a process holds; pages it shares are divided among all that hold them (PSS of what is not in files)."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}
    return 1024 * (kilobytes.get("Pss_Anon", 0) + kilobytes.get("Pss_Shmem", 0))


def apart(work: Callable[..., Any], *args: Any) -> tuple[Any, float, float]:
    """(result, seconds, peak GB of all its processes) of `work` in a process of its own."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(sender, work, args))
    process.start()
    sender.close()
    peak, over = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.3):
            peak = max(peak, sum(map(_held, _tree(process.pid or 0))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        result, seconds = receiver.recv()
    finally:
        over.set()
        watcher.join()
        process.join()
    return result, seconds, peak / 1e9


def _run(sender: Any, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    began = time.perf_counter()
    result = work(*args)
    sender.send((result, time.perf_counter() - began))


# ── work ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def make_config(folder: Path, paths: dict[str, Path], name: str) -> Config:
    tree = {
        "run": {"name": name, "dir": str(folder / "runs")},
        "data": {
            "corpora": [{"files": {lang: str(path) for lang, path in paths.items()}}],
            "directions": ["en-fr"],
            "valid": 2000,
            "test": 2000,
        },
        "augment": {"scale": 0},
        "tokenizer": {"vocab_size": 32000, "sample_size": 200_000},
        "model": {"max_length": 128},
    }
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(tree), encoding="utf-8")  # JSON is YAML
    return configuration.load(path)


def prepare(config: Config, tokenizer: Path | None) -> dict[str, Any]:
    run = RunDir(Path(config.run.dir) / config.run.name)
    return corpus.prepare(config, run, lambda _text: None, tokenizer)


def loop(config: Config, tokenizer: Path) -> int:
    """What a newcomer writes by the same rules: normalise, filter, drop repeats, keep together what shares a folded
    side, split off valid and test, encode; a line at a time, with dicts."""
    files = config.data.corpora[0].files
    assert files is not None
    pieces, cleaner = Tokenizer.load(tokenizer), Cleaner(config.data.corpora[0].filters)
    dropped: Counter[str] = Counter()
    changed: Counter[str] = Counter()
    parent: dict[tuple[str, str], tuple[str, str]] = {}

    def find(key: tuple[str, str]) -> tuple[str, str]:
        while (above := parent.setdefault(key, key)) != key:
            parent[key] = parent[above]
            key = above
        return key

    pairs: dict[tuple[str, str], tuple[str, str]] = {}
    with (
        open(files["en"], encoding="utf-8", newline="\n") as src_file,
        open(files["fr"], encoding="utf-8", newline="\n") as tgt_file,
    ):
        for src_line, tgt_line in zip(src_file, tgt_file, strict=True):
            src_raw, tgt_raw = src_line.rstrip("\n"), tgt_line.rstrip("\n")
            src, tgt = normalise(src_raw), normalise(tgt_raw)
            if src != src_raw or tgt != tgt_raw:
                changed.update({*faults(src_raw), *faults(tgt_raw)})
            reason = cleaner.reason(src, tgt) or ("repeat" if (src, tgt) in pairs else None)
            if reason is not None:
                dropped[reason] += 1
                continue
            one, other = find(("en", fold(src))), find(("fr", fold(tgt)))
            parent[one] = other
            pairs[src, tgt] = other
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for pair, key in pairs.items():
        groups.setdefault(find(key), []).append(pair)
    order = [group for group in groups.values() if len(group) <= 20]
    random.Random(config.run.seed).shuffle(order)
    held_out: dict[tuple[str, str], int] = {}
    for group in order:
        if len(held_out) >= 4000:
            break
        held_out.update(dict.fromkeys(group, len(held_out) // 2000))
    room, rows = config.model.max_length - 1, 0
    schema = pa.schema([("src", pa.list_(pa.int32())), ("tgt", pa.list_(pa.int32()))])
    target = Path(config.run.dir) / "loop.arrow"
    target.parent.mkdir(exist_ok=True)
    with pa.ipc.new_stream(str(target), schema) as writer:
        waiting: list[list[list[int]]] = [[], []]
        for pair in pairs:
            ids = [pieces.encode(text) for text in pair]
            if pair in held_out or max(map(len, ids)) > room:
                continue
            rows += 1
            for side, own in zip(waiting, ids, strict=True):
                side.append(own)
            if len(waiting[0]) == 8192:
                writer.write_batch(pa.record_batch(waiting, schema=schema))
                waiting = [[], []]
        writer.write_batch(pa.record_batch(waiting, schema=schema))
    return rows


def open_and_plan(config: Config) -> int:
    """What comes before the first step, once the data is prepared: check, open, plan the epoch, first batch."""
    run = RunDir(Path(config.run.dir) / config.run.name)
    prepare(config, run.tokenizer_path)
    split, tokenizer = corpus.open_split(run, "train"), Tokenizer.load(run.tokenizer_path)
    rows = corpus.mixture(config, run, split).rows(0)
    steps = plan_epoch(
        split.src_lengths, split.tgt_lengths, rows, max_tokens=MAX_TOKENS, tokens_per_step=MAX_TOKENS, seed=1, epoch=0
    )
    make_batch(split, steps[0][0], start_ids(tokenizer, ["en-fr"]))
    return len(steps)


def batches_per_second(config: Config) -> float:
    run = RunDir(Path(config.run.dir) / config.run.name)
    split, tokenizer = corpus.open_split(run, "train"), Tokenizer.load(run.tokenizer_path)
    lengths = split.src_lengths, split.tgt_lengths
    steps = plan_epoch(*lengths, max_tokens=MAX_TOKENS, tokens_per_step=MAX_TOKENS, seed=1, epoch=0)
    starts = start_ids(tokenizer, ["en-fr"])
    some = [rows for step in steps for rows in step][:1000]
    began = time.perf_counter()
    for rows in some:
        make_batch(split, rows, starts)
    return len(some) / (time.perf_counter() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000_000, 3_000_000, 10_000_000])
    parser.add_argument("--loop-pairs", type=int, default=1_000_000, help="of the comparison with the loop")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path, help="where the files go (default: a temporary folder, removed)")
    options = parser.parse_args()
    folder = options.dir or Path(tempfile.mkdtemp(prefix="xyd-bench-data-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        print(json.dumps(bench(folder, options.pairs, options.loop_pairs, options.rounds)))
    finally:
        if options.dir is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def bench(folder: Path, sizes: list[int], loop_pairs: int, rounds: int) -> dict[str, Any]:
    small = write_corpus(folder, loop_pairs, seed=0)
    first = make_config(folder, small, "tokenizer")
    _, seconds, peak = apart(prepare, first, None)
    tokenizer = RunDir(Path(first.run.dir) / first.run.name).tokenizer_path
    _say(f"tokenizer and {loop_pairs:,} pairs: {seconds:.1f} s, {peak:.2f} GB")

    ours, theirs = [], []
    for number in range(rounds):
        config = make_config(folder, small, f"small-{number}")
        ours.append(loop_pairs / apart(prepare, config, tokenizer)[1])
        theirs.append(loop_pairs / apart(loop, config, tokenizer)[1])
        _say(f"round {number + 1}: prepare {ours[-1]:,.0f} pairs/s, loop {theirs[-1]:,.0f} pairs/s")
    ratio = statistics.median(ours) / statistics.median(theirs)

    measured: list[dict[str, float]] = []
    for pairs in sizes:
        config = make_config(folder, write_corpus(folder, pairs, seed=pairs), f"pairs-{pairs}")
        _, seconds, peak = apart(prepare, config, tokenizer)
        _, start, _ = apart(open_and_plan, config)
        speed, _, _ = apart(batches_per_second, config)
        measured.append(
            {"pairs": pairs, "pairs_per_s": pairs / seconds, "peak_gb": peak, "start_s": start, "batches_per_s": speed}
        )
        _say(
            f"{pairs:,} pairs: {seconds:.0f} s, {pairs / seconds:,.0f} pairs/s, peak {peak:.2f} GB; "
            f"training could start after {start:.1f} s; loader {speed:,.0f} batches/s"
        )
    found: dict[str, Any] = {"ratios": {"prepare_vs_loop": round(ratio, 3)}, "sizes": measured}
    last = measured[-1]
    found["ratios"]["loader_vs_base"] = round(last["batches_per_s"] / BASE_MICRO_BATCHES, 1)
    found["peak_gb_at_10m" if sizes[-1] == 10_000_000 else "peak_gb"] = round(last["peak_gb"], 3)
    if len(measured) > 1:
        more = (last["peak_gb"] - measured[0]["peak_gb"]) * 1e9 / (last["pairs"] - measured[0]["pairs"])
        found["bytes_per_further_pair"] = round(more, 1)
    return found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
