"""YAML 1.2 text and ``--set`` assignments → one tree of plain values that remembers where each came from.

PyYAML follows YAML 1.1, where ``no`` is false, ``3e-4`` is a string and the last of two equal keys wins in silence.
Here the scalars are those of YAML 1.2's core schema, and an equal key is a problem with two line numbers.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from xyd.config.inputs import FILE_READERS, PATH_FORMATS, ROLES
from xyd.config.sections import RunConfig

Key = tuple[str | int, ...]

_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: ``where`` is ``file:line`` or the ``--set`` argument, ``order`` sorts by place."""

    where: str
    what: str
    order: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True)
class Place:
    """Where a value was given, and the folder against which its relative paths are read."""

    where: str
    folder: Path
    order: tuple[int, int]
    from_set: bool = False


@dataclass
class Source:
    """The tree of values and, for each key path, its place."""

    name: str
    folder: Path
    tree: dict[str, Any] = field(default_factory=dict)
    places: dict[Key, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def place(self, key: Key) -> Place:
        """Where ``key`` was given; for a key that was not, where its nearest given parent was."""
        for length in range(len(key), 0, -1):
            if key[:length] in self.places:
                return self.places[key[:length]]
        return Place(f"{self.name}:1", self.folder, (1, 0))

    def complain(self, key: Key, what: str) -> None:
        """Note a problem at the place of ``key``."""
        place = self.place(key)
        self.problems.append(Problem(place.where, what, place.order))

    def value(self, key: Key) -> Any:
        """The value at ``key``; None where there is none."""
        found: Any = self.tree
        for part in key:
            try:
                found = found[part]
            except (KeyError, IndexError, TypeError):
                return None
        return found

    def without(self, keys: list[Key]) -> dict[str, Any]:
        """A copy of the tree that lacks ``keys``, so that the rest can be looked at too."""
        gone = set(keys)

        def copy(value: Any, key: Key) -> Any:
            if isinstance(value, dict):
                return {name: copy(item, (*key, name)) for name, item in value.items() if (*key, name) not in gone}
            if isinstance(value, list):
                return [copy(item, (*key, i)) for i, item in enumerate(value) if (*key, i) not in gone]
            return value

        tree: dict[str, Any] = copy(self.tree, ())
        return tree


def dotted(key: Key) -> str:
    """``("data", "corpora", 0)`` → ``data.corpora.0``, as ``--set`` writes it."""
    return ".".join(str(part) for part in key)


def scalar(text: str) -> Any:
    """The value of a plain scalar by YAML 1.2's core schema: null, bool, int, float, else the text itself."""
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _FLOAT.fullmatch(text):
        return float(text.replace(".inf", "inf").replace(".nan", "nan")) if text[-1:].isalpha() else float(text)
    return text


class _Loader(yaml.SafeLoader):
    """Composes nodes only; no implicit types of YAML 1.1, so a plain scalar keeps its text."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  (the base class declares it so)


class _Dumper(yaml.SafeDumper):
    """Quotes whatever either version of YAML would read as something other than text."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: list(rules) for first, rules in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }


for _tag, _pattern in (("int", _INT), ("float", _FLOAT)):
    # fullmatch here, match there: the dumper needs the end written out.
    _Dumper.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern.pattern})$"), list("-+.0123456789")
    )


def to_yaml(tree: dict[str, Any]) -> str:
    """Block-style YAML that ``read`` gives back as it was."""
    text: str = yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text


