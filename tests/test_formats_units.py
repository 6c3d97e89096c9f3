"""Formats of translation units: TMX, XLIFF, gettext PO, subtitles, WMT XML."""

from __future__ import annotations

import socket
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xyd.config import CorpusConfig
from xyd.errors import DataError
from xyd.formats import ReadReport, lines, read_corpus
from xyd.text import SentencePair

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, content: bytes | str) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        return path

    return write


def read(*wanted: tuple[str, str], on_bad: Any = "error", **source: Any) -> list[SentencePair]:
    source.setdefault("languages", ["en", "zh"])
    pairs = wanted or (tuple(source["languages"]),)
    return list(read_corpus(CorpusConfig(**source), pairs, encoding="utf-8", on_bad_utf8=on_bad, report=ReadReport()))


def texts(pairs: list[SentencePair]) -> list[tuple[str, str]]:
    assert all(pair.flaw is None for pair in pairs)
    return [(pair.src, pair.tgt) for pair in pairs]


def outcome(pairs: list[SentencePair]) -> list[tuple[str, str, str | None]]:
    return [(pair.src, pair.tgt, pair.flaw) for pair in pairs]


def flaws(pairs: list[SentencePair]) -> dict[str | None, int]:
    return dict(Counter(pair.flaw for pair in pairs))


# ── TMX ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def tmx(*units: str, head: str = "") -> str:
    return f'{head}<tmx version="1.4"><header srclang="en"/><body>{"".join(units)}</body></tmx>'


def tu(attributes: str = "", /, **variants: str) -> str:
    inside = "".join(
        f'<tuv xml:lang="{code.replace("_", "-")}"><seg>{text}</seg></tuv>' for code, text in variants.items()
    )
    return f"<tu {attributes}>{inside}</tu>\n"


