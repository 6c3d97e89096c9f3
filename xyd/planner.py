"""`xyd plan`: what a run will take, said before anything is prepared. Trains nothing and writes nothing.

Where the data is prepared its lengths are exact; else they are forecast from the text of a sample. Where measuring is
allowed, some real steps are computed on random ids of these lengths, as `train` tries workers; else time is by rule.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from xyd import distributed, memory, plan, workers
from xyd.batching import extremes, plan_epoch, shape
from xyd.config import BOS_ID, Config, directions
from xyd.files import RunDir, free_bytes
from xyd.memory import gigabytes
from xyd.model import Transformer, count_parameters
from xyd.outlook import ROWS, Outlook, RandomSplit, outlook

MEASURE_SHARE = 0.75  # seconds for one micro-batch, by forecast, above which smaller ones are measured
# By rule, from docs/performance.md: greedy search writes as many tokens a second as training reads, a beam fewer.
SEARCH_SPEED, BEAM_COST = 1.0, 0.75
# Operations a second, by rule: of one core (docs/performance.md), of a GPU.
CORE_RATE_BF16, CORE_RATE_FP32, GPU_RATE = 2e11, 4e10, 5e13
SCALAR_BYTES, LINE_BYTES = 60, 40  # of a point in TensorBoard's file and in metrics.jsonl
ROW_BYTES = 60  # of a prepared row beside its ids


# ── the plan ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def make_plan(config: Config, measure: bool) -> dict[str, Any]:
    """Everything that `xyd plan` tells, as plain values: bytes, tokens, seconds, shares.

    Raises XydError where a corpus cannot be read or the device is not there.
    """
    run, t = RunDir(Path(config.run.dir) / config.run.name), config.train
    seen = outlook(config, run)
    split, vocab_size = seen.split, seen.split.vocab_size
    device = distributed.choose_device(t.device)
    is_bf16, is_on_gpu = distributed.choose_dtype(t.precision, device) == torch.bfloat16, device.type == "cuda"
    with torch.device("meta"):
        parts = count_parameters(Transformer(config.model, vocab_size))
    total = sum(parts.values())

    sample = _sample(split, config.run.seed)
    steps = plan_epoch(
        sample.src_lengths,
        sample.tgt_lengths,
        max_tokens=t.max_tokens,
        tokens_per_step=t.tokens_per_step,
        seed=config.run.seed,
        epoch=0,
    )
    shapes = [shape(sample, rows) for rows in extremes(sample, steps)]
    told = plan.forecast(config, total, vocab_size, is_bf16, shapes, is_on_gpu)
    src_mean, tgt_mean = seen.mean_lengths
    rows = seen.rows
    epoch_tokens = None if seen.seen is None else seen.seen * tgt_mean
    tokens = None if rows is None else rows * (src_mean + tgt_mean)
    done = plan.operations(config.model, vocab_size, split.src_lengths + 1, split.tgt_lengths + 1)
    per_step = t.tokens_per_step / (float(split.tgt_lengths.sum()) + len(split.tgt_lengths))
    parts_of_step = {name: getattr(done, name) * per_step for name in ("encoder", "decoder", "attention", "output")}
    result: dict[str, Any] = {
        "folds": (config.data.split.kfold or 1) if config.data.split.fold is None else 1,
        "parameters": {**parts, "total": total},
        "data": {
            "rows": None if rows is None else round(rows),
            "seen_per_epoch": None if seen.seen is None else round(seen.seen),
            "mean_src_tokens": round(src_mean, 2),
            "mean_tgt_tokens": round(tgt_mean, 2),
            "tokens": None if tokens is None else round(tokens),
            "is_exact": seen.is_exact,
            "origin": seen.origin,
            "vocab_size": vocab_size,
        },
        "operations_per_step": {**parts_of_step, "total": done.total * per_step},
        "memory": {
            "weights": told.weights,
            "gradients": told.gradients,
            "optimizer": told.optimizer,
            "activations": told.activations,
            "libraries": plan.LIBRARIES,
            "shapes": shapes,
            "free": torch.cuda.mem_get_info(device)[0] if is_on_gpu else memory.free(),
        },
        "disk": {
            "checkpoints": told.disk,
            "data": None if rows is None else round(rows * (4 * (src_mean + tgt_mean) + ROW_BYTES)),
            "while_preparing": round(seen.text_bytes),
            "logs": _log_bytes(config),
            "free": free_bytes(run.root),
        },
    }
    if tokens is not None:
        result["rule_of_thumb"] = {
            "tokens_per_parameter": tokens / total,
            "wanted_tokens_per_parameter": plan.TOKENS_PER_PARAMETER,
            "d_model": plan.width_by_rule(config.model, vocab_size, tokens),
        }
    result["time"] = _time(config, seen, sample, total, result, epoch_tokens, measure, device)
    return result


def _sample(split: RandomSplit, seed: int) -> RandomSplit:
    if len(split.src_lengths) <= ROWS:
        return split
    chosen = np.random.default_rng(seed).choice(len(split.src_lengths), ROWS, replace=False)
    return RandomSplit(split.src_lengths[chosen], split.tgt_lengths[chosen], split.vocab_size)


def _log_bytes(config: Config) -> int:
    """TensorBoard's file and metrics.jsonl, by rule."""
    t, points = config.train, 12 + config.model.num_encoder_layers + config.model.num_decoder_layers
    lines = t.max_steps // t.log_every + 3 * (t.max_steps // t.validate_every)
    return lines * points * (SCALAR_BYTES + LINE_BYTES)


