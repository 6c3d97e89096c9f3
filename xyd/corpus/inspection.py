"""`xyd inspect`: the health report on every corpus of a config, without preparing anything."""

from __future__ import annotations

from typing import Any

from xyd.config import Config, FilesSplit, directions
from xyd.corpus.pairs import sorted_pair
from xyd.formats import ReadReport, read_corpus, source_name
from xyd.health import Health
from xyd.text import normalise


def inspect(config: Config) -> dict[str, Any]:
    """Reports on all corpora, and on the user's own valid and test files; every pair is looked at.

    Lines that cannot be decoded are counted, not refused. Raises DataError where a corpus cannot be read as it is.
    """
    language_pairs = sorted({sorted_pair(*direction) for direction in directions(config)})
    encoding, report = config.data.encoding, ReadReport()
    sources = [
        (
            source_name(corpus),
            read_corpus(corpus, language_pairs, encoding=encoding, on_bad_utf8="drop", report=report),
        )
        for corpus in config.data.corpora
    ]
    for name, split in (("valid", config.data.valid), ("test", config.data.test)):
        if isinstance(split, FilesSplit):
            pairs = read_corpus(split, language_pairs, encoding=encoding, on_bad_utf8="drop", report=report)
            sources.append((f"data.{name}", pairs))
    corpora = []
    for name, pairs in sources:
        health = Health(name)
        for pair in pairs:
            health.add(pair, normalise(pair.src), normalise(pair.tgt))
        corpora.append(health.finish())
    files = [{"path": path, **found} for path, found in report.as_dict().items()]
    return {"corpora": corpora, "files": files}