def test_the_memories_of_the_shared_data(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise AssertionError("a DTD was to be fetched")

    monkeypatch.setattr(socket, "socket", no_network)
    folder = shared / "data/formats"
    tico = read(tmx=folder / "tico19.en-zh.first250.tmx")
    assert len(texts(tico)) == 250
    assert (tico[0].tgt, tico[16].origin) == ("这些症状已持续多长时间？", "tico19.en-zh.first250.tmx:unit 17")
    inline = read(tmx=folder / "heartsome.en-zh.inline-tags.tmx")
    assert len(texts(inline)) == 314
    assert [pair for pair in inline if any(code in pair.src + pair.tgt for code in ("{\\", "\\cf", "}"))] == []
    assert (inline[3].src, inline[3].tgt) == ("7 External microphone", "7 外置麦克风")
    lower = read(
        tmx=folder / "heartsome.zh-en.utf8.tmx", languages=["zh", "en"], group="x-project", time="creationdate"
    )
    assert texts(lower) == [("主动距陈", "Active-matrix"), ("适配卡", "Adapter cards")]
    assert {(pair.group, pair.time) for pair in lower} == {("computer2.xls", "20111027T072546Z")}


def test_inline_codes_go_and_text_between_them_stays(write: Write) -> None:
    seg = (
        'a <bpt i="1">&lt;b&gt;<sub>title</sub></bpt>bold<ept i="1">&lt;/b&gt;</ept> <hi>high <it>x</it>er</hi>'
        "<ph type='lb'/>next<ut>u</ut> &amp; &#169; <![CDATA[<raw>]]>"
    )
    ((src, tgt),) = texts(read(tmx=write("a.tmx", tmx(tu(en=seg, zh="一")))))
    assert (src, tgt) == ("a bold high er next & © <raw>", "一")


@pytest.mark.parametrize("code", ["zh", "ZH", "zh-CN", "zh_CN", "ZH-cn", "zh-Hans", "zh-Hans-CN"])
def test_a_language_takes_its_longer_codes(write: Write, code: str) -> None:
    path = write("a.tmx", tmx(f'<tu><tuv lang="{code}"><seg>一</seg></tuv><tuv lang="EN-us"><seg>one</seg></tuv></tu>'))
    assert texts(read(tmx=path)) == [("one", "一")]


def test_codes_that_could_both_be_meant_are_an_error_and_can_be_chosen(write: Write) -> None:
    both = write("a.tmx", tmx(tu(en="one", zh_CN="汉", zh_TW="漢")))
    with pytest.raises(
        DataError, match=r"a\.tmx: unit 1: zh-CN and zh-TW could both be zh; say which: columns: \{zh: zh"
    ):
        read(tmx=both)
    assert texts(read(tmx=both, columns={"zh": "zh_tw"})) == [("one", "漢")]
    apart = write("b.tmx", tmx(tu(en="one", zh_CN="汉"), tu(en="two", zh_TW="漢")))
    with pytest.raises(DataError, match=r"b\.tmx: unit 1 and .*b\.tmx: unit 2: zh-CN and zh-TW could both be zh"):
        read(tmx=apart)
    assert texts(read(tmx=apart, columns={"zh": "zh"})) == [("one", "汉"), ("two", "漢")]
    assert outcome(read(tmx=apart, columns={"zh": "zh-CN"})) == [("one", "汉", None), ("two", "", "missing_side")]
    exact = write("c.tmx", tmx(tu(en="one", zh_TW="漢", zh="汉")))
    assert texts(read(tmx=exact)) == [("one", "汉")]


def test_units_without_a_language_and_with_two_translations_are_told(write: Write) -> None:
    variants = [("en", "two"), ("zh", "二"), ("ZH", "两")]
    inside = "".join(f"<tuv lang='{code}'><seg>{text}</seg></tuv>" for code, text in variants)
    twice = f"<tu>{inside}</tu>"
    path = write("a.tmx", tmx(tu(en="one", fr="un"), twice, tu(en="three", zh="三", fr="trois")))
    assert outcome(read(tmx=path)) == [
        ("one", "", "missing_side"),
        ("two", "二", None),
        ("", "", "second_translation"),
        ("three", "三", None),
    ]
    three = read(("en", "zh"), ("fr", "zh"), tmx=path, languages=["en", "fr", "zh"])
    assert flaws(three) == {None: 3, "missing_side": 3, "second_translation": 2}
    with pytest.raises(DataError, match=r"a\.tmx: no text in de; it holds en, fr, zh, ZH; mend languages"):
        read(tmx=path, languages=["en", "de"])
    with pytest.raises(DataError, match=r"b\.tmx: no text in en, zh; it holds no unit"):
        read(tmx=write("b.tmx", "<tmx><body/></tmx>"))


BOMB = '<!DOCTYPE t [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (tmx(tu(en="one", zh="&b;"), head=BOMB), r"a\.tmx:1: declares or calls an entity of its own \(a\)"),
        (
            tmx(tu(en="one", zh="&x;"), head='<!DOCTYPE t [<!ENTITY x SYSTEM "file:///etc/passwd">]>'),
            r"a\.tmx:1: declares or calls an entity of its own \(x\)",
        ),
        (
            tmx(tu(en="one", zh="caf&eacute;"), head='<!DOCTYPE tmx SYSTEM "http://nowhere/tmx14.dtd">\n'),
            r"a\.tmx:2: &eacute; is defined in another file, which is not read; write the character itself",
        ),
        (tmx(tu(en="one", zh="caf&eacute;")), r"a\.tmx:1: broken XML: undefined entity; write the character itself"),
        (tmx(tu(en="one", zh="一"), tu(en="R&D", zh="二")), r"a\.tmx:2: broken XML: .*; "),
        (
            tmx(tu(en="one", zh="一"), tu(en="two", zh="二"))[:-60],
            r"a\.tmx:2: broken XML: ",
        ),
        ("", r"a\.tmx:1: broken XML: no element found; the file is empty or cut off"),
        ("one\tun\n", r"a\.tmx:1: broken XML: syntax error"),
        (tmx(tu(en="one", zh="\x02")), r"a\.tmx:1: broken XML: not well-formed .* a control character"),
        (tmx(head='<?xml version="1.0" encoding="gb18030"?>'), r"a\.tmx:1: .*; convert the file to UTF-8"),
        (
            tmx(head='<?xml version="1.0" encoding="klingon"?>'),
            r"a\.tmx:1: .*convert the file to UTF-8",
        ),
        (tmx(tu(en="one", zh="caf\udce9")), r"a\.tmx:1: broken XML: not well-formed .* bytes that are not in the"),
    ],
)
def test_broken_or_dangerous_xml_is_refused_by_line(write: Write, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmx=write("a.tmx", content.encode("utf-8", "surrogateescape")))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig", "latin-1", "cp1252"])
def test_xml_may_declare_its_encoding(write: Write, encoding: str) -> None:
    declared = {"utf-16-le": "utf-16", "utf-8-sig": "utf-8"}.get(encoding, encoding)
    content = tmx(tu(en="one", fr="café"), head=f'<?xml version="1.0" encoding="{declared}"?>')
    data = ("\ufeff" if encoding == "utf-16-le" else "") + content
    assert texts(read(tmx=write("a.tmx", data.encode(encoding)), languages=["en", "fr"])) == [("one", "café")]