def _time(
    config: Config,
    seen: Outlook,
    sample: RandomSplit,
    parameters: int,
    found: dict[str, Any],
    epoch_tokens: float | None,
    measure: bool,
    device: torch.device,
) -> dict[str, Any]:
    """Seconds of the whole run, from a measured speed or by rule."""
    t, e = config.train, config.evaluate
    if measure:
        speed, how = _measured(config, sample, parameters, device)
    else:
        rate = _rate(config, device)
        speed = rate * t.tokens_per_step / found["operations_per_step"]["total"]
        how = f"by rule: {rate:.0e} operations a second"
    steps, limit = float(t.max_steps), "max_steps"
    if t.max_epochs is not None and epoch_tokens is not None:
        of_epochs = math.ceil(t.max_epochs * max(1.0, epoch_tokens / t.tokens_per_step))
        steps, limit = min((steps, limit), (of_epochs, "max_epochs"))
    training = steps * t.tokens_per_step / speed if speed else math.inf
    _, tgt_mean = seen.mean_lengths
    judged = seen.valid_rows * tgt_mean / (3 * speed) if speed else math.inf  # the forward third of training
    if e.bleu_every:
        beam = e.valid_beam_size or config.decode.beam_size
        sentences = min(seen.valid_rows, e.valid_sentences * len(directions(config)))
        cost = 1.0 if beam == 1 else BEAM_COST * beam
        judged += sentences * tgt_mean * cost / (SEARCH_SPEED * speed) / e.bleu_every
    validation = math.ceil(steps / t.validate_every) * judged
    if t.max_minutes is not None and training + validation > 60 * t.max_minutes:
        scale, limit = 60 * t.max_minutes / (training + validation), "max_minutes"
        steps, training, validation = steps * scale, training * scale, validation * scale
    return {
        "tokens_per_second": speed,
        "how": how,
        "seconds_per_step": t.tokens_per_step / speed if speed else math.inf,
        "steps": round(steps),
        "limit": limit,
        "epochs": None if not epoch_tokens else steps * t.tokens_per_step / epoch_tokens,
        "training_seconds": training,
        "validation_seconds": validation,
        "validation_share": validation / (training + validation) if training + validation else 0.0,
    }


def _rate(config: Config, device: torch.device) -> float:
    """Operations a second, by rule."""
    is_bf16 = distributed.choose_dtype(config.train.precision, device) == torch.bfloat16
    if device.type == "cuda":
        return GPU_RATE
    return (CORE_RATE_BF16 if is_bf16 else CORE_RATE_FP32) * distributed.num_cores()


def _measured(config: Config, sample: RandomSplit, parameters: int, device: torch.device) -> tuple[float, str]:
    """Target tokens per second of a few steps on random ids, with as many workers as a run would take; in words too."""
    t, cores = config.train, distributed.num_cores()
    material = workers.Material(sample, sample.vocab_size, np.array([BOS_ID], np.int64))
    note = ""
    fitting = int(MEASURE_SHARE * _rate(config, device) / cores * 2 / (6 * parameters))
    longest = int((sample.src_lengths + sample.tgt_lengths).max()) + 2
    if (smaller := max(fitting, longest, 512)) < t.max_tokens:
        changed = t.model_copy(update={"max_tokens": smaller})
        config = config.model_copy(update={"train": changed})
        note = f", in micro-batches of {smaller:,} padded tokens"
    if device.type != "cpu" or t.workers != "auto":
        wanted = 1 if t.workers == "auto" else distributed.usable_workers(t.workers, device)
        speeds = {wanted: workers.speed(config, material, wanted)}
    else:
        most = workers.most_workers(config, material, parameters, cores)[0]
        speeds = {number: workers.speed(config, material, number) for number in sorted({1, max(1, most)})}
    best, told = workers.fastest(config, speeds)
    return speeds[best], f"measured on random text of these lengths: {best} worker(s), {told}{note}"