def read(path: str | os.PathLike[str]) -> Source:
    """Read a YAML file; everything wrong with it is in ``problems``, so that nothing hides behind the first one."""
    name = os.fspath(path)
    source = Source(name, Path(os.path.abspath(name)).parent)
    try:
        data = Path(path).read_bytes()
    except IsADirectoryError:
        hint = os.path.join(name, "config.yaml")
        also = f"; its configuration is {hint}" if os.path.isfile(hint) else "; give the YAML file inside it"
        source.problems.append(Problem(name, f"this is a folder{also}"))
        return source
    except OSError as error:
        source.problems.append(Problem(name, f"cannot read the configuration: {error.strerror}; check the path"))
        return source
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        source.problems.append(Problem(f"{name}:{line}", "this is not UTF-8; save the file as UTF-8 and try again"))
        return source
    node = _compose(text, source)
    if source.problems:
        return source
    if node is None:
        source.problems.append(
            Problem(f"{name}:1", "the file is empty; a run needs at least run.name, data.corpora and data.valid")
        )
    elif not isinstance(node, yaml.MappingNode):
        line = node.start_mark.line + 1
        source.problems.append(
            Problem(f"{name}:{line}", "expected sections (run:, data:, …), each `name: value` on a line of its own")
        )
    else:
        source.tree = _Builder(source, lambda line: Place(f"{name}:{line}", source.folder, (line, 0))).build(node, ())
        # A section whose keys are all commented out is a section with its defaults.
        source.tree = {key: {} if value is None else value for key, value in source.tree.items()}
    return source


def _compose(text: str, source: Source) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=_Loader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = f"the control character U+{int(error.character):04X} is not allowed in YAML; delete it"
        source.problems.append(Problem(f"{source.name}:{line}", what, (line, 0)))
    except yaml.MarkedYAMLError as error:
        # The parser stops at the first tab, a person wants to know all of them.
        lines = text.split("\n")
        tabs = [number for number, line in enumerate(lines, 1) if "\t" in line[: len(line) - len(line.lstrip())]]
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        if not tabs and mark and "'\\t'" in str(error.problem):
            tabs = [line]
        for number in tabs:
            what = "a tab; YAML wants spaces, so replace it with spaces"
            source.problems.append(Problem(f"{source.name}:{number}", what, (number, 0)))
        if not tabs:
            what = f"this is not valid YAML: {error.problem or error.context}"
            what += f" ({error.context})" if error.problem and error.context else ""
            hint = "; check the indentation, and quote text that holds ': ', ' #' or starts with a sign"
            source.problems.append(Problem(f"{source.name}:{line}", what + hint, (line, 0)))
    except RecursionError:
        source.problems.append(Problem(f"{source.name}:1", "nested too deeply to be a configuration"))
    return None


