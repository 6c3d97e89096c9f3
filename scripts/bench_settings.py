"""What is tried for the peers, so that each is measured at its best. The first of a list is what --short takes untried.

None of it is needed for xyd: it is measured as shipped.
"""

from __future__ import annotations

from bench_rounds import Order, is_here, say
from bench_task import num_cores


def marian_training(shape: str, device: str) -> list[Order]:
    """MarianMTModel in training: precision (base: bf16), attention (sdpa is its default), processes x threads."""
    cores = num_cores()
    processes = [(1, cores)] if cores == 1 or device == "cuda" else [(cores, 1), (1, cores)]
    return [
        {"precision": precision, "attention": attention, "workers": workers, "threads": threads}
        for precision in (["bf16"] if shape == "base" else ["bf16", "fp32"])
        for attention in (["sdpa", "eager"] if device == "cuda" else ["eager", "sdpa"])
        for workers, threads in processes
    ]


def marian_decoding() -> list[Order]:
    """MarianMTModel.generate: precision, sentences a batch."""
    return [
        {"precision": precision, "batch": batch, "threads": num_cores()}
        for precision in ("bf16", "fp32")
        for batch in (64, 150)
    ]


def ctranslate2(task: str, device: str) -> list[Order]:
    """CTranslate2: workers (`inter`) x threads of each (`intra`), tokens a batch; on a GPU the kind of arithmetic."""
    cores = num_cores()
    kinds, batches = ["int8"], [1024, 2048, 4096]
    processes = [(1, 1), (1, cores)] if task == "latency" else [(cores, 1), (1, cores)]
    if device == "cuda":
        kinds, batches, processes = ["int8_float16", "float16"], [4096, 16384], [(1, 1)]
    if task == "latency":
        batches = batches[:1]
    return [
        {"compute_type": kind, "inter": inter, "intra": intra, "max_batch": max_batch}
        for kind in kinds
        for inter, intra in dict.fromkeys(processes)
        for max_batch in batches
    ]


def has_ctranslate2(device: str) -> bool:
    """Whether CTranslate2 is installed and can use this device; says so if not."""
    if not is_here("ctranslate2"):
        return False
    if device == "cuda":
        import ctranslate2

        if ctranslate2.get_cuda_device_count() == 0:
            say("ctranslate2 sees no CUDA device here: its ratios are null")
            return False
    return True
