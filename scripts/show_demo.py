"""Show what the demo model has learned: exact match and BLEU on sentences never seen, and some translations.

    python scripts/show_demo.py [RUN]        RUN is runs/demo where none is named

In the demo corpus each sentence has exactly one translation, so exact match means what it says. The last lines are
for programs: `exact match 98.1` and `BLEU 99.2`, means over all directions, in percent.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from xyd import load
from xyd.corpus import open_split
from xyd.errors import XydError
from xyd.files import RunDir

SHOWN = [
    ("zh", "猫追狗。", ("en", "fr")),  # the same words in another order: without positions these two were one sentence
    ("zh", "狗追猫。", ("en", "fr")),
    ("en", "The cat chases the dog.", ("zh", "fr")),
    ("en", "Does the engineer buy three white umbrellas?", ("zh", "fr")),
    ("fr", "Elle arrive à deux heures et quart.", ("en", "zh")),
]


def exact_matches(run: RunDir, translate: Callable[..., list[str]]) -> dict[str, float]:
    """Percent of the test sentences of each direction whose translation is the reference, to the letter."""
    split = open_split(run, "test")
    shares = {}
    for index, direction in enumerate(split.directions):
        src_lang, tgt_lang = direction.split("-")
        rows = [row for row in range(len(split)) if split.direction[row] == index]
        hypotheses = translate([split.src_text(row) for row in rows], to=tgt_lang, source=src_lang)
        hits = sum(h == split.tgt_text(row) for h, row in zip(hypotheses, rows, strict=True))
        shares[direction] = 100 * hits / len(rows)
    return shares


def main() -> int:
    run = RunDir(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo"))
    try:
        translator = load(run.root)
    except XydError as e:
        print(e, file=sys.stderr)
        return e.exit_code

    def translate(texts: list[str], to: str, source: str) -> list[str]:
        return [t.text for t in translator.translate(texts, to=to, source=source)]

    shares = exact_matches(run, translate)
    report = json.loads(run.report_path.read_text(encoding="utf-8"))
    minutes = report["seconds"] / 60
    print(f"\ntrained for {minutes:.1f} minutes, {report['tokens']:,} target tokens, {report['step']} steps")
    print("\non sentences never seen in training:")
    for direction, share in shares.items():
        scores = report["test"]["directions"][direction]
        print(f"  {direction}  exact match {share:5.1f}  BLEU {scores['bleu']:5.1f}  chrF {scores['chrf']:5.1f}")
    print()
    for src_lang, text, targets in SHOWN:
        for tgt_lang in targets:
            print(f"  {src_lang}-{tgt_lang}  {text}  →  {translate([text], tgt_lang, src_lang)[0]}")
    exact_match = sum(shares.values()) / len(shares)
    if exact_match < 97:
        print("\nthis is lower than it should be (97): the machine was too slow for train.max_minutes; train on with")
        print("  xyd train configs/demo.yaml --set train.max_minutes=15 --set train.max_steps=6000")
    print(f"\nexact match {exact_match:.1f}\nBLEU {report['test']['bleu']:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
