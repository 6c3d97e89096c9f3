"""planner: exact where the data is prepared, near it before; nothing is trained or written."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy import Toy, run_of, toy_config, tree, write_corpus

from xyd import cli, corpus, workers
from xyd.config import Config, load
from xyd.corpus.census import MAX_SAMPLE, take_census, tokens_by_rule
from xyd.errors import DataError
from xyd.model import Transformer
from xyd.outlook import RandomSplit
from xyd.planner import make_plan, report
from xyd.tokenizer import Tokenizer

BASE = Path(__file__).parents[1] / "configs" / "base-48k.yaml"


@pytest.fixture
def unprepared(tmp_path: Path) -> Config:
    write_corpus(tmp_path / "corpus", 300)
    return toy_config(tmp_path / "corpus")


def test_prepared_data_is_counted_exactly(toy: Toy, tmp_path: Path) -> None:
    config = toy.config(tmp_path)
    before = tree(tmp_path)
    found = make_plan(config, measure=False)
    train = corpus.open_split(run_of(config), "train")
    size = Tokenizer.load(run_of(config).tokenizer_path).vocab_size
    model = Transformer(config.model, size)
    data, total = found["data"], sum(p.numel() for p in model.parameters())
    tokens = int((train.src_lengths + train.tgt_lengths + 2).sum())
    assert (data["rows"], data["tokens"], data["is_exact"], data["vocab_size"]) == (len(train), tokens, True, size)
    assert found["parameters"]["total"] == total
    assert found["rule_of_thumb"]["tokens_per_parameter"] == pytest.approx(tokens / total)
    assert found["memory"]["weights"] == 4 * total
    assert tree(tmp_path) == before


def test_other_settings_than_those_prepared_are_forecast(toy: Toy, tmp_path: Path) -> None:
    assert make_plan(toy.config(tmp_path), measure=False)["data"]["is_exact"]
    assert not make_plan(toy.config(tmp_path, "data.valid=30"), measure=False)["data"]["is_exact"]
    changed = toy.config(tmp_path, "train.max_steps=7", "model.d_model=32")  # do not touch the data
    assert make_plan(changed, measure=False)["data"]["is_exact"]


def test_unprepared_data_is_forecast_near_the_truth(unprepared: Config, toy: Toy, tmp_path: Path) -> None:
    before = tree(tmp_path)
    found = make_plan(unprepared, measure=False)["data"]
    assert tree(tmp_path) == before
    truth = make_plan(toy.config(tmp_path / "prepared"), measure=False)["data"]
    assert found["rows"] == pytest.approx(truth["rows"], rel=0.05)
    assert not found["is_exact"]
    assert found["vocab_size"] == 71
    assert "by rule" in found["origin"]


def test_forecast_lengths_are_near_those_of_a_real_tokenizer(shared: Path, tmp_path: Path) -> None:
    """The rule of characters, on two corpora: within a fifth."""
    files = {"en": shared / "data/tatoeba/en-zh/train.en", "zh": shared / "data/tatoeba/en-zh/train.zh"}
    texts = {code: path.read_text("utf-8").splitlines() for code, path in files.items()}
    told = {code: sum(map(tokens_by_rule, lines)) / len(lines) for code, lines in texts.items()}
    assert told["en"] == pytest.approx(30.8 / 3.4, rel=0.2)  # as trained with 8,000 pieces: 3.40 characters a token
    assert told["zh"] == pytest.approx(9.7 / 1.49, rel=0.2)


def test_steps_epochs_and_minutes_bound_the_time(unprepared: Config) -> None:
    folder = Path(unprepared.run.dir).parent / "corpus"

    def time(*overrides: str) -> dict[str, Any]:
        found: dict[str, Any] = make_plan(toy_config(folder, *overrides), measure=False)["time"]
        return found

    long = time("train.max_steps=1000000")
    assert (long["steps"], long["limit"]) == (1_000_000, "max_steps")
    assert long["training_seconds"] == pytest.approx(1e6 * 256 / long["tokens_per_second"])
    assert long["epochs"] == pytest.approx(1e6 * 256 / make_plan(unprepared, False)["data"]["tokens"] * 2, rel=0.1)
    epochs = time("train.max_steps=1000000", "train.max_epochs=10")
    assert epochs["limit"] == "max_epochs"
    assert epochs["epochs"] == pytest.approx(10, rel=0.1)
    minutes = time("train.max_steps=100000000", "train.max_minutes=5")
    assert minutes["limit"] == "max_minutes"
    assert minutes["training_seconds"] + minutes["validation_seconds"] == pytest.approx(300)
    assert time("evaluate.bleu_every=1")["validation_share"] > time()["validation_share"] > 0


def test_weights_caps_and_folds_are_planned_with(unprepared: Config, toy: Toy, tmp_path: Path) -> None:
    folder = Path(unprepared.run.dir).parent / "corpus"
    files = f"files: {{xx: {folder}/toy.xx, yy: {folder}/toy.yy}}"
    plain = make_plan(unprepared, measure=False)
    for changes, rows, shown in (("weight: 2", 260, 520), ("cap: 100", 260, 100)):
        data = make_plan(toy_config(folder, f"data.corpora=[{{{files}, {changes}}}]"), measure=False)["data"]
        assert (data["rows"], data["seen_per_epoch"]) == (rows, shown)
    assert plain["folds"] == 1
    folds = make_plan(toy_config(folder, "data.split.kfold=4", "data.test=null"), measure=False)
    assert folds["folds"] == 4
    assert folds["data"]["rows"] == 300 - 20 - 75
    assert "for each of 4 folds" in report(folds)
    files = f"files: {{xx: {toy.folder}/toy.xx, yy: {toy.folder}/toy.yy}}"
    prepared = make_plan(toy.config(tmp_path / "prepared", f"data.corpora=[{{{files}, cap: 50}}]"), measure=False)
    assert prepared["data"]["is_exact"]
    assert prepared["data"]["seen_per_epoch"] == 50


def test_measured_speed_is_that_of_real_steps(unprepared: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MEASURE_SECONDS", 0.2)
    found = make_plan(unprepared, measure=True)["time"]
    assert found["tokens_per_second"] > 100
    assert found["seconds_per_step"] == pytest.approx(256 / found["tokens_per_second"])
    assert found["how"].startswith("measured on random text of these lengths: 1 worker(s)")


def test_the_fastest_setting_is_planned_with(unprepared: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "speed", lambda _config, _material, number: 1000.0 * number)
    monkeypatch.setattr(workers, "most_workers", lambda *_: (2, ""))
    config = toy_config(Path(unprepared.run.dir).parent / "corpus", "train.workers=auto")
    found = make_plan(config, measure=True)["time"]
    assert found["tokens_per_second"] == 2000.0
    assert "2 worker(s)" in found["how"]


def test_a_large_model_is_measured_in_smaller_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(workers, "speed", lambda config, _m, _n: seen.append(config.train.max_tokens) or 1000.0)
    found = make_plan(load(BASE, ["train.device=cpu", "train.workers=1"]), measure=True)
    assert 512 <= seen[0] < 16384
    assert f"in micro-batches of {seen[0]:,} padded tokens" in found["time"]["how"]


def test_a_corpus_of_the_hub_is_not_fetched_and_is_unknown() -> None:
    found = make_plan(load(BASE), measure=False)
    assert found["data"]["rows"] is None
    assert "rule_of_thumb" not in found
    assert found["parameters"]["total"] == 51_708_288
    text = report(found)
    assert "train split: unknown" in text
    assert "6 for each weight and token" in text


def test_what_is_wrong_with_a_corpus_is_an_error(unprepared: Config) -> None:
    next(iter(unprepared.data.corpora[0].files.values())).unlink()  # type: ignore[union-attr]
    with pytest.raises(DataError, match="no such file"):
        make_plan(unprepared, measure=False)


def test_the_report_says_all_and_names_forecasts(toy: Toy, tmp_path: Path) -> None:
    found = make_plan(toy.config(tmp_path), measure=False)
    text = report(found)
    for words in (
        "train split: 260 rows", "parameters: ", "operations, forecast: ", "memory, forecast per process: ",
        "tokens per parameter: ", "word-ferry", "speed: ", "time, forecast: ", "by rule", "disk, forecast: ",
    ):  # fmt: skip
        assert words in text, text
    tight = {**found, "memory": {**found["memory"], "free": 10}, "disk": {**found["disk"], "free": 10}}
    assert report(tight).count("that does not fit") == 2


def test_the_verb(toy: Toy, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toy.config(tmp_path)
    arguments = ["plan", str(toy.yaml), "--no-measure", "--set", f"run.dir={tmp_path}"]
    assert cli.main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"]["rows"] == 260
    assert cli.main(arguments) == 0
    assert "tokens per parameter" in capsys.readouterr().out


def test_random_rows_have_the_lengths_asked_for_and_no_special_ids() -> None:
    split = pickle.loads(pickle.dumps(RandomSplit(np.array([3, 5]), np.array([2, 9]), 50)))
    assert [len(split.src_ids(i)) for i in (0, 1)] == [3, 5]
    assert [len(split.tgt_ids(i)) for i in (0, 1)] == [2, 9]
    assert min(split.tgt_ids(1)) > 3
    assert (split.src_ids(1) == split.src_ids(1)).all()


# ── the census ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_sample_is_drawn_evenly_and_every_pair_is_counted(tmp_path: Path) -> None:
    """A sorted corpus: the mean length of the sample is that of the whole."""
    write_corpus(tmp_path, 10)
    size = 3 * MAX_SAMPLE
    (tmp_path / "toy.xx").write_text("".join(f"x{'a' * (i * 100 // size)}\n" for i in range(size)), "utf-8")
    (tmp_path / "toy.yy").write_text("".join(f"y{'a' * (i * 100 // size)}\n" for i in range(size)), "utf-8")
    (census,) = take_census(toy_config(tmp_path), 60)
    assert (census.read, census.is_whole, census.problem) == (size, True, None)
    assert MAX_SAMPLE / 2 <= len(census.drawn) <= MAX_SAMPLE
    assert np.mean([len(pair.src) for pair in census.sample]) == pytest.approx(50.5, abs=0.5)
    assert census.kept_share == 1.0


def test_a_corpus_too_large_for_its_time_is_extrapolated_by_its_bytes(tmp_path: Path) -> None:
    write_corpus(tmp_path, 10)
    for side in ("xx", "yy"):
        (tmp_path / f"toy.{side}").write_text("".join(f"{side} {i:08}\n" for i in range(20_000)), "utf-8")
    (census,) = take_census(toy_config(tmp_path), 0.0)
    assert not census.is_whole
    assert 0 < census.read < 20_000
    assert census.total(("xx", "yy")) == pytest.approx(20_000, rel=0.01)


def test_a_census_counts_what_cleaning_drops_and_finds_each_over_long_line(tmp_path: Path) -> None:
    write_corpus(tmp_path, 100)
    lines = (tmp_path / "toy.xx").read_text("utf-8").splitlines()
    lines[10], lines[20], lines[30] = "", "b" * 4000, "b" * 5000
    (tmp_path / "toy.xx").write_text("\n".join(lines) + "\n", "utf-8")
    (census,) = take_census(toy_config(tmp_path), 60)
    dropped = {reason: entry["first"] for reason, entry in census.dropped.as_dict().items()}
    assert dropped == {"empty": ["toy.xx:11"], "too_long": ["toy.xx:21", "toy.xx:31"]}
    assert (census.over_long.total(), census.longest) == (2, 5000)
    assert len(census.sample) == 97
    assert census.kept_share == pytest.approx(0.97)
