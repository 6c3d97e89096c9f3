"""search: the same hypotheses whatever the batches and workers; batches keep their budget and go round."""

import time
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy import start

from xyd.config import BOS_ID, EOS_ID, DecodeConfig, ModelConfig
from xyd.errors import NumericsError, XydError
from xyd.model import Transformer
from xyd.search import Searcher, choose_precision, cut


def make_model() -> Transformer:
    torch.manual_seed(3)
    config = ModelConfig(d_model=32, num_encoder_layers=1, num_decoder_layers=2, num_heads=4, d_ff=64, max_length=60)
    model = Transformer(config, 512).eval()
    with torch.no_grad():
        model.output.bias[EOS_ID] = 1.5  # so that some end early
    return model


def make_sources(number: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(0, 25, (number,), generator=generator).tolist()
    return [torch.randint(10, 512, (n,), generator=generator).tolist() for n in lengths]


def run(config: DecodeConfig, beam_size: int, threads: int = 1, number: int = 60) -> list[list]:
    sources = make_sources(number)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        searcher = Searcher(make_model(), config, "cpu", [0, BOS_ID])
        limits = [min(len(ids) + 5, 40) for ids in sources]
        found = searcher.search(sources, BOS_ID, limits, beam_size, 1.0, n_best=min(beam_size, 2))
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    return found


@pytest.mark.need(7)
@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("beam_size", [1, 5])
def test_batches_and_workers_change_nothing(precision: str, beam_size: int) -> None:
    one_by_one = run(DecodeConfig(precision=precision, max_tokens=1, workers=1), beam_size)  # type: ignore[arg-type]
    assert {len(best) for best in one_by_one} == {min(beam_size, 2)}
    assert len({len(best[0].ids) for best in one_by_one}) > 3
    settings = [{"max_tokens": 100_000, "workers": 1}, {"max_tokens": 300, "workers": 3}, {"workers": "auto"}]
    for settings_ in settings:
        found = run(DecodeConfig(precision=precision, **settings_), beam_size, threads=2)  # type: ignore[arg-type]
        for got, expected in zip(found, one_by_one, strict=True):
            assert [h.ids for h in got] == [h.ids for h in expected]
            assert [h.score for h in got] == pytest.approx(
                [h.score for h in expected], abs=1e-4 if precision == "fp32" else 2e-3
            )


@pytest.mark.parametrize("beam_size", [1, 5])
def test_steps_of_fixed_shape_give_the_same(beam_size: int) -> None:
    expected = run(DecodeConfig(precision="fp32"), beam_size)
    for got, best in zip(run(DecodeConfig(precision="fp32", capture=True), beam_size), expected, strict=True):
        assert [h.ids for h in got] == [h.ids for h in best]
        assert [h.score for h in got] == pytest.approx([h.score for h in best], abs=1e-4)


def test_drawing_depends_on_its_seed() -> None:
    config = DecodeConfig(temperature=1.0, precision="fp32")
    sources = make_sources(20)

    def draw(seed: int) -> list[list[int]]:
        found = Searcher(make_model(), config, "cpu", [0, BOS_ID]).search(sources, BOS_ID, [9] * 20, 5, 1.0, seed=seed)
        return [best[0].ids for best in found]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_a_model_in_training_goes_on_in_training() -> None:
    model = make_model().train()
    Searcher(model, DecodeConfig(precision="fp32"), "cpu", [0]).search([[11, 12]], BOS_ID, [3], 1, 1.0)
    assert model.training


def test_the_error_of_a_worker_reaches_the_caller() -> None:
    model = make_model()
    with torch.no_grad():
        model.output.bias[7] = torch.nan
    searcher = Searcher(model, DecodeConfig(precision="fp32", max_tokens=100, workers=2), "cpu", [0, BOS_ID])
    with pytest.raises(NumericsError, match="NaN"):
        searcher.search(make_sources(60), BOS_ID, [5] * 60, 1, 1.0)


def test_a_worker_that_is_killed_is_an_error_and_the_next_search_has_new_ones() -> None:
    config = DecodeConfig(precision="fp32", max_tokens=100, workers=2)
    searcher = Searcher(make_model(), config, "cpu", [0, BOS_ID])
    sources = make_sources(60)
    expected = searcher.search(sources, BOS_ID, [5] * 60, 1, 1.0)
    assert searcher._pool is not None
    for process in list(searcher._pool[1]._processes.values()):
        process.kill()
    with pytest.raises(XydError, match=r"was killed.*decode\.workers"):
        searcher.search(sources, BOS_ID, [5] * 60, 1, 1.0)
    assert searcher.search(sources, BOS_ID, [5] * 60, 1, 1.0) == expected


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import sys, time\n"
        f"sys.path[:0] = [{str(Path(__file__).parent)!r}]\n"
        "import test_search as t\n"
        "s = t.Searcher(t.make_model(), t.DecodeConfig(precision='fp32', max_tokens=100, workers=2), 'cpu', [0])\n"
        "s.search(t.make_sources(60), t.BOS_ID, [5] * 60, 1, 1.0)\n"
        "print(*s._pool[1]._processes, flush=True)\n"
        "time.sleep(60)\n",
        encoding="utf-8",
    )
    with start(script) as parent:
        assert parent.stdout is not None
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(workers) == 2
        parent.kill()
        parent.wait()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and any(is_alive(pid) for pid in workers):
            time.sleep(0.1)
        assert not any(is_alive(pid) for pid in workers)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@given(st.lists(st.integers(0, 30), max_size=60), st.integers(1, 200), st.integers(1, 4))
def test_every_sentence_is_in_one_batch_and_batches_go_round(lengths: list[int], max_tokens: int, workers: int) -> None:
    batches = cut(lengths, max_tokens, workers)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * (max(lengths[i] for i in batch) + 1) <= max_tokens
    sizes = [sum(len(batch) for batch in batches[w::workers]) for w in range(workers)]
    assert max(sizes) - min(sizes) <= 1  # each worker has as many sentences


def test_two_workers_share_one_budget_evenly() -> None:
    batches = cut([9] * 100, 100_000, 2)
    assert [len(batch) for batch in batches] == [50, 50]


def test_precision_is_as_asked_or_what_the_hardware_has(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    assert choose_precision("bf16", cpu) == "bf16"
    for has, expected in [
        ({}, "fp32"),
        ({"avx512_bf16": True}, "bf16"),
        ({"avx512_vnni": True}, "fp32"),
        ({"avx512_bf16": True, "avx512_vnni": True}, "int8"),
    ]:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda has=has: has, raising=False)
        assert choose_precision("auto", cpu) == expected
