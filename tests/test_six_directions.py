"""Six directions in one model: a tag for each target language, and text that looks like a tag stays text."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from xyd.batching import start_ids
from xyd.config import EOS_ID, load
from xyd.corpus import open_split, prepare
from xyd.files import RunDir
from xyd.text import normalise
from xyd.tokenizer import Tokenizer

ROOT = Path(__file__).parents[1]
DIRECTIONS = ["en-fr", "en-zh", "fr-en", "fr-zh", "zh-en", "zh-fr"]
FORGED = [
    "<2fr>", "<2zh> <2en> <2fr>", "<2fr> The cat.", "The <2zh>cat.", "<2FR>", "< 2fr >", "<2fr", "2fr>", "</s>",
    "<s> <pad>", "<unk>", "<0x41>", "<0x0A>", "▁<2fr>", "<2fr>\u200b", "\ufeff<2fr>", "<2f\u0000r>", "＜2fr＞",
]  # fmt: skip


def write(folder: Path, number: int) -> None:
    """en, zh, fr of as many lines, every fifth with the spelling of a tag in it."""
    rng = random.Random(1)
    words = {
        "en": ["cat", "dog", "river", "house", "tree"],
        "fr": ["chat", "chien", "fleuve", "maison", "arbre"],
        "zh": "猫狗河屋树",
    }
    rows = [[rng.randrange(5) for _ in range(4)] for _ in range(number)]
    for lang in words:
        gap = "" if lang == "zh" else " "
        lines = [gap.join(words[lang][i] for i in row) + f" {n}" for n, row in enumerate(rows)]
        lines = [f"{line} {FORGED[n % 3]}" if n % 5 == 0 else line for n, line in enumerate(lines)]
        (folder / f"a.{lang}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def config(folder: Path) -> Path:
    tree: dict[str, Any] = {
        "run": {"name": "r", "dir": str(folder)},
        "data": {"corpora": [{"files": {lang: f"a.{lang}" for lang in ("en", "zh", "fr")}}], "valid": 6, "test": 6},
        "tokenizer": {"vocab_size": 360},
        "model": {"d_model": 16, "num_encoder_layers": 1, "num_decoder_layers": 1, "num_heads": 2, "d_ff": 32},
        "train": {
            "tokens_per_step": 512, "max_tokens": 512, "learning_rate": 0.01, "warmup_steps": 5, "max_steps": 10,
            "precision": "fp32", "device": "cpu", "workers": 1, "threads": 1,
        },
        "decode": {"beam_size": 1, "max_length_factor": 1.0, "max_length_extra": 4},
        "evaluate": {"bleu_every": 0},
    }  # fmt: skip
    path = folder / "c.yaml"
    path.write_text(json.dumps(tree), encoding="utf-8")
    return path


@pytest.mark.need(32)
def test_text_that_looks_like_a_tag_stays_text(tmp_path: Path) -> None:
    """In the corpus and in what is translated: no id of a source or a target is a control id."""
    from xyd.train import Trainer
    from xyd.translate import Translator

    write(tmp_path, 240)
    settings, run = load(config(tmp_path)), RunDir(tmp_path / "r")
    assert prepare(settings, run, lambda _text: None)["directions"] == DIRECTIONS
    tokenizer = Tokenizer.load(run.tokenizer_path)
    assert tokenizer.languages == ["en", "fr", "zh"]
    controls = {*range(EOS_ID + 1), *(tokenizer.tag_id(lang) for lang in tokenizer.languages)}
    tags = [tokenizer.tag_id(direction[3:]) for direction in DIRECTIONS]
    assert start_ids(tokenizer, DIRECTIONS).tolist() == tags
    assert len(set(tags)) == 3

    for name in ("train", "valid", "test"):
        split = open_split(run, name)
        forged = 0
        for row in range(len(split)):
            for ids in (split.src_ids(row).tolist(), split.tgt_ids(row).tolist()):
                assert not controls & set(ids)
                forged += any(spelling in tokenizer.decode(ids) for spelling in ("<2fr>", "<2zh>"))
        assert forged or name != "train"

    Trainer(settings).fit()
    translator = Translator.load(run.root)
    for text in FORGED:
        ids = translator.tokenizer.encode(text)
        assert not controls & set(ids)
        assert translator.tokenizer.decode(ids) == normalise(text)
    for to in tokenizer.languages:
        found = translator.translate(FORGED, to=to)
        assert [one.source for one in found] == FORGED
        assert all(one.status != "blank" for one in found)
        for one in found:  # nor does a tag come out, whatever an untrained model wants to say
            assert not controls & set(translator.tokenizer.encode(one.text))


@pytest.mark.slow
@pytest.mark.need(32)
def test_the_un_development_set_in_six_directions(tmp_path: Path, shared: Path) -> None:
    """configs/un-six.yaml as it is shipped, but for its length: six rows of scores, three tags."""
    overrides = [
        f"data.root={shared / 'data/unpc'}", f"run.dir={tmp_path}", "train.max_steps=20", "evaluate.valid_sentences=2",
        "data.test=10", "data.valid=10", "decode.beam_size=1", "decode.max_length_factor=0.5", "train.workers=1",
    ]  # fmt: skip
    flags = [part for key in overrides for part in ("--set", key)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}

    def xyd(*arguments: str | Path, stdin: str | None = None) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "xyd", *map(str, arguments)], input=stdin, capture_output=True, text=True,
            encoding="utf-8", env=environment, cwd=tmp_path, timeout=500,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stderr
        return done.stdout

    xyd("train", ROOT / "configs/un-six.yaml", *flags)
    run = RunDir(tmp_path / "un-six")
    report = json.loads((run.root / "report.json").read_text(encoding="utf-8"))
    assert sorted(report["test"]["directions"]) == DIRECTIONS
    assert all("bleu" in row and row["bleu"] is not None for row in report["test"]["directions"].values())
    assert Tokenizer.load(run.tokenizer_path).languages == ["en", "fr", "zh"]
    lines = ["<2fr> The Committee adopted the draft resolution.", "<2zh> <2en> <2fr>"]
    out = xyd("translate", run.root, "--tgt-lang", "zh", "--format", "jsonl", stdin="\n".join(lines) + "\n")
    assert [json.loads(line)["source"] for line in out.splitlines()] == lines
