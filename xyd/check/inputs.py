"""What a run is given: its directory, its device, its corpora, room on the disk."""

import os

import torch

from xyd import checkpoint, corpus, distributed, plan
from xyd.check.findings import Findings, Skipped, Workplace
from xyd.config import Config, FilesSplit, directions
from xyd.corpus.census import Census, count_held_out, held_out, take_census
from xyd.files import file_size_limit, free_bytes
from xyd.memory import gigabytes
from xyd.model import Transformer
from xyd.resume import check_changes, run_dir

CENSUS_SECONDS = 30.0  # at most

# What helps where most pairs are dropped, by reason.
REMEDIES = {
    "empty": "see that both files hold text on the same lines",
    "too_short": "lower data.min_characters",
    "too_long": "give a sentence a line, or raise data.max_characters",
    "length_ratio": "see that line n of one file translates line n of the other, or raise data.max_length_ratio",
    "identical": "see that the two sides are two languages, or set data.drop_identical: false",
    "bad_utf8": "set data.encoding to the files' encoding",
}


class InputTrials:
    """What is there, before a model is. `census`, `device` and `is_bf16` are for the trials after these."""

    def __init__(self, config: Config, findings: Findings, place: Workplace) -> None:
        self.config, self.findings, self.place = config, findings, place
        self.tell, self.run_dir, self.directions = findings.tell, run_dir(config), directions(config)
        self.language_pairs = sorted({corpus.sorted_pair(*direction) for direction in self.directions})
        self.device, self.is_bf16 = torch.device("cpu"), False
        self.census: list[Census] = []

    def try_run_directory(self) -> None:
        root = self.run_dir.root
        remedy = "choose another run.dir, or give yourself the right to write there"
        try:
            self.place.make()
        except OSError as error:
            self.tell("failed", f"run directory {root}: cannot be written: {error.strerror}", remedy)
            self.place.make_elsewhere()
            return
        if root.exists() and not (root.is_dir() and os.access(root, os.W_OK | os.X_OK)):
            self.tell("failed", f"run directory {root}: is no folder that you may write to", remedy)
            return
        found = checkpoint.newest(self.run_dir) if root.exists() else None
        if found is not None:
            check_changes(self.config, self.run_dir, False, lambda _text: None)
        goes_on = f"a run stands there, and would go on from {found[0].name}" if found else "can be written"
        self.tell("ok", f"run directory {root}: {goes_on}")

    def try_device(self) -> None:
        t = self.config.train
        self.device = distributed.choose_device(t.device)
        self.is_bf16 = distributed.choose_dtype(t.precision, self.device) == torch.bfloat16
        torch.set_num_threads(distributed.num_threads(t.threads, 1))
        self.tell("ok", f"device {self.device}, {'bf16' if self.is_bf16 else 'fp32'}, {distributed.num_cores()} cores")

    def try_corpora(self) -> None:
        self.census = take_census(self.config, min(CENSUS_SECONDS, self.findings.left / 2))
        for entry, source in zip(self.census, self.config.data.corpora, strict=True):
            if entry.problem is not None:
                self.tell("failed", f"corpus {entry.name}: {entry.problem}")
            elif entry.is_remote:
                self.tell("skipped", f"corpus {entry.name}: on the hub: a check does not fetch it, `xyd prepare` does")
            else:
                self._judge(entry, source.filters.max_characters)

    def _judge(self, entry: Census, max_characters: int) -> None:
        """A corpus that can be read: what would become of its pairs."""
        dropped, seen = entry.dropped.as_dict(), entry.looked_at
        reasons = ", ".join(f"{name} {e['count']:,} ({', '.join(e['first'][:3])})" for name, e in dropped.items())
        extent = "all read and decoded" if entry.is_whole else "the first ones; reading all takes longer than a check"
        stay = seen - entry.dropped.total()
        told = f"corpus {entry.name}: {entry.read:,} pairs, {extent}; of {seen:,} cleaned {stay:,} stay"
        told += f", dropped: {reasons}" if reasons else ""
        if entry.kept_share < 0.5:
            self.tell("warning", f"{told}; most would be dropped", REMEDIES.get(next(iter(dropped)), ""))
        else:
            self.tell("ok", told)
        if entry.over_long.total():
            first = ", ".join(next(iter(entry.over_long.as_dict().values()))["first"][:5])
            self.tell(
                "warning",
                f"corpus {entry.name}: {entry.over_long.total():,} pairs with more than max_characters = "
                f"{max_characters} characters, the longest {entry.longest:,}: {first}; dropped",
                "split them into sentences; raising max_characters helps up to model.max_length tokens",
            )

    def try_splits(self) -> None:
        data = self.config.data
        for name, split in (("valid", data.valid), ("test", data.test)):
            if isinstance(split, FilesSplit):
                counts = count_held_out(self.config, split)
                self.tell("ok", f"{name}: " + ", ".join(f"{a}-{b} {n:,} pairs" for (a, b), n in counts.items()))
        if isinstance(data.valid, FilesSplit) and (data.test is None or isinstance(data.test, FilesSplit)):
            return
        if any(entry.problem is not None or entry.is_remote for entry in self.census):
            raise Skipped("a corpus is not known")
        for languages in self.language_pairs:
            kept = sum(entry.total(languages) * entry.kept_share for entry in self.census)
            asked = held_out(self.config, languages, kept)
            what = f"valid and test: {'-'.join(languages)}: {asked:,.0f} of about {kept:,.0f} pairs are held out"
            if asked >= kept:
                self.tell("failed", f"{what}: nothing is left to train on", "lower data.valid and data.test")
            elif asked > kept / 3:
                self.tell("warning", what, "lower data.valid and data.test: what is held out teaches nothing")
            else:
                self.tell("ok", what)

    def try_disk(self) -> None:
        """Room for everything by forecast; a checkpoint is really written later."""
        if self.place.is_elsewhere:
            raise Skipped("the run directory cannot be written")
        vocab_size = self.config.tokenizer.vocab_size
        told = plan.forecast(self.config, num_parameters(self.config, vocab_size), vocab_size, self.is_bf16)
        text = sum(entry.text_bytes for entry in self.census)
        data = round(text * (1 + 1.5 * len(self.directions) / len(self.language_pairs)))  # the text, then its ids
        free, limit = free_bytes(self.run_dir.root), file_size_limit()
        what = f"disk, forecast: checkpoints {gigabytes(told.disk)}, data {gigabytes(data)}; free {gigabytes(free)}"
        if told.disk + data > free:
            self.tell("failed", what, "lower train.keep_checkpoints, make room, or choose another run.dir")
        elif limit is not None and limit < max(told.optimizer, data / 2):
            largest = gigabytes(max(told.optimizer, data / 2))
            self.tell(
                "failed",
                f"{what}; this process may write no file above {gigabytes(limit)}, and one of {largest} will be needed",
                "raise the limit: ulimit -f unlimited",
            )
        else:
            self.tell("ok", what)


def num_parameters(config: Config, vocab_size: int) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in Transformer(config.model, vocab_size).parameters())
