"""Where sentence pairs come from, as the YAML says it: files in one of the known formats, or a data set of a hub."""

from __future__ import annotations

import codecs
import re
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

# What `datasets` reads from files rather than from the hub; their data_files are paths on this machine.
FILE_READERS = ("parquet", "json", "csv", "text", "arrow")

ALIGNED = ("files", "srt", "vtt")
"""Formats with a file for each language."""
TABLES = ("tsv", "csv")
DOCUMENTS = ("tsv", "csv", "json", "jsonl", "parquet", "arrow", "tmx", "xliff", "po", "xml")
"""Formats with all languages in one file."""
PATH_FORMATS = (*ALIGNED, *DOCUMENTS)
FORMATS = (*PATH_FORMATS, "hf")
ROLES = ("group", "score", "time")
"""What a source may tell about a pair besides its texts."""


def _path(value: Any) -> Any:
    return Path(value) if isinstance(value, str) and value else value


def _paths(value: Any) -> Any:
    return [value] if isinstance(value, str | Path) and value else value


def _language(code: str) -> str:
    if not LANGUAGE.fullmatch(code):
        raise ValueError(f"{code!r} is no language code; use letters, digits and '_' (en, zh, zh_CN)")
    return code


def _is_language(code: object) -> bool:
    return LANGUAGE.fullmatch(str(code)) is not None


def known_encoding(name: str) -> str:
    """The name as it is; ValueError if no encoding has it."""
    try:
        codecs.lookup(name)
    except LookupError:
        raise ValueError(f"unknown encoding {name!r}; use utf-8, or for example latin-1, cp1252, gb18030") from None
    return name


def _column_name(value: Any) -> Any:
    if isinstance(value, bool) or not ((isinstance(value, str) and value) or (isinstance(value, int) and value > 0)):
        raise ValueError(f"expected the name of a column or its number, counted from 1, got {value!r}")
    return value


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None
    return text


def _header(value: Any) -> Any:
    if value != "auto" and not isinstance(value, bool):
        raise ValueError(f"expected auto, true or false, got {value!r}")
    return value


def _data_files(value: Any) -> Any:
    parts = list(value.values()) if isinstance(value, dict) else [value]
    names = [name for part in parts for name in (part if isinstance(part, list) else [part])]
    if value is not None and not (names and all(isinstance(name, str) and name for name in names)):
        raise ValueError("expected a file name, a list of them, or a mapping from split to file names")
    return value


FilePath = Annotated[Path, BeforeValidator(_path)]
FilePaths = Annotated[list[FilePath], BeforeValidator(_paths), Field(min_length=1)]
Language = Annotated[str, AfterValidator(_language)]
LanguageFiles = Annotated[dict[Language, FilePath], Field(min_length=2)]
ColumnName = Annotated[str | int, BeforeValidator(_column_name)]


