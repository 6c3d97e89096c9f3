"""The benchmarks' own sums: the sentences, the figures, and that CTranslate2 is given the same model."""

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from xyd.batching import collate_fn
from xyd.config import BOS_ID, EOS_ID, ModelConfig
from xyd.errors import ConfigError
from xyd.model import Transformer

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import bench_rounds  # noqa: E402
import bench_speed  # noqa: E402
import bench_task  # noqa: E402


@pytest.fixture
def sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bench_task.Sentences:
    """Made-up ones, through the cache."""
    monkeypatch.setenv("XYD_SHARED", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XYD_BENCH_CACHE", str(tmp_path / "cache"))
    path = bench_task.prepare()
    assert bench_task.prepare() == path
    return bench_task.load(path)


def test_made_up_sentences_survive_the_cache_and_fit_both_shapes(sentences: bench_task.Sentences) -> None:
    made = bench_task.made_up()
    assert sentences.origin == "made up"
    for name in ("src", "tgt", "test"):
        rows: list[np.ndarray] = getattr(sentences, name)
        assert [row.tolist() for row in rows] == [row.tolist() for row in getattr(made, name)]
        ids = np.concatenate(rows)
        assert ids.min() > EOS_ID
        assert ids.max() < min(shape.vocab_size for shape in bench_task.SHAPES.values())
    assert len(sentences.src) == len(sentences.tgt)


def test_batches_hold_the_tokens_that_are_counted(sentences: bench_task.Sentences) -> None:
    lengths = np.array([len(row) for row in sentences.tgt])
    batches = bench_task.cut_by_tokens(range(len(lengths)), lengths, 500)
    assert np.concatenate(batches).tolist() == list(range(sum(map(len, batches))))
    sizes = [int(lengths[rows].sum()) + len(rows) for rows in batches]
    assert min(sizes) >= 500
    assert max(sizes) < 500 + lengths.max() + 1


def test_a_ratio_pairs_the_rounds() -> None:
    results = {
        name: [{"figure": x} for x in xs] for name, xs in {"a": (10, 40, 90), "b": (10, 20, 30), "c": ()}.items()
    }
    assert bench_rounds.ratio(results, "a", "b") == 2.0
    assert bench_rounds.ratio(results, "a", "c") is None
    assert bench_rounds.ratio(results, "a", "not installed") is None


@pytest.mark.parametrize(("unit", "best"), [("tokens/s", 2), ("ms", 1)])
def test_the_best_setting_of_a_peer_is_taken(unit: str, best: int, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = {1: 5.0, 2: 9.0}  # 3 fails

    def attempt(_script: str, order: bench_rounds.Order) -> bench_rounds.Result | None:
        return {"figure": figures[order["x"]], "unit": unit, "busy_elsewhere": 0.0} if order["x"] in figures else None

    monkeypatch.setattr(bench_rounds, "attempt", attempt)
    settings = [{"x": 1}, {"x": 2}, {"x": 3}]
    found = bench_rounds.best_setting("any.py", {"system": "peer"}, settings, short=False)
    assert found == ({"x": best}, {"x 1": 5.0, "x 2": 9.0})
    assert bench_rounds.best_setting("any.py", {"system": "peer"}, settings[2:], short=False) == (None, {})
    assert bench_rounds.best_setting("any.py", {"system": "peer"}, settings, short=True) == ({"x": 1}, {})


def test_turns_are_taken_and_a_peer_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def measure(_script: str, order: bench_rounds.Order) -> bench_rounds.Result:
        asked.append(order["system"])
        if order["system"] == "fails" and asked.count("fails") == 2:
            raise bench_rounds.MeasurementError("killed")
        return {"figure": 1.0, "unit": "tokens/s", "busy_elsewhere": 0.0}

    monkeypatch.setattr(bench_rounds, "measure", measure)
    orders = {system: ("any.py", {"system": system}) for system in ("xyd", "fails", "peer")}
    results = bench_rounds.take_turns(orders, rounds=3)
    assert asked == ["xyd", "fails", "peer", "xyd", "fails", "peer", "xyd", "peer"]
    assert {name: len(found) for name, found in results.items()} == {"xyd": 3, "fails": 0, "peer": 3}


@pytest.mark.parametrize(("task", "asked"), [("greedy", {100, 64}), ("latency", {1})])
def test_every_sentence_of_a_figure_is_searched(task: str, asked: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, 1.5)
    monkeypatch.setattr(bench_speed.time, "perf_counter", lambda: next(clock))
    sizes: list[int] = []
    result = bench_speed.search_speed(lambda rows, beam_size: sizes.append(len(rows)), list(range(100)), task, 2.0)
    assert set(sizes) == asked
    if task == "latency":
        assert (result["figure"], result["unit"]) == (1500.0, "ms")
        assert len(sizes) == 5 + 30
    else:  # twice, because once takes less than two seconds
        assert result["figure"] == 1000.0
        assert sizes == [64, 100, 100]


def test_the_process_that_measures_ctranslate2_has_no_torch() -> None:
    check = "import sys, bench_rounds, bench_speed, bench_task; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], cwd=SCRIPTS, check=False).returncode == 0


def test_the_plain_loop_has_dropout_where_xyd_has_it() -> None:
    from bench_loops import Plain

    shape = bench_task.Shape(
        50, ModelConfig(d_model=8, num_encoder_layers=1, num_decoder_layers=1, num_heads=2, d_ff=8)
    )
    rates = [(name, m.p) for name, m in Plain(shape).named_modules() if isinstance(m, torch.nn.Dropout)]
    inside = [(name, p) for name, p in rates if name.endswith("layers.0.dropout")]
    assert len(inside) == 2
    assert {p for _, p in inside} == {0.0}
    assert {p for name, p in rates if (name, p) not in inside} == {0.1}
    attention = [m.dropout for m in Plain(shape).modules() if isinstance(m, torch.nn.MultiheadAttention)]
    assert attention == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
@pytest.mark.parametrize("tie_embeddings", [True, False])
def test_ctranslate2_with_the_same_weights_gives_the_same_log_probs(
    tmp_path: Path, positions: str, tie_embeddings: bool
) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    from to_ctranslate2 import spec_of

    config = ModelConfig(
        d_model=16, num_encoder_layers=2, num_decoder_layers=3, num_heads=4, d_ff=32, max_length=32,
        positions=positions, tie_embeddings=tie_embeddings,
    )  # fmt: skip
    model = Transformer(config, 40).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # norms and biases would be ones and zeros
                parameter.add_(torch.randn_like(parameter) * 0.3)
    spec, pieces = spec_of(model), [str(i) for i in range(40)]
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = "1", str(BOS_ID), str(EOS_ID)
    spec.config.decoder_start_token, spec.config.add_source_eos = str(BOS_ID), True
    spec.validate()
    spec.optimize()
    spec.save(str(tmp_path))
    rng = np.random.default_rng(1)
    src, tgt = ([rng.integers(4, 40, n, dtype=np.int64) for n in lengths] for lengths in ((1, 5, 12), (20, 3, 7)))
    batch = collate_fn(src, tgt, np.full(3, BOS_ID), np.arange(3))
    with torch.inference_mode():
        logits = model.project(model(batch.src, batch.src_mask, batch.tgt_in))
    ours = logits.log_softmax(2).gather(2, batch.tgt_out[:, :, None])[:, :, 0]
    translator = ctranslate2.Translator(str(tmp_path), compute_type="float32", intra_threads=1)
    found = translator.score_batch(*([[str(i) for i in row] for row in rows] for rows in (src, tgt)))
    for row, ids, result in zip(ours, tgt, found, strict=True):
        assert result.log_probs == pytest.approx(row[: len(ids) + 1].tolist(), abs=1e-4)


def test_a_model_of_another_kind_is_refused() -> None:
    pytest.importorskip("ctranslate2")
    from to_ctranslate2 import spec_of

    config = ModelConfig(d_model=8, num_encoder_layers=1, num_decoder_layers=1, num_heads=2, d_ff=8, activation="gelu")
    with pytest.raises(ConfigError, match="gelu"):
        spec_of(Transformer(config, 40))
