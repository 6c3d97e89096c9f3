"""Data sets of the Hugging Face hub, or local parquet and JSON files in their form, through `datasets`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from xyd.config import HfConfig, SourceConfig
from xyd.errors import DataError
from xyd.formats.report import ReadReport
from xyd.formats.rows import Row, columns_of, mapping_rows


def read_hub(source: SourceConfig, *, report: ReadReport) -> Iterator[Row]:
    """Rows of `datasets.load_dataset`, which also reads local parquet and JSON files through `data_files`.

    A row holds a column `translation` (`{"en": …, "zh": …}`), one text column per language code, or the columns of
    the config; a missing value is no text. Raises DataError where it cannot be loaded or has no such columns.
    """
    import datasets  # takes a second to import, so only where it is needed
    from datasets.exceptions import DatasetsError

    hf = source.hf
    assert hf is not None
    label = label_of(hf)
    datasets.disable_progress_bars()
    try:
        dataset = datasets.load_dataset(
            hf.path,
            hf.name,
            split=hf.split,
            revision=hf.revision,
            data_files=cast(Any, hf.data_files),
            streaming=hf.streaming,
        )
        names = None
        if dataset.features is not None:  # a stream may not know them
            names, held = _leaves(dataset.features), list(dataset.features)
            needed = columns_of(names, source, label).values()
            dataset = dataset.select_columns(
                list(dict.fromkeys(name if name in held else name.split(".")[0] for name in needed))
            )
        yield from mapping_rows(_numbered(dataset, hf, label, report), source, label, names)
    except (DatasetsError, OSError, ValueError, RuntimeError) as error:
        # the library wraps the reason that helps ("no such split", "no network") in a general one
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        said = "; ".join(dict.fromkeys(str(e).strip() or type(e).__name__ for e in (error, cause)))
        raise DataError(f"{label}: the data set cannot be loaded: {said}\n{_advice(said)}") from error


def _numbered(dataset: Any, hf: HfConfig, label: str, report: ReadReport) -> Iterator[tuple[str, Mapping[str, Any]]]:
    file = report.start(label)
    name = label if hf.data_files is None else Path(label).name
    for batch in dataset.iter(batch_size=1000):
        for values in zip(*batch.values(), strict=True):
            file.lines += 1
            yield f"{name}:{file.lines}", dict(zip(batch, values, strict=True))


def label_of(hf: HfConfig) -> str:
    """What to call the data set in messages: its name on the hub, or its first local file."""
    given = hf.data_files
    while given and not isinstance(given, str):
        given = next(iter(given.values())) if isinstance(given, dict) else given[0]
    return f"{given or '/'.join(filter(None, (hf.path, hf.name)))}[{hf.split}]"


def _advice(said: str) -> str:
    if "scripts are no longer supported" in said:
        return (
            "It is made by a script, which the library does not run any more. Most such sets have a copy in Parquet: "
            "set hf.revision: refs/convert/parquet; or download its files and name them as parquet, json or tsv."
        )
    return "Check path, name, split, revision and data_files under hf, and the network if it comes from the hub."


def _leaves(features: Mapping[str, Any], above: str = "") -> list[str]:
    """Names of all columns, those inside of others dotted; a `Translation` feature is one of its languages."""
    names = []
    for name, feature in features.items():
        inner = feature if isinstance(feature, dict) else dict.fromkeys(getattr(feature, "languages", None) or ())
        names += _leaves(inner, f"{above}{name}.") if inner else [f"{above}{name}"]
    return names