class Section(BaseModel):
    """What all sections share: no unknown key, no conversion between types, no change after loading."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=())


class HfConfig(Section):
    """A data set read by the library `datasets`, from the hub or from local files."""

    path: Annotated[str, Field(min_length=1)] = Field(
        description="Name on the hub (Helsinki-NLP/un_pc), a local folder (./my_set), or parquet, json, csv, text, "
        "arrow together with data_files."
    )
    name: str | None = Field(default=None, description="Name of the data set's configuration, often the language pair.")
    split: str = Field(default="train", description="Which split of the data set to read as corpus.")
    revision: str | None = Field(default=None, description="Commit or tag on the hub; null = the newest.")
    data_files: Annotated[str | list[str] | dict[str, str | list[str]] | None, BeforeValidator(_data_files)] = Field(
        default=None, description="File name, list of them, or mapping from split to them; local for parquet, json, …"
    )
    streaming: bool = Field(
        default=False, description="Read while downloading, keeping nothing on the disk; else download first."
    )


def _files_field(what: str) -> Any:
    return Field(default=None, description=f"{what}: a file, a list, a folder or a glob; .gz, .xz, .zst are read too.")


with warnings.catch_warnings():
    # `json` is the right word for users; what it hides is pydantic's old name of model_dump_json.
    warnings.filterwarnings("ignore", message='Field name "json"')

    class SourceConfig(Section):
        """One source of pairs, in exactly one of the formats, and what of it to read."""

        files: LanguageFiles | None = Field(
            default=None,
            description="Language to text file, two or more, line N of each meaning the same; .gz, .xz, .zst are read "
            "too.",
        )
        tsv: FilePaths | None = _files_field("Tables with tabs between the columns, quotes being plain text")
        csv: FilePaths | None = _files_field("Tables with commas between the columns, quoted as usual")
        json: FilePaths | None = _files_field("JSON, an array of objects or an object per line")  # type: ignore[assignment]
        jsonl: FilePaths | None = _files_field("JSON, an object per line")
        parquet: FilePaths | None = Field(
            default=None,
            description="Parquet tables with a text column per language: a file, a list, a folder or a glob.",
        )
        arrow: FilePaths | None = Field(
            default=None,
            description="Arrow tables, file or stream form, as parquet: a file, a list, a folder or a glob.",
        )
        tmx: FilePaths | None = _files_field("TMX translation memories, inline codes taken out")
        xliff: FilePaths | None = _files_field("XLIFF 1.2 and 2, inline codes taken out")
        po: FilePaths | None = _files_field("gettext PO; the first of languages is that of msgid")
        srt: LanguageFiles | None = Field(
            default=None, description="Language to SubRip subtitles of one film, paired by the times of the cues."
        )
        vtt: LanguageFiles | None = Field(
            default=None, description="Language to WebVTT subtitles of one film, paired by the times of the cues."
        )
        xml: FilePaths | None = _files_field("WMT test sets, the source and the first reference of each document")
        hf: HfConfig | None = Field(default=None, description="A data set read by the library `datasets`.")
        languages: Annotated[list[Language], Field(min_length=2)] | None = Field(
            default=None,
            description="Languages to take; null = those of the files, those of columns, or those in hf.name (en-zh).",
        )
        columns: dict[Language, ColumnName] | None = Field(
            default=None,
            description="Language to its column, a number from 1 on or a name in the header; in JSON a key "
            "(translation.en); in tmx, xliff and xml the code that the file uses. null = the usual names.",
        )
        group: ColumnName | None = Field(
            default=None,
            description="Column, key or TMX property whose equal values stay in one split; with files a further file, "
            "a value per line; with xliff, po, srt and vtt only the word document.",
        )
        group_pattern: Annotated[str, AfterValidator(_pattern)] | None = Field(
            default=None, description="Regular expression; of the value of group only its first match counts."
        )
        score: ColumnName | None = Field(
            default=None,
            description="Column, key, TMX property or further file with a number for each pair, for filters.",
        )
        time: ColumnName | None = Field(
            default=None,
            description="Column, key, TMX property or further file with the time of each pair, for splits.",
        )
        header: Annotated[bool | Literal["auto"], BeforeValidator(_header)] = Field(
            default="auto",
            description="Whether a table starts with the names of its columns; auto = if columns are given by name, or "
            "if the first row holds the languages.",
        )
        quoting: bool | None = Field(
            default=None, description='Whether "quotes" in a table hold a cell together; null = in csv only.'
        )
        unfinished: bool = Field(
            default=False,
            description="Take also what PO calls fuzzy and XLIFF new, unapproved or in need of something.",
        )
        encoding: Annotated[str, AfterValidator(known_encoding)] | None = Field(
            default=None, description="Encoding of this source's files; null = data.encoding."
        )

        @model_validator(mode="before")
        @classmethod
        def _fill_languages(cls, given: Any) -> Any:
            """Make ``languages`` known wherever the source tells it, so that no reader has to guess again."""
            if not isinstance(given, dict) or given.get("languages") is not None:
                return given
            for key in (*ALIGNED, "columns"):
                by_language = given.get(key)
                if isinstance(by_language, dict) and len(by_language) > 1 and all(map(_is_language, by_language)):
                    return {**given, "languages": list(by_language)}
            hf = given.get("hf")
            name = hf.get("name") if isinstance(hf, dict) else None
            parts = name.split("-") if isinstance(name, str) else []
            if len(parts) == 2 and all(map(_is_language, parts)):
                return {**given, "languages": parts}
            return given

        @property
        def given(self) -> list[str]:
            """The formats that are given; in a checked configuration exactly one."""
            return [name for name in FORMATS if getattr(self, name) is not None]

        @property
        def format(self) -> str:
            """The name of the format, such as "tsv"."""
            (name,) = self.given
            return name

        @property
        def files_by_language(self) -> dict[str, Path]:
            """Language to file, in the formats with a file for each; else empty."""
            return next((getattr(self, name) for name in ALIGNED if getattr(self, name) is not None), {})

        @property
        def paths(self) -> list[Path]:
            """What is given for a format with all languages in one file: files, folders, globs; else empty."""
            return next((getattr(self, name) for name in DOCUMENTS if getattr(self, name) is not None), [])

        @property
        def side_files(self) -> dict[str, Path]:
            """`group`, `score` and `time` where they are further aligned files."""
            roles = {name: getattr(self, name) for name in ROLES}
            return {
                name: Path(str(path)) for name, path in roles.items() if path is not None and self.files is not None
            }
