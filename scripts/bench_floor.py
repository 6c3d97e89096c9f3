"""The arithmetic floor: how fast the matrix products of a training step alone would be on this machine.

    python scripts/bench_floor.py [--device cpu|cuda] [--rows 2048]

Every kind of product of the model (projections, feed-forward, vocabulary) is timed by itself, in the precision that
training chooses here, on all cores. A token's floor is the sum over the products of its forward and backward pass,
three times the forward's arithmetic; attention's own products, norms, dropout and the optimiser are left out, so that
nothing can be faster. The last line is JSON; `floor` is in target tokens per second with as many source tokens.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import Tensor

from bench_task import SHAPES, Shape
from xyd import distributed


def products(shape: Shape) -> dict[str, tuple[int, int, float]]:
    """Kind → inputs, outputs, and how many of them a pair of a source and a target token passes."""
    c = shape.model
    D, F_, E, L = c.d_model, c.d_ff, c.num_encoder_layers, c.num_decoder_layers
    return {
        "D to 3D": (D, 3 * D, E + L),
        "D to D": (D, D, E + 3 * L),
        "D to 2D": (D, 2 * D, L),
        "D to F": (D, F_, E + L),
        "F to D": (F_, D, E + L),
        "D to V": (D, shape.vocab_size, 1),
    }


def seconds_of(x: Tensor, weight: Tensor) -> float:
    """Of one product x Wᵀ, the best of some."""
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < 5 or time.perf_counter() - began < 0.3:
        start = time.perf_counter()
        F.linear(x, weight)
        if x.device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--rows", type=int, default=2048, help="rows of a product (of the vocabulary's: 256 on a CPU)")
    options = parser.parse_args()
    device = torch.device(options.device)
    dtype = distributed.choose_dtype("auto", device)
    torch.set_num_threads(distributed.num_cores())
    floor: dict[str, float] = {}
    tera: dict[str, float] = {}
    for name, shape in SHAPES.items():
        per_pair = 0.0
        for kind, (inputs, outputs, count) in products(shape).items():
            rows = 256 if kind == "D to V" and device.type == "cpu" else options.rows
            x = torch.randn(rows, inputs, device=device, dtype=dtype)
            took = seconds_of(x, torch.randn(outputs, inputs, device=device, dtype=dtype))
            tera[f"{name} {kind}"] = round(2 * rows * inputs * outputs / took / 1e12, 3)
            per_pair += 3 * count * took / rows
        floor[f"{name} training"] = round(1 / per_pair, 1)
        print(f"{name}: {floor[f'{name} training']:,.0f} target tokens/s at most, in {str(dtype)[6:]}")
    report = {"floor": floor, "tera_flops": tera, "dtype": str(dtype)[6:], "device": options.device}
    print(json.dumps({**report, "cores": distributed.num_cores(), "torch": torch.__version__}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
