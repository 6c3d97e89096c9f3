"""Readers: every pair in step, raw, in order; whatever cannot be read is named by file, line and remedy."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xyd.config import CorpusConfig, HfConfig
from xyd.errors import DataError
from xyd.formats import ReadReport, lines, read_corpus, read_files
from xyd.formats.encodings import likely_encoding
from xyd.text import SentencePair

ZH = "我们在学校里学习中文，老师说今天的天气很好。"
TW = "我們今天去學校學習，請問車站在哪裡？謝謝你的幫助。"
JA = "今日はとても良い天気ですね。この本はあなたのものですか？"
KO = "안녕하세요 만나서 반갑습니다. 오늘 날씨가 좋네요."
FR = "Le café fermé près de la forêt a été vendu à un étranger déçu."


def read(
    en: Path, fr: Path, *, encoding: str = "utf-8", on_bad_utf8: Any = "error", report: ReadReport | None = None
) -> list[SentencePair]:
    return list(
        read_files(
            {"en": en, "fr": fr},
            [("en", "fr")],
            encoding=encoding,
            on_bad_utf8=on_bad_utf8,
            report=report or ReadReport(),
        )
    )


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(name: str, content: bytes | str) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        return path

    return write


# ── lines ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pairs_come_in_step_with_their_origin(write: Any) -> None:
    pairs = read(write("train.en", "one\ntwo\n"), write("train.fr", "un\ndeux\n"))
    assert pairs == [
        SentencePair("one", "un", "en", "fr", "train.en:1"),
        SentencePair("two", "deux", "en", "fr", "train.en:2"),
    ]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=12), min_size=1))
def test_only_lf_ends_a_line(tmp_path_factory: pytest.TempPathFactory, given_lines: list[str]) -> None:
    texts = ["x"] + [line.removesuffix("\r") for line in given_lines]  # a CR before LF is part of the line end
    folder = tmp_path_factory.mktemp("lines")
    (folder / "en").write_bytes("".join(line + "\n" for line in texts).encode())
    (folder / "fr").write_bytes("".join(f"{number}\r\n" for number in range(len(texts))).encode())
    pairs = read(folder / "en", folder / "fr")
    assert [(pair.src, pair.tgt) for pair in pairs] == [(line, str(i)) for i, line in enumerate(texts)]


@pytest.mark.need(6)
@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r"])
def test_false_line_ends_do_not_shift_a_thousand_pairs(write: Any, character: str) -> None:
    src = [f"line {number}" for number in range(1, 1001)]
    tgt = [f"ligne {number}" for number in range(1, 1001)]
    tgt[499] = f"ligne {character}500{character} ou {character}{character}"
    en = write("t.en", "\n".join(src) + "\n")
    pairs = read(en, write("t.fr", "\n".join(tgt) + "\n"))
    assert len(pairs) == 1000
    assert (pairs[-1].src, pairs[-1].tgt) == ("line 1000", "ligne 1000")

    del tgt[699]
    with pytest.raises(DataError) as refused:
        read(en, write("t.fr", "\n".join(tgt) + "\n"))
    for part in ("t.en has 1000 lines", "t.fr has 999", "near line 700"):
        assert part in str(refused.value)


def test_crlf_bom_and_bytes_are_reported(write: Any) -> None:
    report = ReadReport()
    en, fr = write("a.en", b"\xef\xbb\xbfone\r\ntwo\nthree\r\n"), write("a.fr", "un\ndeux\ntrois")
    assert [pair.src for pair in read(en, fr, report=report)] == ["one", "two", "three"]
    assert report.as_dict() == {
        str(en): {"lines": 3, "bytes": 19, "bom": 1, "crlf": 2, "bad_lines": 0},
        str(fr): {"lines": 3, "bytes": 13, "bom": 0, "crlf": 0, "bad_lines": 0},
    }


def test_a_mark_inside_the_text_stays_raw(write: Any) -> None:
    (pair, second) = read(write("a.en", "\ufeff\ufeffone\n\ufefftwo\n"), write("a.fr", "un\ndeux\n"))
    assert (pair.src, second.src) == ("\ufeffone", "\ufefftwo")


def test_final_newline_makes_no_difference_and_blank_lines_count(write: Any) -> None:
    assert [p.src for p in read(write("a.en", "one\n\n"), write("a.fr", "un\n "))] == ["one", ""]
    assert len(read(write("a.en", "\n"), write("a.fr", "un"))) == 1


def test_three_languages_give_three_pairs_a_line_and_only_those_wanted(write: Any) -> None:
    files = {"en": write("t.en", "one\ntwo\n"), "fr": write("t.fr", "un\ndeux\n"), "zh": write("t.zh", "一\n二\n")}
    corpus = CorpusConfig(files=files)

    def pairs(*wanted: tuple[str, str], corpus: CorpusConfig = corpus) -> list[tuple[str, str, str]]:
        found = read_corpus(corpus, wanted, encoding="utf-8", on_bad_utf8="error", report=ReadReport())
        return [(pair.src, pair.tgt, pair.origin) for pair in found]

    assert pairs(("en", "fr"), ("zh", "en"), ("fr", "zh")) == [
        ("one", "un", "t.en:1"),
        ("一", "one", "t.zh:1"),
        ("un", "一", "t.fr:1"),
        ("two", "deux", "t.en:2"),
        ("二", "two", "t.zh:2"),
        ("deux", "二", "t.fr:2"),
    ]
    files["fr"].unlink()  # not wanted, so not looked at
    assert pairs(("zh", "en"), ("en", "de")) == [("一", "one", "t.zh:1"), ("二", "two", "t.zh:2")]
    assert pairs(("en", "de")) == []
    narrowed = CorpusConfig(files=files, languages=["en", "zh"])
    assert len(pairs(("en", "fr"), ("en", "zh"), corpus=narrowed)) == 2


def test_a_line_of_a_megabyte_is_read_whole(write: Any) -> None:
    (pair,) = read(write("a.en", "x" * 1_000_000 + "\n"), write("a.fr", "y" * 2_000_001))
    assert (len(pair.src), len(pair.tgt)) == (1_000_000, 2_000_001)


def test_a_line_without_end_is_refused_before_it_fills_the_memory(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1 << 20)
    en, fr = write("a.en", "one\n" + "x" * (1 << 21)), write("a.fr", "un\ndeux\n")
    with pytest.raises(DataError, match=r"a\.en:2: a line of more than 1 MiB"):
        read(en, fr)


def test_reading_holds_one_line_at_a_time(write: Any) -> None:
    en, fr = write("a.en", ("word " * 20 + "\n") * 40_000), write("a.fr", ("mot " * 20 + "\n") * 40_000)
    stream = read_files(
        {"en": en, "fr": fr}, [("en", "fr")], encoding="utf-8", on_bad_utf8="error", report=ReadReport()
    )
    next(stream)  # past the counting
    tracemalloc.start()
    try:
        num_pairs = 1 + sum(1 for _ in stream)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert num_pairs == 40_000
    assert peak < 500_000  # bytes; the files hold seven million


# ── files that cannot be read ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        ("one\ntwo\n".encode("utf-16"), "iconv -f UTF-16"),
        ("one\ntwo\n".encode("utf-16-le"), "iconv -f UTF-16"),
        ("one\ntwo\n".encode("utf-16-be"), "iconv -f UTF-16"),
        (f"{ZH}\n".encode("utf-16"), "iconv -f UTF-16"),
        (b"one\rtwo\r", "CR only"),
        (b"PK\x03\x04\x14\x00\x00\x00", "zip"),
        (b"\x1f\x8b\x08\x00damaged", "damaged gzip"),
        (gzip.compress(b"one\ntwo\n" * 100)[:-12], "damaged gzip"),
        (gzip.compress(b""), "is empty"),
    ],
)
def test_what_is_no_list_of_sentences_is_refused_by_name(write: Any, content: bytes, message: str) -> None:
    fr = write("a.fr", "un\ndeux\n")
    with pytest.raises(DataError, match=message) as refused:
        read(write("a.en", content), fr)
    assert str(refused.value).startswith(str(fr.with_name("a.en")))


def test_missing_file_directory_and_false_gz(write: Any, tmp_path: Path) -> None:
    fr = write("corpus.fr", "un\n")
    write("corpus.en", "one\n")
    with pytest.raises(DataError, match=r"corpus\.eng: no such file; did you mean corpus\.en\?"):
        read(tmp_path / "corpus.eng", fr)
    with pytest.raises(DataError, match="no such file; check the path"):
        read(tmp_path / "nowhere" / "a.en", fr)
    with pytest.raises(DataError, match="is a directory"):
        read(tmp_path, fr)
    with pytest.raises(DataError, match="holds no gzip data"):
        read(write("a.en.gz", "one\n"), fr)


def test_gzip_is_known_by_its_content(write: Any) -> None:
    packed = gzip.compress(b"one\r\n") + gzip.compress(b"two\n")  # members in a row are one file
    fr, report = write("a.fr", "un\ndeux\n"), ReadReport()
    for name in ("a.en.gz", "a.en"):
        assert [pair.src for pair in read(write(name, packed), fr, report=report)] == ["one", "two"]
    assert report.files[str(fr.with_name("a.en.gz"))].crlf == 1


def test_both_counts_and_the_line_where_sides_part(write: Any, shared: Path) -> None:
    en = (shared / "data/multi30k/val.en").read_bytes().splitlines(keepends=True)
    fr = (shared / "data/multi30k/val.fr").read_bytes().splitlines(keepends=True)
    short = fr[:599] + fr[601:]  # lines 600 and 601 are lost
    for a, b in ((en, short), (short, en)):
        with pytest.raises(DataError) as refused:
            read(write("v.en", b"".join(a)), write("v.fr", b"".join(b)))
        message = str(refused.value)
        assert f"v.en has {len(a)} lines but v.fr has {len(b)}" in message
        assert 597 <= int(message.split("near line ")[1].split(":")[0]) <= 603


def test_without_evidence_no_line_is_blamed(write: Any) -> None:
    with pytest.raises(DataError) as refused:
        read(write("a.en", "same\n" * 10), write("a.fr", "pareil\n" * 9))
    assert "near line" not in str(refused.value)


def test_a_file_that_grows_or_shrinks_meanwhile_is_noticed(write: Any) -> None:
    en, fr = write("a.en", "one\n" * 20_000), write("a.fr", "un\n" * 20_000)
    stream = read_files(
        {"en": en, "fr": fr}, [("en", "fr")], encoding="utf-8", on_bad_utf8="error", report=ReadReport()
    )
    next(stream)
    with en.open("r+b") as file:
        file.truncate(60_000)
    with pytest.raises(DataError, match="changed while it was read"):
        list(stream)


# ── encodings ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.need(48)
def test_a_stray_byte_far_down_is_named_or_its_pair_dropped(write: Any) -> None:
    en = write("big.en", b"a\n" * 500_000 + b"x\xe3y\n" + b"a\n")
    fr = write("big.fr", b"b\n" * 500_002)
    with pytest.raises(DataError) as refused:
        read(en, fr)
    assert f"{en}:500001: " in str(refused.value)
    assert "byte E3 at byte offset 1000001 " in str(refused.value)
    report = ReadReport()
    stream = read_files({"en": en, "fr": fr}, [("en", "fr")], encoding="utf-8", on_bad_utf8="drop", report=report)
    assert [(pair.flaw, pair.origin) for pair in stream if pair.flaw] == [("bad_utf8", "big.en:500001")]
    assert report.as_dict()[str(en)] == {"lines": 500_002, "bytes": 1_000_006, "bom": 0, "crlf": 0, "bad_lines": 1}


def test_a_bad_side_flags_every_pair_of_its_row_and_no_other(write: Any) -> None:
    files = {"en": write("t.en", "one\n"), "fr": write("t.fr", b"\xff\n"), "zh": write("t.zh", "一\n")}
    wanted = [("en", "fr"), ("en", "zh"), ("zh", "fr")]
    pairs = list(read_files(files, wanted, encoding="utf-8", on_bad_utf8="drop", report=ReadReport()))
    assert [pair.flaw for pair in pairs] == ["bad_utf8", None, "bad_utf8"]
    assert pairs[0].tgt == ""  # never a replacement character


@pytest.mark.parametrize(
    ("text", "encoding"),
    [(ZH, "gb18030"), (ZH, "gbk"), (TW, "big5"), (JA, "shift_jis"), (JA, "euc_jp"), (KO, "euc_kr"), (FR, "cp1252")],
)
def test_a_given_encoding_reads_right_and_a_forgotten_one_is_guessed(write: Any, text: str, encoding: str) -> None:
    en, fr = write("a.en", "one\ntwo\n"), write("a.fr", f"{text}\r\n{text}\n".encode(encoding))
    assert [pair.tgt for pair in read(en, fr, encoding=encoding)] == [text, text]
    with pytest.raises(DataError) as refused:
        read(en, fr)
    told = {"gbk": "gb18030"}.get(encoding, encoding)
    assert f"a.fr:1: not utf-8: byte {text.encode(encoding).lstrip(bytes(range(128)))[0]:02X} at" in str(refused.value)
    assert f"set data.encoding: {told}," in str(refused.value)
    assert "on_bad_utf8" not in str(refused.value)  # dropping the whole file is no remedy


def test_offsets_count_mark_and_line_ends(write: Any) -> None:
    en = write("a.en", b"\xef\xbb\xbfone\r\n" + "é\n".encode() + b"two \xff\xfe\n")
    with pytest.raises(DataError, match=r"a\.en:3: not utf-8: byte FF at byte offset 15 of the file; most other lines"):
        read(en, write("a.fr", "1\n2\n3\n"))


def test_unguessable_bytes_get_no_guess() -> None:
    assert likely_encoding([bytes(range(128, 256))], "utf-8") is None
    assert likely_encoding(["Привет, как дела".encode("cp1251")], "utf-8") is None


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "cp037"])
def test_an_encoding_whose_lines_cannot_be_cut_is_refused(write: Any, encoding: str) -> None:
    en = write("a.en", "one\n".encode(encoding))
    with pytest.raises(DataError, match=r"data\.encoding: .*0x0A.*convert"):
        read(en, en, encoding=encoding)


@pytest.mark.parametrize("encoding", ["klingon", "rot13", "hex"])
def test_an_unknown_encoding_is_refused(write: Any, encoding: str) -> None:
    en = write("a.en", "one\n")
    with pytest.raises(DataError, match=r"data\.encoding: .* is no known text encoding"):
        read(en, en, encoding=encoding)


def test_utf8_under_another_encoding_is_refused_instead_of_read_wrongly(write: Any) -> None:
    en = write("a.en", "one\n")
    for content in (f"{ZH}\n", "\ufeffone\n"):
        with pytest.raises(DataError, match=r"a\.fr: is UTF-8, but data\.encoding is gb18030"):
            read(en, write("a.fr", content), encoding="gb18030")


# ── data sets ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`datasets` with a cache of its own and no network."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


def read_hub(
    *wanted: tuple[str, str], languages: list[str] | None = None, report: ReadReport | None = None, **hf: Any
) -> Iterator[SentencePair]:
    corpus = CorpusConfig(hf=HfConfig(**hf), languages=languages or list(wanted[0]))
    return read_corpus(corpus, wanted, encoding="utf-8", on_bad_utf8="error", report=report or ReadReport())


def write_rows(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_parquet_with_a_translation_column(shared: Path, offline: None, capfd: pytest.CaptureFixture[str]) -> None:
    path = str(shared / "data/formats/tico19.en-zh.first300.parquet")
    report = ReadReport()
    pairs = list(read_hub(("zh", "en"), path="parquet", data_files=path, report=report))
    assert len(pairs) == 300
    lines = (shared / "data/tico19/test.en").read_text(encoding="utf-8").split("\n")
    assert [pair.tgt for pair in pairs] == lines[:300]
    assert (pairs[6].src_lang, pairs[6].origin) == ("zh", "tico19.en-zh.first300.parquet[train]:7")
    assert report.files[f"{path}[train]"].lines == 300
    assert capfd.readouterr().err == ""  # no progress bars


def test_json_lines_with_a_translation_column(shared: Path, offline: None) -> None:
    path = shared / "data/formats/alma-valid.zh-en.first200.jsonl"
    rows = [json.loads(line)["translation"] for line in path.read_text(encoding="utf-8").split("\n") if line]
    pairs = list(read_hub(("en", "zh"), path="json", data_files={"train": [str(path)]}, languages=["en", "zh"]))
    assert [(pair.src, pair.tgt) for pair in pairs] == [(row["en"], row["zh"]) for row in rows]


def test_one_column_per_language(tmp_path: Path, offline: None) -> None:
    rows = [{"id": 1, "en": "one", "fr": "un", "zh": "一\u2028"}, {"id": 2, "en": None, "fr": "deux", "zh": "二"}]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    pairs = list(read_hub(("en", "fr"), ("zh", "fr"), languages=["en", "fr", "zh"], path="json", data_files=path))
    assert [(pair.src, pair.tgt) for pair in pairs] == [("one", "un"), ("一\u2028", "un"), ("", "deux"), ("二", "deux")]
    assert pairs[-1].origin == "rows.jsonl[train]:2"


def test_a_folder_of_data_files(tmp_path: Path, offline: None) -> None:
    (tmp_path / "mine").mkdir()
    write_rows(tmp_path / "mine" / "test.jsonl", [{"en": "one", "fr": "un"}])
    (pair,) = read_hub(("en", "fr"), path=str(tmp_path / "mine"), split="test")
    assert (pair.src, pair.tgt) == ("one", "un")


@pytest.mark.parametrize(
    ("wanted", "languages", "message"),
    [
        (("en", "zh"), ["en", "zh"], r"\[train\]: no text in zh; it holds id, en, fr; say which is which: columns"),
        (("en", "id"), None, r"\[train\]:1: id is int, not text"),
    ],
)
def test_a_column_that_is_missing_or_no_text_is_named(
    tmp_path: Path, offline: None, wanted: tuple[str, str], languages: list[str] | None, message: str
) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [{"id": 0, "en": "one", "fr": "un"}])
    with pytest.raises(DataError, match=message) as refused:
        list(read_hub(wanted, languages=languages, path="json", data_files=path))
    assert "rows.jsonl[train]:" in str(refused.value)


@pytest.mark.parametrize(
    ("hf", "said"),
    [
        ({"split": "dev"}, 'Unknown split "dev"'),
        ({"data_files": "/nowhere/rows.jsonl"}, "Unable to find '/nowhere/rows.jsonl'"),
        ({"path": "parquet"}, "Parquet magic bytes not found"),
        ({"path": "nobody/nothing", "data_files": None}, "Couldn't reach 'nobody/nothing' on the Hub"),
    ],
)
def test_what_the_library_says_against_a_data_set_reaches_the_user(
    tmp_path: Path, offline: None, hf: dict[str, Any], said: str
) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [{"id": 1, "en": "one", "fr": "un"}])
    with pytest.raises(DataError, match=f"cannot be loaded: {said}(.|\n)*Check path, name, split"):
        list(read_hub(("en", "fr"), **({"path": "json", "data_files": path} | hf)))


def test_the_reason_inside_a_general_error_is_told(tmp_path: Path, offline: None) -> None:
    (tmp_path / "rows.jsonl").write_text('{"en": "one", "fr": "un"}\n{"en": "two", "fr"\n', encoding="utf-8")
    with pytest.raises(DataError, match="generating the dataset; JSON parse error"):
        list(read_hub(("en", "fr"), path="json", data_files=str(tmp_path / "rows.jsonl")))


def test_a_translation_column_of_another_kind_is_refused(tmp_path: Path, offline: None) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [{"translation": "one ||| un"}])
    with pytest.raises(DataError, match=r"no text in en, fr; it holds translation;"):
        list(read_hub(("en", "fr"), path="json", data_files=path))


@pytest.mark.parametrize("streaming", [False, True])
def test_a_stream_gives_the_same_pairs(tmp_path: Path, offline: None, streaming: bool) -> None:
    rows = [{"a": "one", "b": {"c": "un"}, "doc": "d1", "more": [1, 2]}, {"a": "two", "b": {"c": None}, "doc": "d2"}]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    hf = HfConfig(path="json", data_files=path, streaming=streaming)
    corpus = CorpusConfig(hf=hf, columns={"en": "a", "fr": "b.c"}, group="doc")
    pairs = list(
        read_corpus(corpus, [("en", "fr")], encoding="utf-8", on_bad_utf8="error", report=(report := ReadReport()))
    )
    assert [(pair.src, pair.tgt, pair.group, pair.flaw) for pair in pairs] == [
        ("one", "un", "d1", None),
        ("two", "", "d2", "missing_side"),
    ]
    assert report.files[f"{path}[train]"].lines == 2
    wrong = CorpusConfig(hf=hf, columns={"en": "a", "fr": "c"})
    with pytest.raises(DataError, match=r"no column c \(for fr\); the columns are a, b\.c, doc, more"):
        list(read_corpus(wrong, [("en", "fr")], encoding="utf-8", on_bad_utf8="error", report=ReadReport()))


def test_a_data_set_made_by_a_script_gets_a_way_out(tmp_path: Path, offline: None) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "mine.py").write_text("raise SystemExit('must not run')\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"(?s)scripts are no longer supported.*revision: refs/convert/parquet"):
        list(read_hub(("en", "fr"), path=str(tmp_path / "mine")))
