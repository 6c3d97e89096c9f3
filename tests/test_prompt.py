from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from xyd.errors import ConfigError
from xyd.lines import LineOptions
from xyd.prompt import Prompt
from xyd.translate import Translation


class Echo:
    """Says what it was asked to translate, and how."""

    def __init__(self, *targets: str) -> None:
        self.targets = list(targets)

    def translate(self, texts: list[str], **options: Any) -> list[Translation]:
        to = options["to"]
        if to is None and len(self.targets) > 1:
            raise ConfigError("which target language? This run translates into: fr, zh")
        if to is not None and to not in self.targets:
            raise ConfigError(f"unknown target language {to!r}; this run translates into: fr, zh")
        text = f"{to or self.targets[0]}:{options.get('beam_size')}"
        return [
            Translation(t, f"{text}:{t.strip()}", -1.25, "split", ["in 2 parts"] if "long" in t else []) for t in texts
        ]


def talk(*lines: str | type[BaseException], targets: tuple[str, ...] = ("fr", "zh")) -> tuple[list[str], list[str]]:
    """What is said, and the prompts shown."""
    said: list[str] = []
    prompts: list[str] = []
    script: Iterator[str | type[BaseException]] = iter([*lines, EOFError])

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        line = next(script)
        if isinstance(line, str):
            return line
        raise line

    Prompt(Echo(*targets), LineOptions(), said.append).run(ask)
    return said[1:], prompts


def test_asks_for_the_language_and_translates() -> None:
    said, prompts = talk("hello", "/to fr", "hello", "/to zh", "hello", "/to")
    assert said == [
        "Into which language? /to fr  /to zh",
        "which target language? This run translates into: fr, zh",
        "fr:None:hello",
        "zh:None:hello",
        "/to fr  /to zh",
        "",
    ]
    assert prompts == ["→?> ", "→?> ", "→fr> ", "→fr> ", "→zh> ", "→zh> ", "→zh> "]


@pytest.mark.parametrize("text", ["q", "quit", "exit", "help", " /to zh", "to fr"])
def test_plain_words_are_translated(text: str) -> None:
    assert talk(text, targets=("fr",))[0] == [f"fr:None:{text.strip()}", ""]


def test_commands() -> None:
    said, prompts = talk(
        "/beam 8", "hi", "/beam", "hi", "/scores", "long", "/scores",
        "/from en", "/quit", "/to de", "/beam x", "/", "",
        targets=("fr",),
    )  # fmt: skip
    assert said == [
        "fr:8:hi",
        "fr:None:hi",
        "scores are shown",
        "-1.250  fr:None:long",
        "  (in 2 parts)",
        "scores are hidden",
        "unknown command /quit; /help lists them",
        "unknown target language 'de'; this run translates into: fr, zh",
        "/beam: expected a whole number of at least 1, got 'x'",
        "unknown command /; /help lists them",
        "",
    ]
    assert prompts[-1] == "en→fr> "


def test_help_and_ctrl_c() -> None:
    said, _ = talk("/help", KeyboardInterrupt, "on", targets=("fr",))
    assert "/beam 8" in said[0]
    assert said[1:] == ["", "fr:None:on", ""]