def test_a_memory_is_read_unit_by_unit(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("a.tmx", tmx(*[tu(en="word " * 20, zh="词" * 40)] * 20_000))
    corpus = CorpusConfig(tmx=path, languages=["en", "zh"])
    stream = read_corpus(corpus, [("en", "zh")], encoding="utf-8", on_bad_utf8="error", report=ReadReport())
    next(stream)
    tracemalloc.start()
    try:
        assert sum(1 for _ in stream) == 19_999
        assert tracemalloc.get_traced_memory()[1] < 2_000_000  # bytes; the file holds six million
    finally:
        tracemalloc.stop()
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1 << 20)
    with pytest.raises(DataError, match=r"b\.tmx:1: a unit of more than 1 MiB"):
        read(tmx=write("b.tmx", tmx(tu(en="x" * (2 << 20), zh="一"))))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    rows=st.lists(
        st.tuples(*[st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=9)] * 2), min_size=1
    )
)
def test_any_text_comes_back_from_tmx(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]) -> None:
    from xml.sax.saxutils import escape

    rows = [
        (a.replace("\ufffe", "").replace("\uffff", ""), b.replace("\ufffe", "").replace("\uffff", "")) for a, b in rows
    ]
    path = tmp_path_factory.mktemp("tmx") / "a.tmx"
    path.write_text(tmx(*[tu(en=escape(a), zh=escape(b)) for a, b in rows]), encoding="utf-8")
    assert texts(read(tmx=path)) == rows


# ── XLIFF ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_xliff_of_the_shared_data(shared: Path) -> None:
    for code, language, expected in (
        ("zh_CN", "zh", {None: 101, "state_needs-review-translation": 9, "state_needs-translation": 6}),
        ("fr", "fr", {None: 116}),
        ("de", "de", {None: 116}),
    ):
        path = shared / f"data/formats/symfony-validators.en-{code}.xlf"
        pairs = read(xliff=path, languages=["en", language])
        assert flaws(pairs) == expected
        assert "{{ limit }} choice.|You must" in pairs[5].src
        assert flaws(read(xliff=path, languages=[language, "en"], unfinished=True)) == {None: 116}


def xliff(*units: str, target: str = 'target-language="zh-CN"') -> str:
    return (
        '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">'
        f'<file original="f.txt" source-language="en" {target}><body>{"".join(units)}</body></file></xliff>'
    )


def unit(source: str, target: str | None, attributes: str = "", of_target: str = "") -> str:
    inside = "" if target is None else f"<target {of_target}>{target}</target>"
    other = "<alt-trans><source>no</source><target>no</target></alt-trans>"
    return f"<trans-unit id='1' {attributes}><source>{source}</source>{inside}{other}</trans-unit>\n"


