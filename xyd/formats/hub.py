"""Data sets of the Hugging Face hub, or local parquet and JSON files in their form, through `datasets`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from xyd.config import HfConfig
from xyd.errors import DataError
from xyd.formats.report import ReadReport
from xyd.text import SentencePair


def read_hub(
    hf: HfConfig, languages: Sequence[str] | None, language_pairs: Sequence[tuple[str, str]], *, report: ReadReport
) -> Iterator[SentencePair]:
    """Pairs from `datasets.load_dataset`, which also reads local parquet and JSON files through `data_files`.

    A row holds a column `translation` (`{"en": …, "zh": …}`) or one text column per language code; a missing value
    is an empty text. Raises DataError where the data set cannot be loaded or has no such columns.
    """
    label = _label(hf)
    dataset = _load_hub(hf, label)
    nested = "translation" in dataset.column_names
    available = _translation_keys(dataset.features["translation"], label) if nested else list(dataset.column_names)
    usable = list(languages or available)
    if missing := [language for language in usable if language not in available]:
        raise DataError(f"{label}: no text in {', '.join(missing)}; the data set holds {', '.join(available)}")
    wanted = [(a, b) for a, b in language_pairs if a in usable and b in usable]
    if not wanted:
        pairs = ", ".join(f"{a}-{b}" for a, b in language_pairs)
        raise DataError(f"{label}: holds {', '.join(available)}, none of the wanted pairs {pairs}; see data.directions")
    columns = list(dict.fromkeys(language for pair in wanted for language in pair))
    file = report.start(label)
    name = label if hf.data_files is None else Path(label).name
    for batch in dataset.select_columns(["translation"] if nested else columns).iter(batch_size=1000):
        for row in batch["translation"] if nested else _rows(batch):
            file.lines += 1
            texts: dict[str, str] = {}
            for column in columns:
                text = None if row is None else row.get(column)
                texts[column] = "" if text is None else text
                if not isinstance(texts[column], str):
                    kind = type(text).__name__
                    raise DataError(f"{label}: row {file.lines}: {column} is {kind}, not text; name a text column")
            for a, b in wanted:
                yield SentencePair(texts[a], texts[b], a, b, origin=f"{name}:{file.lines}")


def _label(hf: HfConfig) -> str:
    """What to call the data set in messages: its name on the hub, or its first local file."""
    given = hf.data_files
    while given and not isinstance(given, str):
        given = next(iter(given.values())) if isinstance(given, dict) else given[0]
    return f"{given or '/'.join(filter(None, (hf.path, hf.name)))}[{hf.split}]"


def _rows(batch: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    return (dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True))


def _load_hub(hf: HfConfig, label: str) -> Any:
    """The loaded `datasets.Dataset`, memory-mapped from the library's cache."""
    import datasets  # takes a second to import, so only where it is needed
    from datasets.exceptions import DatasetsError

    datasets.disable_progress_bars()
    try:
        return datasets.load_dataset(
            hf.path, hf.name, split=hf.split, revision=hf.revision, data_files=cast(Any, hf.data_files)
        )
    except (DatasetsError, OSError, ValueError, RuntimeError) as error:
        # the library wraps the reason that helps ("no such split", "no network") in a general one
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        said = "; ".join(dict.fromkeys(str(e).strip() or type(e).__name__ for e in (error, cause)))
        raise DataError(
            f"{label}: the data set cannot be loaded: {said}\n"
            "Check path, name, split, revision and data_files under hf, and the network if it comes from the hub."
        ) from error


def _translation_keys(feature: Any, label: str) -> list[str]:
    """Language codes inside a `translation` column, in either form that `datasets` gives it."""
    keys = list(feature) if isinstance(feature, dict) else getattr(feature, "languages", None)
    if not keys or type(feature).__name__ == "TranslationVariableLanguages":
        raise DataError(f"{label}: column translation is no mapping of language to one text; use text columns")
    return list(keys)
