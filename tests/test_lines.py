from __future__ import annotations

import io
import json
import os
import select
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from xyd import lines
from xyd.errors import ConfigError, DataError
from xyd.lines import LineOptions, check_options, translate_file, translate_lines
from xyd.text import normalise
from xyd.translate import Translation


class Capitals:
    """Translates into capitals; knows the parts of a Translator that lines need."""

    targets = ("fr",)

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def translate(self, texts: list[str], **options: Any) -> list[Translation]:
        if options["to"] not in (None, "fr"):
            raise ConfigError(f"unknown target language {options['to']!r}")
        if any("ꙮ" in text for text in texts):
            raise ConfigError("too few tokens for the character 'ꙮ'")
        self.calls.append(list(texts))
        return [self._one(text) for text in texts]

    def _one(self, text: str) -> Translation:
        clean = normalise(text)
        if not clean:
            return Translation(text, "", 0.0, "blank")
        warnings = ["translated in 2 parts"] if "long" in clean else []
        best = {"text": clean.upper(), "score": -0.5}
        return Translation(text, clean.upper(), -0.5, "complete", warnings, [best])


def run(data: bytes, options: LineOptions | None = None, translator: Any = None) -> tuple[bytes, int, list[str]]:
    sink, warnings = io.BytesIO(), []
    failed = translate_lines(
        translator or Capitals(), io.BytesIO(data), sink, options or LineOptions(), warnings.append
    )
    return sink.getvalue(), failed, warnings


@pytest.mark.need(19)
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", b""),
        (b"a\nb\n", b"A\nB\n"),
        (b"a\nb", b"A\nB\n"),
        (b"a\r\nb\r\n", b"A\nB\n"),
        (b"\n\n", b"\n\n"),
        (b"\n", b"\n"),
        (b"a\n\n \nb", b"A\n\n\nB\n"),
        (b"\xef\xbb\xbfa\n", b"A\n"),
        ("a\u2028b\u0085c\x0cd\x1ce\rf\n g".encode(), b"A B C D E F\nG\n"),
        (b"a\x00b\nc\n", b"AB\nC\n"),
    ],
)
def test_one_line_out_for_each_line_in(data: bytes, expected: bytes) -> None:
    assert run(data) == (expected, 0, [])


@pytest.mark.need(19)
@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.binary(max_size=60) | st.text(max_size=40).map(lambda text: text.encode("utf-8", "ignore")))
@example(b"\xff\n\xe3\x80\na\r\n\r\nb")
def test_line_counts_agree_for_any_bytes(data: bytes) -> None:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        with pytest.raises(DataError, match="UTF-16"):
            run(data)
        return
    output, failed, warnings = run(data)
    num_lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    assert output.count(b"\n") == num_lines
    assert failed == sum("failed" in warning for warning in warnings)
    for number, (line, out) in enumerate(zip(data.split(b"\n"), output.split(b"\n"), strict=False), 1):
        bare = line[:-1] if line.endswith(b"\r") else line
        try:
            text = bare.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            assert out == b""
            assert any(warning.startswith(f"line {number}: failed") for warning in warnings)
        else:
            assert out.decode() == normalise(text).upper()


@pytest.mark.need(19)
def test_bad_bytes_fail_alone_and_are_named() -> None:
    output, failed, warnings = run(b"one\nt\xe3wo\nthree\n")
    assert output == b"ONE\n\nTHREE\n"
    assert failed == 1
    assert warnings == ["line 2: failed, left empty: not UTF-8: byte 0xE3 at offset 1 of the line"]


def test_a_line_that_the_model_refuses_fails_alone() -> None:
    output, failed, warnings = run("one\ntwo\nꙮ\nfour\nꙮꙮ\nsix".encode())
    assert output == b"ONE\nTWO\n\nFOUR\n\nSIX\n"
    assert failed == 2
    assert [warning.split(":")[0] for warning in warnings] == ["line 3", "line 5"]


def test_warnings_carry_the_line_number_over_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "CHUNK_LINES", 3)
    translator = Capitals()
    output, failed, warnings = run(b"a\n" * 7 + b"long\n", translator=translator)
    assert output == b"A\n" * 7 + b"LONG\n"
    assert (failed, warnings) == (0, ["line 8: translated in 2 parts"])
    assert [len(call) for call in translator.calls] == [3, 3, 2]