def test_states_of_xliff_1_2(write: Write) -> None:
    path = write(
        "a.xlf",
        xliff(
            unit("plain", "一"),
            unit("final", "二", of_target='state="final"'),
            unit("new", "三", of_target='state="new"'),
            unit("review", "四", of_target='state="needs-review-l10n"'),
            unit("own", "五", of_target='state="x-mine"'),
            unit("unapproved", "六", 'approved="no"'),
            unit("reviewed", "七", 'approved="no"', 'state="signed-off"'),
            unit("name", "name", 'translate="no"'),
            unit("none", None),
            unit("blank", " "),
        ),
    )
    pairs = read(xliff=path, group="document")
    assert [pair.flaw for pair in pairs] == [
        None,
        None,
        "state_new",
        "state_needs-review-l10n",
        None,
        "not_approved",
        None,
        "translate_no",
        "untranslated",
        "untranslated",
    ]
    assert (pairs[3].origin, {pair.group for pair in pairs}) == ("a.xlf:4", {"f.txt"})
    assert [pair.flaw for pair in read(xliff=path, unfinished=True) if pair.flaw] == [
        "translate_no",
        "untranslated",
        "untranslated",
    ]


def test_inline_codes_of_xliff_1_2_and_a_target_language_left_out(write: Write) -> None:
    source = (
        'a <g id="1">bold</g><x id="2"/> <bpt id="3">&lt;i></bpt>it<ept id="3">&lt;/i></ept><x ctype="lb" id="4"/>b'
    )
    path = write("a.xlf", xliff(unit(source, '<mrk mtype="seg" mid="1">一</mrk>'), target=""))
    assert texts(read(xliff=path)) == [("a bold it b", "一")]
    with pytest.raises(DataError, match=r"a\.xlf:1: the file does not say its two languages"):
        read(("en", "zh"), xliff=path, languages=["en", "fr", "zh"])
    with pytest.raises(DataError, match=r"b\.xlf: no text in fr; it holds en, zh-CN"):
        read(xliff=write("b.xlf", xliff(unit("one", "一"))), languages=["en", "fr"])


def test_xliff_2(write: Write) -> None:
    path = write(
        "a.xliff",
        """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en-US" trgLang="zh-Hans">
<file id="f1"><group id="g"><unit id="1" xmlns:mtc="urn:oasis:names:tc:xliff:matches:2.0">
<mtc:matches><mtc:match ref="#1"><source>no</source><target>no</target></mtc:match></mtc:matches>
<segment state="final"><source>Hi <pc id="1">there</pc><ph id="2"/>!</source>
<target>你好<cp hex="0001"/>！</target></segment>
<ignorable><source> </source></ignorable>
<segment state="initial"><source>draft</source><target>草稿</target></segment>
<segment><source>plain</source><target>平</target></segment>
<segment><source>open</source></segment>
</unit></group></file></xliff>""",
    )
    assert outcome(read(xliff=path)) == [
        ("Hi there!", "你好！", None),
        ("draft", "草稿", "state_initial"),
        ("plain", "平", None),
        ("open", "", "untranslated"),
    ]


# ── gettext ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_catalogues_of_the_shared_data(shared: Path) -> None:
    for code, language in (("zh_Hans", "zh"), ("fr", "fr"), ("de", "de")):
        path = shared / f"data/formats/django-rest-framework.{code}.po"
        assert flaws(read(po=path, languages=["en", language])) == {None: 125}
    zh = read(po=shared / "data/formats/wtforms.zh.po")
    assert flaws(zh) == {None: 35, "fuzzy": 4, "untranslated": 1}  # one of the three fuzzy entries has a plural
    assert (zh[3].src, zh[3].tgt) == (
        "Field must be at least %(min)d characters long.",
        "字段长度必须至少 %(min)d 个字符。",
    )
    assert flaws(read(po=shared / "data/formats/wtforms.zh.po", unfinished=True)) == {None: 39, "untranslated": 1}
    assert flaws(read(po=shared / "data/formats/wtforms.fr.po", languages=["en", "fr"])) == {None: 40}


