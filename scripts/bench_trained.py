"""A trained run at natural lengths: xyd beside CTranslate2 int8 with the same weights. Part of bench_decode.py.

The run's test sources, from text to text: tokenising and detokenising are in the time, opening the model is not. xyd
translates by its default path and, as a check, in fp32 throughout; CTranslate2 int8 has the run's weights by
to_ctranslate2.py and the settings of bench_settings.py, the fastest taken. BLEU is sacreBLEU's, of what each system
translated. Before anything is timed, CTranslate2 in float32 and xyd in fp32 translate 100 sentences greedily: the
report says how many have the same ids, and anything but all of them means that the weights were converted wrongly.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bench_settings
import bench_task
from bench_rounds import Order, Result, best_setting, measure, medians, ratio, say, take_turns
from bench_speed import BEAM_OF, WARM_UP, seconds

NUM_COMPARED = 100
TASKS = ("greedy", "beam5")
PRECISIONS = {"xyd fp32": "fp32", "xyd": None}  # system: decode.precision, None as configured


def bench_trained(options: Namespace, folder: Path) -> dict[str, Any]:
    """The report without the facts."""
    with_ct2 = bench_settings.has_ctranslate2(options.device)
    texts, model = str(folder / "texts.json"), str(folder / "ct2") if with_ct2 else None
    common: Order = {"texts": texts, "device": options.device, "seconds": options.seconds}
    ours: Order = {**common, "system": "xyd", "run": str(options.trained), "environment": bench_task.XYD_ENVIRONMENT}
    theirs: Order = {**common, "system": "ct2", "model": model}
    asked = {"job": "export", "to": options.to, "model": model, "num_sentences": options.sentences}
    known = measure("bench_decode.py", {**ours, **asked})
    say(f"{options.trained}, {known['direction']}: {known['num_sentences']} test sentences; {options.rounds} round(s)")
    equal = equal_ids(known["ids"], theirs) if with_ct2 else "not compared"
    say(f"greedy ids of ct2 float32 equal to xyd's in fp32: {equal}")
    orders: dict[str, tuple[str, Order]] = {}
    chosen: dict[str, Order | None] = {}
    tried: dict[str, dict[str, float]] = {}
    for task in TASKS:  # what is compared stands side by side
        for system, precision in PRECISIONS.items():
            order = {**ours, "job": "xyd", "task": task, "precision": precision}
            orders[f"{system} {task}"] = ("bench_decode.py", order)
        if with_ct2:
            order = {**theirs, "job": "texts", "task": task, "output": str(folder / "tried.json")}
            settings = bench_settings.ctranslate2(task, options.device)
            chosen[task], tried[task] = best_setting("bench_ct2.py", order, settings, options.short)
            orders[f"ct2 {task}"] = ("bench_ct2.py", {**order, **(chosen[task] or settings[0])})
    for name, (_, order) in orders.items():
        order["output"] = str(folder / f"{name}.json")
    results = take_turns(orders, options.rounds)
    outputs = {name: orders[name][1]["output"] for name, found in results.items() if found}
    scores = measure("bench_decode.py", {"system": "score", "job": "score", "texts": texts, "outputs": outputs})
    for name, bleu in scores["bleu"].items():
        say(f"{name:16} BLEU {bleu:.2f}")
    return {
        "ratios": {f"natural_{task}_vs_ct2": ratio(results, f"xyd {task}", f"ct2 {task}") for task in TASKS},
        "medians": medians(results),
        "unit": "sentences/s",
        **scores,
        "ct2_float32_ids_equal": equal,
        "run": str(options.trained),
        "direction": known["direction"],
        "num_sentences": known["num_sentences"],
        "settings": chosen,
        "tried": tried,
        "raw": results,
    }


def equal_ids(ids: list[list[int]], order: Order) -> str:
    """How many of xyd's greedy translations CTranslate2 in float32 repeats to the id, as "99/100"."""
    setting = {"compute_type": "float32", "inter": 1, "intra": bench_task.num_cores(), "max_batch": 1024}
    found = measure("bench_ct2.py", {**order, **setting, "job": "ids", "num_sentences": len(ids)})["ids"]
    return f"{sum(a == b for a, b in zip(ids, found, strict=True))}/{len(ids)}"


