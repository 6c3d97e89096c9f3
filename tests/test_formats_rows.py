"""Formats of rows: tables, JSON, Parquet and Arrow; packed files, lists, folders, globs; group, score, time."""

from __future__ import annotations

import gzip
import json
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from xyd.config import CorpusConfig
from xyd.errors import DataError
from xyd.formats import ReadReport, json_rows, local_files, read_corpus, source_name
from xyd.text import SentencePair

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, content: bytes | str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        return path

    return write


def read(
    *wanted: tuple[str, str], on_bad: Any = "error", report: ReadReport | None = None, **source: Any
) -> list[SentencePair]:
    source.setdefault("languages", ["en", "fr"])
    corpus = CorpusConfig(**source)
    pairs = wanted or ((corpus.languages[0], corpus.languages[1]),)  # type: ignore[index]
    return list(read_corpus(corpus, pairs, encoding="utf-8", on_bad_utf8=on_bad, report=report or ReadReport()))


def texts(pairs: list[SentencePair]) -> list[tuple[str, str]]:
    assert all(pair.flaw is None for pair in pairs)
    return [(pair.src, pair.tgt) for pair in pairs]


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


ROWS = [("one", "un"), ("two", "deux")]
TSV = "one\tun\ntwo\tdeux\n"


# ── files by name, packed ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), (".zst", zstd)])
def test_packed_files_are_read_and_damage_is_named(write: Write, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(TSV.encode())
    assert texts(read(tsv=write(f"a.tsv{suffix}", packed))) == ROWS
    assert texts(read(tsv=write("named-wrongly.tsv", packed))) == ROWS
    assert texts(read(tsv=write(f"twice.tsv{suffix}", packed + packed))) == ROWS + ROWS
    content = "".join(f"{number}\t{number * number}\n" for number in range(50_000)).encode()
    whole = pack(content)
    assert len(read(tsv=write(f"long.tsv{suffix}", whole))) == 50_000
    name = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}[suffix]
    damages = [whole[:-20], whole[: len(whole) // 2]]
    if suffix != ".zst":  # Arrow writes it without a checksum
        damages.append(whole[:1000] + b"\x00" * 100 + whole[1100:])
    for damaged in damages:
        with pytest.raises(DataError, match=rf"cut\.tsv\{suffix}: damaged {name} file") as refused:
            read(tsv=write(f"cut.tsv{suffix}", damaged))
        assert "fetch or compress it again" in str(refused.value)
    with pytest.raises(DataError, match=f"holds no {name} data"):
        read(tsv=write(f"plain.tsv{suffix}", TSV))


def test_packed_text_files_and_their_bad_bytes(write: Write) -> None:
    en = write("a.en.zst", zstd(b"a\n" * 100_000 + b"x\xe3y\n"))
    fr = write("a.fr.xz", lzma.compress(b"b\n" * 100_001))
    with pytest.raises(DataError, match=r"a\.en\.zst:100001: not utf-8: byte E3 at byte offset 200001"):
        read(files={"en": en, "fr": fr})
    assert [pair.origin for pair in read(files={"en": en, "fr": fr}, on_bad="drop") if pair.flaw] == ["a.en.zst:100001"]


def test_order_is_by_name_whether_list_folder_or_glob(write: Write, tmp_path: Path) -> None:
    b, a = write("d/x/b.tsv", "two\tdeux\n"), write("d/y/a.tsv.gz", gzip.compress(b"one\tun\n"))
    write("d/notes.md", "no table")
    write("d/.hidden.tsv", "no\tno\n")
    report = ReadReport()
    for form in ([b, a], [a, b], [a, b, a], tmp_path / "d", str(tmp_path / "d/**/*.tsv*"), [tmp_path / "d", b]):
        assert texts(read(tsv=form, report=report)) == ROWS
    assert list(report.files) == [str(a), str(b)]
    corpus = CorpusConfig(tsv=tmp_path / "d", languages=["en", "fr"])
    assert local_files(corpus) == [a, b]
    assert source_name(corpus) == "d"
    assert source_name(CorpusConfig(tsv=[b, a], languages=["en", "fr"])) == "a.tsv.gz + b.tsv"


def test_brackets_in_a_path_are_no_glob_where_such_a_path_is(write: Write, tmp_path: Path) -> None:
    write("[old] d/a.tsv", "one\tun\n")
    assert len(read(tsv=tmp_path / "[old] d")) == 1
    assert len(read(tsv=tmp_path / "[old] d/*.tsv")) == 1
    assert len(read(tsv=tmp_path / "[old] d/a.tsv")) == 1


def test_nothing_there_is_an_error_that_says_what_is(write: Write, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.tsv: no such file"):
        read(tsv=tmp_path / "nowhere.tsv")
    with pytest.raises(DataError, match=r"\*\.tsv: no file matches"):
        read(tsv=tmp_path / "*.tsv")
    (tmp_path / "d").mkdir()
    with pytest.raises(DataError, match=r"d: no file for tsv in this folder \(\.tsv \.tab \.txt\); it is empty"):
        read(tsv=tmp_path / "d")
    write("d/a.csv", "a,b\n")
    with pytest.raises(DataError, match=r"it holds a\.csv"):
        read(tsv=tmp_path / "d")


# ── tables ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_tables_of_the_shared_data(shared: Path) -> None:
    folder = shared / "data/formats"
    quotes = read(tsv=folder / "tatoeba-quotes.en-zh.tsv", languages=["en", "zh"])
    lines = (folder / "tatoeba-quotes.en-zh.tsv").read_text(encoding="utf-8").split("\n")[:-1]
    assert texts(quotes) == [tuple(line.split("\t")[:2]) for line in lines]
    assert len(quotes) == 100
    toy = read(tsv=folder / "joeynmt-toy.dev.tsv", columns={"de": "src", "en": "trg"}, languages=["de", "en"])
    assert (len(toy), toy[1].src, toy[1].tgt) == (40, "Ja , guten Tag .", "Yes , hello .")
    terms = {"en": "sourceString", "zh": "targetString"}
    g = read(csv=folder / "tico19-terms.g_en_zh-CN.csv", columns=terms, languages=["en", "zh"], group="pos")
    assert len(texts(g)) == 337
    assert (g[3].src, g[3].tgt, g[3].group, g[3].origin) == (
        "CDC",
        "CDC",
        "proper noun",
        "tico19-terms.g_en_zh-CN.csv:5",
    )
    assert len(texts(read(csv=folder / "tico19-terms.g_en_fr-FR.csv", columns={"en": 6, "fr": 7}, header=True))) == 336
    assert len(texts(read(csv=folder / "tico19-terms.f_en-zh_CN.csv", columns=terms, languages=["en", "zh"]))) == 306


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        ("one\tun\n", {}, [("one", "un")]),
        ("un\tone\tx\n", {"columns": {"en": 2, "fr": 1}}, [("one", "un")]),
        ("\ufefffr\ten\nun\tone\n", {}, [("one", "un")]),
        ("src\ttgt\none\tun\n", {}, [("one", "un")]),
        ("x\ty\none\tun\n", {"columns": {"en": "x", "fr": "y"}}, [("one", "un")]),
        ("x\ty\none\tun\n", {"columns": {"en": 1, "fr": 2}, "header": True}, [("one", "un")]),
        ("en\tfr\none\tun\n", {"header": False}, [("en", "fr"), ("one", "un")]),
        ('"one\t"un\n', {}, [('"one', '"un')]),
        ('"o\tne"\t"un\nx"\n', {"quoting": True}, [("o\tne", "un\nx")]),
    ],
)
def test_header_and_columns(write: Write, content: str, options: dict[str, Any], expected: list[Any]) -> None:
    assert texts(read(tsv=write("a.tsv", content), **options)) == expected


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (
            "en\tfr\none\tun\n",
            {"columns": {"en": "en", "fr": "fra"}},
            r"a\.tsv:1: no column fra \(for fr\); the columns are en, fr; did you mean fr\?",
        ),
        ("one\tun\n", {"columns": {"en": 1, "fr": 3}}, r"a\.tsv:1: fr is to be column 3, but there are only 2"),
        ("one\n", {}, r"a\.tsv:1: fr is to be column 2, but there are only 1"),
        ("a\tb\n", {"header": True}, r"a\.tsv:1: no text in en, fr; it holds a, b; say which is which: columns"),
        ("en\tfr\tfr\n", {"columns": {"en": "en", "fr": "fr"}}, r"a\.tsv:1: the header has fr twice"),
        ("a\tb\n", {"group": "doc"}, r"a\.tsv:1: no "),
        ("", {}, "is empty"),
    ],
)
def test_a_table_without_the_columns_is_refused(
    write: Write, content: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read(tsv=write("a.tsv", content), **options)


def test_the_first_row_may_be_the_ragged_one(write: Write) -> None:
    found = read(tsv=write("a.tsv", "one\tun\ttoo many\ntwo\tdeux\nthree\ttrois\n"))
    assert [(pair.src, pair.flaw) for pair in found] == [("", "ragged_row"), ("two", None), ("three", None)]


def test_a_ragged_row_is_dropped_by_name_and_the_rest_stays_in_step(write: Write) -> None:
    pairs = read(tsv=write("a.tsv", "one\tun\n\ntwo\tdeux\tplus\nthree\nfour\tquatre\n"))
    assert [(pair.src, pair.flaw, pair.origin) for pair in pairs] == [
        ("one", None, "a.tsv:1"),
        ("", "ragged_row", "a.tsv:2"),
        ("", "ragged_row", "a.tsv:3"),
        ("", "ragged_row", "a.tsv:4"),
        ("four", None, "a.tsv:5"),
    ]


def test_a_table_of_three_languages_gives_all_directions(write: Write) -> None:
    path = write("a.csv", 'en,fr,zh\none,un,一\n"two, 2",deux,\n')
    pairs = read(("en", "fr"), ("zh", "en"), ("en", "de"), csv=path, languages=["en", "fr", "zh"])
    assert texts(pairs) == [("one", "un"), ("一", "one"), ("two, 2", "deux"), ("", "two, 2")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('a,b\n"open,b\n' + "x,y\n" * 5, r"a\.csv:2: a quote that opens in this row is never closed"),
        ('a,b\n"open,b\n' + "x,y\n" * 20_000, r"a\.csv:2: a quote that opens in this row is never closed"),
        ('a,b\n"x"y,b\n', r"a\.csv:2: no valid CSV .* set quoting: false"),
    ],
)
def test_broken_quotes_are_named(write: Write, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(csv=write("a.csv", content))


def test_origins_count_the_lines_inside_of_cells(write: Write) -> None:
    pairs = read(csv=write("a.csv", '"a\nb",c\r\nd,"e ""f"""\n'))
    assert [(pair.src, pair.tgt, pair.origin) for pair in pairs] == [
        ("a\nb", "c", "a.csv:1"),
        ("d", 'e "f"', "a.csv:3"),
    ]


def test_bytes_of_another_encoding_in_a_table(write: Write) -> None:
    path = write("a.tsv", b"one\tun\ntwo\tcaf\xe9\nthree\ttrois\n")
    with pytest.raises(DataError, match=r"a\.tsv:2: not utf-8: byte E9 at byte offset 14"):
        read(tsv=path)
    assert [pair.flaw for pair in read(tsv=path, on_bad="drop")] == [None, "bad_utf8", None]
    assert texts(read(tsv=path, encoding="latin-1"))[1] == ("two", "café")


texts_of_any_kind = st.text(st.characters(exclude_characters="\t\n", exclude_categories=["Cs"]), max_size=12)
texts_of_any_kind |= st.sampled_from(
    ['"', '""', '"a" b', "a\u2028b", "a\x85b", "\x0c", "a\x1eb", "\u2029", "\x00", "\ufeffx"]
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(rows=st.lists(st.tuples(texts_of_any_kind, texts_of_any_kind), min_size=1))
def test_any_text_comes_back_from_a_table_and_from_json(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    rows = [("head", "tête")] + [(a, b.removesuffix("\r")) for a, b in rows]
    folder = tmp_path_factory.mktemp("trip")
    (folder / "a.tsv").write_bytes("".join(f"{a}\t{b}\n" for a, b in rows).encode())
    objects = [{"src": a, "tgt": b} for a, b in rows]
    raw = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in objects)
    (folder / "a.jsonl").write_bytes(raw.encode())
    (folder / "a.json").write_bytes(json.dumps(objects, ensure_ascii=False).encode())
    (folder / "b.json").write_bytes(json.dumps(objects, indent=1).encode())
    assert texts(read(tsv=folder / "a.tsv", header=False)) == rows
    assert texts(read(jsonl=folder / "a.jsonl")) == rows
    assert texts(read(json=folder / "a.json")) == texts(read(json=folder / "b.json")) == rows


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_json_of_the_shared_data(shared: Path) -> None:
    folder = shared / "data/formats"
    array = read(json=folder / "alma-valid.zh-en.first200.json", languages=["zh", "en"])
    lines = read(jsonl=folder / "alma-valid.zh-en.first200.jsonl", languages=["zh", "en"])
    rows = json.loads((folder / "alma-valid.zh-en.first200.json").read_text(encoding="utf-8"))
    assert texts(array) == texts(lines) == [(row["translation"]["zh"], row["translation"]["en"]) for row in rows]
    assert (len(array), array[16].origin, lines[16].origin) == (
        200,
        "alma-valid.zh-en.first200.json:item 17",
        "alma-valid.zh-en.first200.jsonl:17",
    )
    shots = read(
        json=folder / "alma-shots.en-zh.escaped.json", columns={"en": "source", "zh": "target"}, languages=["en", "zh"]
    )
    assert texts(shots)[1] == ("Where Are You? I'm Here", "你在哪裡？我在這裡")
    assert len(shots) == 5


def test_keys_may_lie_deeper_and_rows_may_lack_some(write: Write) -> None:
    rows = [{"a": {"en": "one"}, "b": {"x": {"fr": "un"}}}, {"a": None, "b": {"x": {"fr": "deux"}}}, {"b": {}}]
    path = write("a.json", json.dumps(rows))
    pairs = read(json=path, columns={"en": "a.en", "fr": "b.x.fr"})
    assert [(pair.src, pair.tgt, pair.flaw) for pair in pairs] == [
        ("one", "un", None),
        ("", "deux", "missing_side"),
        ("", "", "missing_side"),
    ]
    assert read(json=write("none.json", " [ ] \n")) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"en": "one", "fr": "un"}\n["one", "un"]\n', r"a\.json:2: expected an object, \{…\}, got an array"),
        ('{"en": "one", "fr": "un"}\n{"en": 2, "fr": "deux"}\n', r"a\.json:2: en is int, not text"),
        ('{"en": "one", "fr": "un"}\n{"en": "two", "fr"\n', r"a\.json:2: no JSON object on this line"),
        ('{\n"en": "one"}\n', r"a\.json:1: no JSON object on this line \(nor is the file an array of objects\)"),
        ('{"en": "one", "french": "un"}\n', r"no text in fr; it holds en, french; say which is which"),
        (
            '[{"en": "one", "fr": "un"},\n {"en": "two" "fr": "deux"}]',
            r"a\.json:2: broken JSON at item 2 of the array: Expecting ','",
        ),
        (
            '[{"en": "one", "fr": "un"}\n {"en": "two", "fr": "deux"}]',
            r"a\.json:2: broken JSON at item 1 .* expected , or \]",
        ),
        ('[{"en": "one", "fr": "un"},\n\n "two"]', r"a\.json:3: broken JSON at item 2 .* expected an object"),
        ('[{"en": "one", "fr": "un"},\n]', r"a\.json:2: broken JSON at item 2 .* expected an object"),
        ('[{"en": "one", "fr": "un"}', r"a\.json:1: broken JSON at item 1 .* found the end of the file"),
        ('[{"en": "one", "fr": "un"}] x', r"expected the end of the file after \], found x"),
        ('[{"en": "one", "fr": "u', r"broken JSON at item 1 of the array: Unterminated string"),
        ("[" * 100_000, r"broken JSON at item 1 .* expected an object"),
        ('[{"en":' + "[" * 100_000, r"broken JSON at item 1"),
    ],
)
def test_broken_json_is_named_by_line(write: Write, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as refused:
        read(json=write("a.json", content))
    assert str(refused.value).count("\n") == 0


def test_bytes_of_another_encoding_in_json(write: Write) -> None:
    array = write(
        "a.json", b'[{"en": "one", "fr": "un"},\n{"en": "two", "fr": "caf\xe9"},\n{"en": "3", "fr": "trois"}]'
    )
    lines = write("a.jsonl", b'{"en": "one", "fr": "un"}\n{"en": "two", "fr": "caf\xe9"}\n{"en": "3", "fr": "trois"}\n')
    for path, offset in ((array, 52), (lines, 50)):
        with pytest.raises(DataError, match=rf"{path.name}:2: not utf-8: byte E9 at byte offset {offset} "):
            read(json=path)
        assert [pair.flaw for pair in read(json=path, on_bad="drop")] == [None, "bad_utf8", None]
        assert texts(read(json=path, encoding="cp1252"))[1] == ("two", "café")


@pytest.mark.parametrize("block", [1, 2, 3, 5, 7, 1000])
def test_an_array_reads_the_same_in_blocks_of_any_size(
    write: Write, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(json_rows, "_BLOCK", block)
    good = ' [ {"src": "你好 \\u4f60 é", "tgt": "a\\"]}b"} ,\n{"src": "二", "tgt": ""}\n]\n'
    assert texts(read(json=write("a.json", good))) == [("你好 你 é", 'a"]}b'), ("二", "")]
    cut = '[{"src": "你好",\n "tgt": "你'.encode()[:-1] + b'"}]'
    with pytest.raises(DataError, match=r"a\.json:2: not utf-8: byte E4 BD at byte offset 28 of the file"):
        read(json=write("a.json", cut))


def test_a_long_array_is_read_in_little_memory(write: Write) -> None:
    row = json.dumps({"en": "word " * 20, "fr": "mot " * 20})
    path = write("a.json", "[" + ",\n".join([row] * 40_000) + "]")
    corpus = CorpusConfig(json=path, languages=["en", "fr"])
    stream = read_corpus(corpus, [("en", "fr")], encoding="utf-8", on_bad_utf8="error", report=ReadReport())
    next(stream)
    tracemalloc.start()
    try:
        assert sum(1 for _ in stream) == 39_999
        assert tracemalloc.get_traced_memory()[1] < 4_000_000  # bytes; the file holds eight million
    finally:
        tracemalloc.stop()


# ── Parquet and Arrow ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_parquet_of_the_shared_data(shared: Path) -> None:
    pairs = read(parquet=shared / "data/formats/tico19.en-zh.first300.parquet", languages=["en", "zh"])
    lines = (shared / "data/tico19/test.en").read_text(encoding="utf-8").split("\n")
    assert [src for src, _ in texts(pairs)] == lines[:300]
    assert pairs[6].origin == "tico19.en-zh.first300.parquet:row 7"


TABLE = pa.table(
    {
        "translation": [{"en": "one", "fr": "un"}, None, {"en": "three", "fr": None}],
        "doc": ["d1", "d1", "d2"],
        "score": [0.5, None, 1.0],
        "other": [b"\xff", b"", None],
    }
)


@pytest.mark.parametrize("kind", ["parquet", "file", "stream"])
def test_columns_of_parquet_and_arrow(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        parquet.write_table(TABLE, path)
    else:
        new = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        with new(str(path), TABLE.schema) as writer:
            writer.write_table(TABLE, max_chunksize=2)
    form = "parquet" if kind == "parquet" else "arrow"
    pairs = read(group="doc", score="score", **{form: path})
    assert [(p.src, p.tgt, p.group, p.score, p.flaw, p.origin) for p in pairs] == [
        ("one", "un", "d1", 0.5, None, f"a.{kind}:row 1"),
        ("", "", "d1", None, "missing_side", f"a.{kind}:row 2"),
        ("three", "", "d2", 1.0, "missing_side", f"a.{kind}:row 3"),
    ]
    named = {"en": "translation.en", "fr": "doc"}
    assert texts(read(columns=named, **{form: path})[:1]) == [("one", "d1")]
    with pytest.raises(DataError, match=r"no column translation\.zh \(for fr\); the columns are translation\.en, tra"):
        read(columns={"en": "translation.en", "fr": "translation.zh"}, **{form: path})
    with pytest.raises(DataError, match=r"no text in zh; it holds translation\.en, translation\.fr, doc, score, other"):
        read(languages=["en", "zh"], **{form: path})
    with pytest.raises(DataError, match="score is float, not text"):
        read(columns={"en": "translation.en", "fr": "score"}, **{form: path})


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_what_is_no_parquet_or_arrow_is_refused(write: Write, form: str) -> None:
    with pytest.raises(DataError, match=f"a.x: cannot be read as {form}: "):
        read(**{form: write("a.x", "one\tun\n" * 100)})
    with pytest.raises(DataError, match="no such file"):
        read(**{form: write("a.x", "").with_name("b.x")})


# ── what a source tells besides the texts ───────────────────────────────────────────────────────────────────────────


def test_group_score_and_time_from_columns(write: Write) -> None:
    rows = "one\tun\tdoc1 p2\t0.9\t2024-01\ntwo\tdeux\t\t\t\nthree\ttrois\tdoc1 p3\tgood\t2025\n"
    pairs = read(tsv=write("a.tsv", rows), group=3, group_pattern=r"^\S+", score=4, time=5)
    assert [(pair.group, pair.score, pair.time, pair.flaw) for pair in pairs] == [
        ("doc1", 0.9, "2024-01", None),
        (None, None, None, None),
        ("doc1", None, "2025", "bad_score"),
    ]
    with pytest.raises(DataError, match=r"a\.tsv:1: group_pattern x matches nothing in 'doc1 p2'"):
        read(tsv=write("a.tsv", rows), group=3, group_pattern="x")
    (pair, *_) = read(json=write("a.json", '[{"en": "1", "fr": "2", "meta": {"id": 7, "s": true}}]'), group="meta.id")
    assert pair.group == "7"


def test_group_from_a_file_beside_the_texts(write: Write, shared: Path) -> None:
    folder = shared / "data/unpc"
    files = {"en": folder / "UNv1.0.devset.en", "fr": folder / "UNv1.0.devset.fr"}
    pairs = read(files=files, group=str(folder / "UNv1.0.devset.ids"), group_pattern=r"^\S+")
    assert (len(pairs), pairs[0].group, pairs[1].group) == (4000, "2015/a/69/767", "2015/a/ac_182/l_139")
    short = write("short.ids", "a\n" * 3999)
    with pytest.raises(DataError, match=r"UNv1\.0\.devset\.en has 4000 lines but short\.ids has 3999"):
        read(files=files, group=str(short))