def test_entries_equal_those_of_another_reader(shared: Path) -> None:
    polib = pytest.importorskip("polib", reason="polib, the other reader, is not installed")
    for path in sorted((shared / "data/formats").glob("*.po")):
        expected = []
        for entry in polib.pofile(str(path)):
            forms = (
                [entry.msgstr]
                if not entry.msgid_plural
                else [entry.msgstr_plural[0], max(entry.msgstr_plural.items())[1]]
            )
            expected += list(zip([entry.msgid, entry.msgid_plural], forms, strict=False))
        language = path.name.split(".")[1].split("_")[0]
        assert [(pair.src, pair.tgt) for pair in read(po=path, languages=["en", language])] == expected


HEADER = 'msgid ""\nmsgstr ""\n"Language: zh_CN\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n'


def test_what_a_catalogue_says(write: Write) -> None:
    path = write(
        "a.po",
        HEADER
        + '\n#, fuzzy\nmsgid "old"\nmsgstr "旧"\n#: x.c\nmsgid "a \\"b\\"\\t\\\\n\\n"\n"c\u2028d"\n'
        + 'msgstr ""\n"一\x85"\n"二"\n'
        + 'msgctxt "menu"\nmsgid ""\nmsgstr "空"\n\nmsgid "todo"\nmsgstr ""\n#~ msgid "gone"\n#~ msgstr "去"\n',
    )
    pairs = read(po=path, group="document")
    assert outcome(pairs) == [
        ("old", "旧", "fuzzy"),
        ('a "b"\t\\n\nc\u2028d', "一\x85二", None),
        ("", "空", None),
        ("todo", "", "untranslated"),
        ("gone", "去", "obsolete"),
    ]
    assert (pairs[0].origin, pairs[1].origin, pairs[1].group) == ("a.po:7", "a.po:10", "a.po")


RUSSIAN = "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);"
ARABIC = "nplurals=6; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5;"