# ── jobs, each in a process of its own ───────────────────────────────────────────────────────────────────────────────


def export(order: Order) -> Result:
    """Write the CTranslate2 model and the file of texts; the result has xyd's greedy ids in fp32 of some sentences."""
    import numpy as np

    from xyd.batching import start_id
    from xyd.config import DecodeConfig
    from xyd.corpus import open_split
    from xyd.files import RunDir
    from xyd.search import Searcher
    from xyd.translate import Translator

    run = Path(order["run"])
    translator = Translator.load(run, device="cpu")
    split = open_split(RunDir(run), "test")
    direction = next((d for d in split.directions if order["to"] in (None, d.split("-")[1])), None)
    assert direction is not None, f"no direction into {order['to']}; there are: {', '.join(split.directions)}"
    src_lang, tgt_lang = direction.split("-")
    if order["model"] is not None:
        from to_ctranslate2 import convert

        convert(run, Path(order["model"]), tgt_lang, None, None)
    rows = np.flatnonzero(split.direction == split.directions.index(direction))[: order["num_sentences"]].tolist()
    sources = [split.src_text(row) for row in rows]
    ids = translator.tokenizer.encode_batch(sources)
    decode, room = translator.config.decode, translator.config.model.max_length - 1
    limit = min(max(int(decode.max_length_factor * len(row)) + decode.max_length_extra for row in ids), room)
    texts = {
        "sources": sources,
        "references": [split.tgt_text(row) for row in rows],
        "src_lang": src_lang,
        "tgt_lang": tgt_lang,
        "max_decoding_length": limit,
    }
    Path(order["texts"]).write_text(json.dumps(texts), encoding="utf-8")
    banned_ids = translator.tokenizer.banned_ids
    searcher = Searcher(translator.model, DecodeConfig(precision="fp32"), translator.device, banned_ids)
    first, compared = start_id(translator.tokenizer, translator.directions, tgt_lang), ids[:NUM_COMPARED]
    found = searcher.search(compared, first, [limit] * len(compared), 1, 1.0)
    return {"direction": direction, "num_sentences": len(rows), "ids": [hypotheses[0].ids for hypotheses in found]}


def translate(order: Order) -> Result:
    """Sentences per second of xyd's Translator; the translations go to the file order["output"]."""
    from xyd.translate import Translator

    known = json.loads(Path(order["texts"]).read_text(encoding="utf-8"))
    loaded = Translator.load(Path(order["run"]), device=order["device"])
    config = loaded.config
    if order["precision"] is not None:
        decode = config.decode.model_copy(update={"precision": order["precision"]})
        config = config.model_copy(update={"decode": decode})
    translator = Translator(loaded.model, loaded.tokenizer, config, loaded.directions, loaded.device)
    asked = {"to": known["tgt_lang"], "source": known["src_lang"], "beam_size": BEAM_OF[order["task"]]}
    translator.translate(known["sources"][:WARM_UP], **asked)
    took, times = seconds(lambda: translator.translate(known["sources"], **asked), order["seconds"])
    found = translator.translate(known["sources"], **asked)
    Path(order["output"]).write_text(json.dumps([one.text for one in found]), encoding="utf-8")
    return {"figure": round(len(found) / took, 1), "unit": "sentences/s", "seconds": round(took, 3), "times": times}


def score(order: Order) -> Result:
    """BLEU of every file of translations, and its signature."""
    from xyd.evaluate import corpus_scores

    known = json.loads(Path(order["texts"]).read_text(encoding="utf-8"))
    references, tgt_lang = known["references"], known["tgt_lang"]
    scores = {
        name: corpus_scores(json.loads(Path(output).read_text(encoding="utf-8")), references, tgt_lang)
        for name, output in order["outputs"].items()
    }
    signature = next(iter(scores.values())).bleu_signature
    return {"bleu": {name: round(found.bleu, 2) for name, found in scores.items()}, "bleu_signature": signature}


JOBS: dict[str, Callable[[Order], Result]] = {"export": export, "xyd": translate, "score": score}