def test_memory_is_bounded_by_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "CHUNK_BYTES", 1000)
    translator = Capitals()
    run(b"x" * 999_999 + b"\n" + b"y" * 600 + b"\n" + b"z" * 600 + b"\n" + b"w", translator=translator)
    assert [[len(text) for text in call] for call in translator.calls] == [[999_999], [600, 600], [1]]


def test_jsonl() -> None:
    output, failed, _ = run(
        "ok\u2028long\r\n\nb\xff\xfe".encode("latin-1", "ignore") + b"\n", LineOptions(format="jsonl")
    )
    rows = [json.loads(line) for line in output.decode().splitlines()]
    assert [list(row) for row in rows] == [["source", "text", "score", "status", "warnings", "n_best"]] * 3
    assert [row["status"] for row in rows] == ["complete", "blank", "failed"]
    assert rows[0]["warnings"] == ["translated in 2 parts"]
    assert rows[0]["n_best"] == [{"text": "OKLONG", "score": -0.5}]
    assert (rows[2]["text"], rows[2]["score"], failed) == ("", None, 1)


def test_the_source_is_the_line_without_its_end_and_the_byte_order_mark() -> None:
    output, _, _ = run(b"\xef\xbb\xbfa \r\n b\r", LineOptions(format="jsonl"))
    assert [json.loads(line)["source"] for line in output.splitlines()] == ["a ", " b"]


def test_json_lines_hold_no_other_line_ends() -> None:
    output, _, _ = run("a\u2028b\u2029c\u0085d\n".encode(), LineOptions(format="jsonl"))
    assert len(output.decode().splitlines()) == 1
    assert json.loads(output)["source"] == "a\u2028b\u2029c\u0085d"


def test_options_are_checked_before_input_is_read() -> None:
    with pytest.raises(ConfigError, match="unknown target language 'de'"):
        check_options(Capitals(), LineOptions(to="de"))


def test_a_pipe_is_answered_before_it_ends() -> None:
    reader, writer = os.pipe()
    sink_reader, sink_writer = os.pipe()

    def work() -> None:
        with os.fdopen(reader, "rb") as source, os.fdopen(sink_writer, "wb") as sink:
            translate_lines(Capitals(), source, sink, LineOptions(), print)

    def answer() -> bytes:
        return os.read(sink_reader, 100) if select.select([sink_reader], [], [], 5)[0] else b"nothing in 5 seconds"

    worker = threading.Thread(target=work)
    worker.start()
    try:
        os.write(writer, b"first\nsec")
        assert answer() == b"FIRST\n"
        os.write(writer, b"ond\n")
        assert answer() == b"SECOND\n"
    finally:
        os.close(writer)
        worker.join(5)
        os.close(sink_reader)
    assert not worker.is_alive()


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_output_may_be_the_input(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"a\n" * 2000)
    with path.open("rb") as source:
        translate_file(Capitals(), source, path, LineOptions(), print)
    assert path.read_bytes() == b"A\n" * 2000
    assert os.listdir(tmp_path) == ["text"]


def test_an_interrupted_translation_leaves_no_output(tmp_path: Path) -> None:
    class Interrupted(Capitals):
        def translate(self, texts: list[str], **options: Any) -> list[Translation]:
            if self.calls:
                raise KeyboardInterrupt
            return super().translate(texts, **options)

    path = tmp_path / "out"
    path.write_bytes(b"old\n")
    with pytest.raises(KeyboardInterrupt):
        translate_file(Interrupted(), io.BytesIO(b"a\n" * 5000), path, LineOptions(), print)
    assert path.read_bytes() == b"old\n"
    assert os.listdir(tmp_path) == ["out"]


def test_links_and_devices_are_written_through(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"")
    link.symlink_to(target)
    translate_file(Capitals(), io.BytesIO(b"a\n"), link, LineOptions(), print)
    assert link.is_symlink()
    assert target.read_bytes() == b"A\n"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    translate_file(Capitals(), io.BytesIO(b"b\n"), pipe, LineOptions(), print)
    reader.join(5)
    assert got == [b"B\n"]
    assert pipe.is_fifo()