@pytest.mark.parametrize(
    ("rule", "forms", "expected"),
    [
        ("nplurals=1; plural=0;", "a", [("one", "a", None), ("many", "a", None)]),
        ("nplurals=2; plural=(n != 1)", "ab", [("one", "a", None), ("many", "b", None)]),
        (RUSSIAN, "abc", [("one", "a", None), ("many", "c", None), ("many", "b", "plural_form")]),
        (ARABIC, "abcdef", [("one", "b", None), ("many", "f", None)] + [("many", f, "plural_form") for f in "acde"]),
        ("nplurals=INTEGER; plural=EXPRESSION;", "ab", [("one", "a", None), ("many", "b", None)]),
        (None, "ab", [("one", "a", None), ("many", "b", None)]),
    ],
)
def test_plurals_by_the_rule_of_the_language(write: Write, rule: str | None, forms: str, expected: list[Any]) -> None:
    header = 'msgid ""\nmsgstr ""\n' + (f'"Plural-Forms: {rule}\\n"\n' if rule else '"X: y\\n"\n')
    entry = 'msgid "one"\nmsgid_plural "many"\n' + "".join(f'msgstr[{n}] "{form}"\n' for n, form in enumerate(forms))
    assert outcome(read(po=write("a.po", f"{header}\n{entry}"), languages=["en", "xx"])) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            'msgid "a\nmsgstr "b"\n',
            r'a\.po:1: no valid PO line; expected msgid or msgstr with one whole "text": msgid "a',
        ),
        ('msgid "a "b" c"\nmsgstr "b"\n', r"a\.po:1: no valid PO line"),
        (
            'msgid "a"\nmsgstr "b"\n\nmsgid "c"\n',
            r"a\.po:4: an entry without msgid or without msgstr; is the file cut off",
        ),
        ('msgstr "b"\n', r"a\.po:1: an entry without msgid"),
        ('"b"\n', r"a\.po:1: a text that belongs to no msgid"),
        (HEADER.replace("zh_CN", "fr"), r"a\.po:1: the file is in fr but is to be read as zh"),
        (HEADER.replace("UTF-8", "GB2312"), r"a\.po:1: the file says that it is GB2312; set encoding: GB2312"),
        ('msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural=n = 1;\\n"\n', r"a\.po:1: Plural-Forms cannot be read"),
        (HEADER.encode() + b'\nmsgid "a"\nmsgstr "caf\xe9"\n', r"a\.po:7: not utf-8: byte E9"),
    ],
)
def test_a_broken_catalogue_is_named_by_line(write: Write, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(po=write("a.po", content))


def test_an_entry_with_bad_bytes_is_dropped_alone(write: Write) -> None:
    content = b'msgid "a"\nmsgstr "caf\xe9"\n# \xe9 in a remark\nmsgid "b"\nmsgstr "c"\n'
    assert outcome(read(po=write("a.po", content), on_bad="drop")) == [("a", "", "bad_utf8"), ("b", "c", None)]


def test_a_catalogue_in_a_stated_encoding(write: Write) -> None:
    content = HEADER.replace("UTF-8", "GB2312") + '\nmsgid "one"\nmsgstr "一"\n'
    assert texts(read(po=write("a.po", content.encode("gb2312")), encoding="gb2312")) == [("one", "一")]


# ── subtitles ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_subtitles_of_the_shared_data(shared: Path) -> None:
    folder = shared / "data/formats"
    for language in ("de", "es"):
        files = {"en": folder / "sintel.en.vtt", language: folder / f"sintel.{language}.vtt"}
        pairs = read(vtt=files, languages=["en", language])
        assert len(texts(pairs)) == 14
    assert (pairs[3].src, pairs[3].origin) == (
        "You're a fool for traveling alone, so completely unprepared.",
        "sintel.en.vtt:16",
    )
    srt = read(srt={"en": folder / "sintel.en.srt", "zh": folder / "sintel.en.srt"})
    assert len(texts(srt)) == 26
    assert srt[2].src == "You're a fool for traveling alone, so completely unprepared."


def srt(*cues: tuple[float, float, str], blank: str = "\n") -> str:
    def clock(seconds: float) -> str:
        return f"00:{int(seconds) // 60:02}:{int(seconds) % 60:02},{round(seconds % 1 * 1000):03}"

    return "".join(
        f"{number}\n{clock(start)} --> {clock(end)}\n{text}\n{blank}"
        for number, (start, end, text) in enumerate(cues, start=1)
    )


def test_cues_are_paired_by_time(write: Write) -> None:
    en = srt((1, 2, "one"), (3, 5, "two a"), (5, 7, "two b"), (9, 10, "alone"), (20, 21, "a"), (20.1, 21.1, "b"))
    zh = srt((1.2, 2.1, "<i>一</i>"), (3, 7, "{\\an8}二\n二"), (12, 13, "独"), (20, 21, "甲"), (20.1, 21, "乙"))
    pairs = read(srt={"en": write("a.en.srt", en), "zh": write("a.zh.srt", zh)}, group="document")
    assert outcome(pairs) == [
        ("one", "一", None),
        ("two a two b", "二二", None),
        ("alone", "", "unmatched_cue"),
        ("", "独", "unmatched_cue"),
        ("a b", "甲乙", "tangled_cues"),
    ]
    assert [pair.origin for pair in pairs[2:4]] == ["a.en.srt:14", "a.zh.srt:11"]
    assert {pair.group for pair in pairs} == {"a.en.srt + a.zh.srt"}


@pytest.mark.parametrize("blank", ["\n", "", "\n\n", "\r\n"])
def test_empty_lines_between_cues_may_be_missing_or_many(write: Write, blank: str) -> None:
    cues = [(1, 2, "one\n1984"), (3, 4, "two"), (5, 6, "three\n\nmore")]
    path = write("a.srt", srt(*cues, blank=blank))
    assert [src for src, _ in texts(read(srt={"en": path, "zh": path}))] == ["one 1984", "two", "three more"]


def test_webvtt_with_all_its_parts(write: Write) -> None:
    vtt = (
        "\ufeffWEBVTT - title\nKind: captions\n\nNOTE\na remark --- here\n\nSTYLE\n::cue { color: red }\n\n"
        "intro\n00:01.000 --> 00:02.000 align:start\n<v Ann><c.loud>Hi</c> &amp; <00:01.500>you\n\n"
        "01:00:03.000 --> 01:00:04.000\n- Bye\n- Bye\n\nNOTE end"
    )
    path = write("a.vtt", vtt)
    assert texts(read(vtt={"en": path, "zh": path})) == [("Hi & you", "Hi & you"), ("- Bye - Bye", "- Bye - Bye")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1\n00:00:01,000 --> 00:00\none\n", r"a\.srt:2: no valid times of a cue: 00:00:01,000 --> 00:00"),
        ("one line\nanother\n", r"a\.srt:1: expected the number or the times of a cue, got one line"),
        ("1\n2\n", r"a\.srt: holds no cue"),
        ("", "is empty"),
        (b"1\n00:00:01,000 --> 00:00:02,000\ncaf\xe9\n", r"a\.srt:3: not utf-8: byte E9 at byte offset 35"),
    ],
)
def test_broken_subtitles_are_named_by_line(write: Write, content: str | bytes, message: str) -> None:
    good = write("b.srt", srt((1, 2, "b")))
    with pytest.raises(DataError, match=message):
        read(srt={"en": write("a.srt", content), "zh": good})


