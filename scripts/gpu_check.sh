#!/usr/bin/env bash
# What xyd does on a machine with a GPU: the tests marked cuda, both benchmarks, the arithmetic floor; about 8 minutes.
#
#   scripts/gpu_check.sh [--device cpu]      (cpu: a dry run of the same steps, for a machine without a GPU)
#
# Uses the Python of $PYTHON (python3) and what it has: torch, and the packages xyd needs. Nothing is installed. Peers
# that are absent are left out. The last lines are a table; everything is also in $OUT (gpu_check/).
set -uo pipefail
cd "$(dirname "$0")/.."
device=cuda
[ "${1:-}" = --device ] && device=$2
python=${PYTHON:-python3}
out=${OUT:-gpu_check}
mkdir -p "$out"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" XYD_CHECK_DEVICE=$device CUBLAS_WORKSPACE_CONFIG=:4096:8
export PYTHONUNBUFFERED=1 XYD_BENCH_CACHE="$out/cache"

missing=$("$python" - <<'EOF'
from importlib.util import find_spec
print(*(name for name in ("torch", "numpy", "pydantic", "yaml", "jaxtyping", "safetensors", "pytest") if not find_spec(name)))
EOF
) || { echo "gpu_check: $python does not run; name another with PYTHON=…" >&2; exit 2; }
if [ -n "$missing" ]; then
  echo "gpu_check: $python lacks: $missing. Name a Python that has them: PYTHON=… scripts/gpu_check.sh" >&2
  exit 2
fi
"$python" - "$device" <<'EOF' || exit 2
import sys, torch
print("torch", torch.__version__, "·", torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU")
if sys.argv[1] == "cuda" and not torch.cuda.is_available():
    sys.exit("gpu_check: torch sees no CUDA device here; --device cpu is a dry run")
EOF

failed=0
step() { # name, limit in seconds, command …
  local name=$1 limit=$2 began=$SECONDS
  [ "$device" = cuda ] || limit=$((limit * 6))
  shift 2
  echo "── $name"
  if timeout "$limit" "$@" 2>&1 | tee "$out/$name.log"; then
    echo "── $name: done in $((SECONDS - began)) s"
  else
    echo "── $name: FAILED after $((SECONDS - began)) s (log: $out/$name.log)"
    failed=1
  fi
}

step tests 150 "$python" -m pytest -q -p no:cacheprovider -m cuda tests/test_cuda.py
step floor 60 "$python" scripts/bench_floor.py --device "$device"
step train 150 "$python" scripts/bench_train.py --device "$device" --short
step decode 120 "$python" scripts/bench_decode.py --device "$device" --short

"$python" - "$out" <<'EOF'
import json, pathlib, sys
print("\n| what | ratio or figure |\n|---|---:|")
for name in ("floor", "train", "decode"):
    lines = (pathlib.Path(sys.argv[1]) / f"{name}.log").read_text(encoding="utf-8").strip().splitlines()
    try:
        found = json.loads(lines[-1])
    except (IndexError, ValueError):
        print(f"| {name} | no figures |")
        continue
    for section in ("ratios", "floor", "medians"):
        for key, value in found.get(section, {}).items():
            print(f"| {name} {section}: {key} | {value} |")
EOF
exit $failed