# ── in words ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def report(found: dict[str, Any]) -> str:
    """The plan for a person. What is no count is named a forecast."""
    data, need, time, disk = found["data"], found["memory"], found["time"], found["disk"]
    parts = {name: count for name, count in found["parameters"].items() if name != "total"}
    operations = found["operations_per_step"]
    shapes = " and ".join(f"({B},{S}) → ({B},{T})" for B, S, T in need["shapes"])
    held = sum(need[name] for name in ("weights", "gradients", "optimizer", "activations", "libraries"))
    about = "" if data["is_exact"] else "about "
    rows = "unknown: data of the hub is not fetched by a plan"
    if data["rows"] is not None:
        rows = f"{about}{data['rows']:,} rows (pairs in each direction), {about}{data['tokens']:,} tokens on both sides"
    lines = [
        f"train split: {rows}",
        f"  lengths: {data['mean_src_tokens']} source and {data['mean_tgt_tokens']} target tokens, with specials, "
        f"{data['origin']}; vocabulary {data['vocab_size']:,}",
        plan.parameters_by_part(parts),
        f"operations, forecast: {operations['total']:.2e} a step of {time['seconds_per_step']:.2f} s = "
        + " + ".join(f"{name} {operations[name]:.1e}" for name in ("encoder", "decoder", "attention", "output")),
        "  6 for each weight and token (source tokens in the encoder, target tokens in decoder and output projection; "
        "embeddings multiply nothing), 12·d_model for each pair of positions in attention; padding comes on top",
        f"memory, forecast per process: {gigabytes(held)} = weights {gigabytes(need['weights'])} + gradients "
        f"{gigabytes(need['gradients'])} + optimiser {gigabytes(need['optimizer'])} + largest micro-batch {shapes} "
        f"{gigabytes(need['activations'])} + libraries {gigabytes(need['libraries'])}"
        + ("" if need["free"] is None else f"; free now {gigabytes(need['free'])}"),
    ]
    if need["free"] is not None and held > need["free"]:
        lines.append("  warning: that does not fit; lower train.max_tokens, or take a smaller model")
    if "rule_of_thumb" in found:
        rule = found["rule_of_thumb"]
        lines.append(
            f"tokens per parameter: {rule['tokens_per_parameter']:.2f}. The rule of thumb of word-ferry, xyd's "
            f"predecessor, wants {rule['wanted_tokens_per_parameter']}: with these layers and vocabulary a d_model of "
            f"{rule['d_model']}. It is a rule of thumb: it knows neither dropout nor how hard the text is."
        )
    folds = "" if found["folds"] == 1 else f", for each of {found['folds']} folds"
    epochs = "" if time["epochs"] is None else f", {time['epochs']:.1f} epochs"
    lines += [
        f"speed: {time['tokens_per_second']:,.0f} target tokens/s, {time['how']}",
        f"time, forecast: {_duration(time['training_seconds'])} of training for {time['steps']:,} steps{epochs}{folds} "
        f"(up to train.{time['limit']}; early stopping may come sooner) + {_duration(time['validation_seconds'])} of "
        f"validation ({time['validation_share']:.0%}, by rule)",
    ]
    known = [disk[name] or 0 for name in ("checkpoints", "data", "while_preparing", "logs")]
    lines.append(
        f"disk, forecast: {gigabytes(sum(known))} = checkpoints {gigabytes(known[0])} + prepared data "
        f"{gigabytes(known[1]) if disk['data'] is not None else 'unknown'} + while preparing {gigabytes(known[2])} + "
        f"logs {gigabytes(known[3])}; free {gigabytes(disk['free'])}"
    )
    if sum(known) > disk["free"]:
        lines.append("  warning: that does not fit; lower train.keep_checkpoints or choose another run.dir")
    return "\n".join(lines)


def _duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "no end"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def as_json(found: dict[str, Any]) -> str:
    return json.dumps(found, ensure_ascii=False, indent=1)