def test_a_cue_with_bad_bytes_is_dropped_alone(write: Write) -> None:
    en = write("a.srt", srt((1, 2, "caf?"), (3, 4, "two")).encode().replace(b"?", b"\xe9"))
    zh = write("b.srt", srt((1, 2, "一"), (3, 4, "二")))
    assert outcome(read(srt={"en": en, "zh": zh}, on_bad="drop")) == [("", "", "bad_utf8"), ("two", "二", None)]


# ── WMT ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_test_set_of_the_shared_data(shared: Path) -> None:
    pairs = read(xml=shared / "data/formats/wmt22.de-fr.first2docs.xml", languages=["de", "fr"])
    assert len(texts(pairs)) == 14
    assert len({pair.group for pair in pairs}) == 2
    assert (pairs[2].src, pairs[2].tgt) == (
        "Die rechte Schublade passt nicht in den Schrank.",
        "Le tiroir de droite n'est pas adapté à cette armoire.",
    )


def test_references_beyond_the_first_and_segments_without_one(write: Write) -> None:
    def side(name: str, code: str, *segments: str) -> str:
        inside = "".join(f'<seg id="{segment[0]}">{segment[1:]}</seg>' for segment in segments)
        return f'<{name} lang="{code}"><p>{inside}</p></{name.split()[0]}>'

    doc = side("src", "en", "1one", "2two") + side("ref translator='A'", "zh", "1一") + side("hyp", "zh", "1no")
    doc += side("ref translator='B'", "zh", "1壹", "2贰")
    pairs = read(xml=write("a.xml", f"<dataset><doc id='d'>{doc}</doc><doc>{side('src', 'en', '1x')}</doc></dataset>"))
    assert outcome(pairs) == [
        ("one", "一", None),
        ("two", "", "missing_side"),
        ("", "", "other_reference"),
        ("", "", "other_reference"),
        ("x", "", "missing_side"),
    ]
    assert [pair.origin for pair in pairs[:2]] == ["a.xml:d:1", "a.xml:d:2"]
    assert pairs[4].group == "doc 2"
