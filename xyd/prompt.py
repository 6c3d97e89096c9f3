"""The prompt of ``xyd translate`` at a terminal: a line is translated, a line that starts with ``/`` is a command."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from xyd.errors import XydError
from xyd.lines import LineOptions
from xyd.translate import Translator

HELP = """\
/to fr      translate into French        /to       the choices
/from en    the source is English        /from     any language
/beam 8     keep 8 hypotheses            /beam     as in the run's configuration
/scores     show scores, or hide them    /help     this
Ctrl-D leaves. Everything else is translated; begin with a space to translate a text that starts with /."""


class Prompt:
    """The state of a conversation: languages, beam size, whether scores are shown."""

    def __init__(self, translator: Translator, options: LineOptions, say: Callable[[str], None]) -> None:
        self.translator, self.options, self.say = translator, options, say
        self.show_scores = False

    def run(self, ask: Callable[[str], str]) -> None:
        """Answer until the end of input; ``ask`` shows a prompt and returns a line, as ``input`` does."""
        targets = self.translator.targets
        self.say("Type a text to translate, /help for commands, Ctrl-D to leave.")
        if self.options.to is None and len(targets) > 1:
            self.say(f"Into which language? {_choices('/to', targets)}")
        while True:
            try:
                self.answer(ask(self._prompt()))
            except EOFError:
                self.say("")
                return
            except KeyboardInterrupt:
                # Ctrl-C gives up the line, or the translation under way; not the model that took seconds to load.
                self.say("")
            except XydError as error:
                self.say(str(error))

    def answer(self, line: str) -> None:
        """Do what one line asks for. Raises ``XydError`` for a language or beam size that cannot be."""
        if line.startswith("/"):
            self._command(*line[1:].split())
            return
        if not line.strip():
            return
        options = self.options
        found = self.translator.translate(
            [line],
            to=options.to,
            source=options.source,
            beam_size=options.beam_size,
            length_penalty=options.length_penalty,
        )[0]
        self.say(f"{found.score:.3f}  {found.text}" if self.show_scores else found.text)
        for warning in found.warnings:
            self.say(f"  ({warning})")

    def _prompt(self) -> str:
        targets = self.translator.targets
        to = self.options.to or (targets[0] if len(targets) == 1 else "?")
        return f"{self.options.source or ''}→{to}> "

    def _command(self, name: str = "", *values: str) -> None:
        value = values[0] if values else None
        if name not in ("to", "from", "beam", "scores", "help") or len(values) > 1:
            self.say(f"unknown command /{' '.join([name, *values])}; /help lists them")
        elif name == "help":
            self.say(HELP)
        elif name == "scores":
            self.show_scores = not self.show_scores
            self.say("scores are shown" if self.show_scores else "scores are hidden")
        elif name == "to" and value is None:
            self.say(_choices("/to", self.translator.targets))
        elif name == "beam" and value is not None and not (value.isdecimal() and int(value) >= 1):
            self.say(f"/beam: expected a whole number of at least 1, got {value!r}")
        else:
            options = self.options
            if name == "to":
                options = dataclasses.replace(options, to=value)
            elif name == "from":
                options = dataclasses.replace(options, source=value)
            else:
                options = dataclasses.replace(options, beam_size=None if value is None else int(value))
            self._change(options)

    def _change(self, options: LineOptions) -> None:
        """Take new options over if the run can do them."""
        if options.to is not None or len(self.translator.targets) == 1:
            self.translator.translate([], to=options.to, source=options.source, beam_size=options.beam_size)
        self.options = options


def _choices(command: str, languages: list[str]) -> str:
    return "  ".join(f"{command} {language}" for language in languages)