class _Builder:
    """Turns composed nodes into plain values, noting the place of every key."""

    def __init__(self, source: Source, place: Any) -> None:
        self.source, self.place = source, place

    def build(self, node: yaml.Node, key: Key) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if isinstance(node, yaml.SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self.source.places[(*key, index)] = self.place(item.start_mark.line + 1)
                items.append(self.build(item, (*key, index)))
            return items
        assert isinstance(node, yaml.MappingNode)
        result: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for name_node, value_node in node.value:
            line = name_node.start_mark.line + 1
            place = self.place(line)
            if not isinstance(name_node, yaml.ScalarNode):
                what = "a key must be plain text, not a list or mapping"
                self.source.problems.append(Problem(place.where, what, place.order))
                continue
            # The text as written: a language may be called `no`.
            name = name_node.value
            path = (*key, name)
            if name in result:
                what = f"duplicate key {dotted(path)}, first given in line {lines[name]}; keep one of them"
                self.source.problems.append(Problem(place.where, what, place.order))
                continue
            lines[name] = line
            self.source.places[path] = place
            result[name] = self.build(value_node, path)
        return result

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        if node.style is None and node.tag in ("tag:yaml.org,2002:str", "!", None):
            return scalar(node.value)
        return node.value


def assign(source: Source, assignments: list[str], working_dir: Path) -> None:
    """Apply ``KEY=VALUE`` arguments in order; VALUE is YAML, KEY may go through lists: ``data.corpora.0.files.en``."""
    for number, assignment in enumerate(assignments):
        where = f"--set {assignment}"
        order = (1 << 40, number)
        key_text, equals, value_text = assignment.partition("=")
        if not equals or not key_text.strip():
            source.problems.append(Problem(where, "expected KEY=VALUE, such as train.learning_rate=3e-4", order))
            continue
        aside = Source(where, working_dir)
        node = _compose(value_text, aside)
        if aside.problems:
            what = f"the value is not valid YAML: put it in quotes, {key_text}='\"…\"'"
            source.problems.append(Problem(where, what, order))
            continue
        key: Key = tuple(int(part) if part.isdecimal() else part for part in key_text.strip().split("."))
        place = Place(where, working_dir, order, from_set=True)
        fresh = Source(where, working_dir)
        value = _Builder(fresh, lambda line, place=place: place).build(node, key) if node is not None else None
        source.problems.extend(fresh.problems)
        made = [key[:depth] for depth in range(1, len(key)) if source.value(key[:depth]) is None]
        trouble = _put(source, key, value)
        if trouble:
            source.problems.append(Problem(where, trouble, order))
            continue
        for known in [known for known in source.places if known[: len(key)] == key]:
            del source.places[known]
        source.places.update(fresh.places)
        source.places.update(dict.fromkeys([*made, key], place))


def _put(source: Source, key: Key, value: Any) -> str | None:
    """Set ``key`` in the tree, making the mappings on the way; what is in the way, in words, if something is."""
    at: Any = source.tree
    for depth, part in enumerate(key):
        last = depth == len(key) - 1
        so_far = dotted(key[:depth])
        if isinstance(at, list):
            if not isinstance(part, int):
                return f"{so_far} is a list; give a position, {so_far}.0"
            if part >= len(at):
                return f"{so_far} has {len(at)} entries, counted from 0, so there is no {dotted(key[: depth + 1])}"
        elif isinstance(at, dict):
            part = str(part)
        else:
            return f"{so_far} is a single value, so it has no {dotted(key[: depth + 1])}"
        if last:
            at[part] = value
        elif isinstance(at, dict) and at.get(part) is None:
            at[part] = {}
        at = at[part]
    return None


def resolve_paths(source: Source) -> None:
    """Make every input path in the tree absolute: against ``data.root`` or the YAML's folder, or, when it was given
    by ``--set``, against the working directory. ``run.dir`` is always read against the working directory."""
    working_dir = Path(os.path.abspath("."))
    run = source.tree.get("run")
    if isinstance(run, dict):
        # The default is relative too, and the saved configuration must mean the same folder from anywhere.
        run.setdefault("dir", str(RunConfig.model_fields["dir"].default))
        _absolute(source, ("run", "dir"), working_dir)
    _absolute(source, ("train", "init_from"), None)
    _absolute(source, ("data", "root"), None)
    root_text = source.value(("data", "root"))
    root = Path(root_text) if isinstance(root_text, str) else None
    sources: list[Key] = [("data", "valid"), ("data", "test")]
    corpora = source.value(("data", "corpora"))
    sources += [("data", "corpora", index) for index in range(len(corpora) if isinstance(corpora, list) else 0)]
    for key in sources:
        given = source.value(key)
        if not isinstance(given, dict):
            continue
        for name in (*PATH_FORMATS, *(ROLES if "files" in given else ())):
            _absolute(source, (*key, name), None, root)
        hf = given.get("hf")
        if not isinstance(hf, dict) or not isinstance(hf.get("path"), str):
            continue
        if hf["path"].startswith((".", "/", "~")):
            _absolute(source, (*key, "hf", "path"), None, root)
        elif hf["path"] in FILE_READERS:
            _absolute(source, (*key, "hf", "data_files"), None, root)


def _absolute(source: Source, key: Key, folder: Path | None, root: Path | None = None) -> None:
    value = source.value(key)
    if isinstance(value, dict):
        for name in value:
            _absolute(source, (*key, name), folder, root)
    elif isinstance(value, list):
        for index in range(len(value)):
            _absolute(source, (*key, index), folder, root)
    elif isinstance(value, str) and value and "://" not in value:
        place = source.place(key)
        base = folder or (place.folder if place.from_set or root is None else root)
        parent = source.value(key[:-1])
        parent[key[-1]] = os.path.normpath(base / os.path.expanduser(value))
