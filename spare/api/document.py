"""Text to plain data: YAML as Kubernetes reads it, but nothing passes in silence. Keeps the lines for messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from spare.api.problems import JobFileError, Problem, join, show

Path = tuple[str | int, ...]

_CORE = "tag:yaml.org,2002:"
_CONTAINERS = {f"{_CORE}map", f"{_CORE}seq"}
_SCALARS = {f"{_CORE}{name}" for name in ("str", "int", "float", "bool", "null")}
_MERGE = f"{_CORE}merge"
_NO_NUMBERS = {".nan", ".inf", "-.inf", "+.inf"}  # floats to YAML, but not to JSON, and so not to Kubernetes
_MOST_NODES = 100_000
"""Aliases written out; a few lines of them can stand for billions. A thousand pods' worth of text is far below."""


@dataclass(frozen=True)
class Document:
    """One mapping, and where its parts stand in the text."""

    data: dict[str, Any]
    lines: dict[Path, int] = field(repr=False)
    """Line, from 1, of every key and list item."""

    def line(self, path: Path) -> int | None:
        """Line of a place, or of the closest place above it that the text has."""
        for length in range(len(path), -1, -1):
            if (line := self.lines.get(path[:length])) is not None:
                return line
        return None

    def has(self, path: Path) -> bool:
        """Whether the text itself has this place, as opposed to a default."""
        return path in self.lines


class _Loader(yaml.SafeLoader):
    """Keeps dates as text, as Kubernetes does: JSON has no dates."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_CORE}timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_document(text: str) -> Document:
    """Reads the one mapping that a job file holds.

    Raises:
        JobFileError: not YAML, not exactly one document, no mapping, a key given twice, or something that JSON, and so
            Kubernetes, cannot hold.
    """
    try:
        loader = _Loader(text)
        try:
            return _read(loader)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise JobFileError([_bad_yaml(error, text)]) from error
    except RecursionError as error:
        raise JobFileError([_whole("it is nested too deeply")]) from error


def _read(loader: _Loader) -> Document:
    if not loader.check_node():
        raise JobFileError([_whole("it is empty")])
    root = loader.get_node()
    if loader.check_node():
        second = loader.get_node()
        line = second.start_mark.line + 1 if second is not None else None
        raise JobFileError([_whole("a second document begins; one file describes one job", line)])
    if not isinstance(root, MappingNode):
        raise JobFileError([_whole(f"it holds {_kind(root)}", 1)])
    if _written_out(root, {}) > _MOST_NODES:
        raise JobFileError([_whole("its aliases refer to themselves, or stand for too much text")])

    lines: dict[Path, int] = {}
    problems = list(_walk(loader, root, (), lines))
    if problems:
        raise JobFileError(problems)
    return Document(loader.construct_document(root), lines)


def _written_out(node: Node, known: dict[int, int]) -> int:
    """Number of nodes once every alias is replaced by what it stands for; a circle counts as endless."""
    if id(node) not in known:
        known[id(node)] = _MOST_NODES + 1  # what is met below itself is a circle
        known[id(node)] = 1 + sum(_written_out(child, known) for child in _children(node))
    return known[id(node)]


def _children(node: Node) -> Iterator[Node]:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            yield key
            yield value
    elif isinstance(node, SequenceNode):
        yield from node.value


def _walk(loader: _Loader, node: Node, path: Path, lines: dict[Path, int]) -> Iterator[Problem]:
    """Notes the line of each part, and yields what JSON could not hold or YAML would quietly drop."""
    lines.setdefault(path, node.start_mark.line + 1)
    if node.tag not in (_SCALARS if isinstance(node, ScalarNode) else _CONTAINERS):
        yield _at(node, path, show(node.tag), "text, a number, true, false, a list or a mapping", "put it in quotes")
    elif isinstance(node, MappingNode):
        yield from _walk_mapping(loader, node, path, lines)
    elif isinstance(node, SequenceNode):
        for index, item in enumerate(node.value):
            yield from _walk(loader, item, (*path, index), lines)
    elif isinstance(node, ScalarNode) and (reason := _no_value(loader, node)):
        yield _at(node, path, node.value, "a value that JSON can hold", reason)


def _walk_mapping(loader: _Loader, node: MappingNode, path: Path, lines: dict[Path, int]) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for key, value in node.value:
        if key.tag == _MERGE:
            yield from _walk(loader, value, path, lines)
            continue
        if key.tag != f"{_CORE}str":
            name = key.value if isinstance(key, ScalarNode) else _kind(key)
            yield _at(key, path, name, "text as the name of a field", "put it in quotes")
            continue
        if key.value in seen:
            reason = f"it is given in line {seen[key.value]} already"
            yield _at(key, (*path, key.value), None, "given once", reason)
            continue
        seen[key.value] = lines[(*path, key.value)] = key.start_mark.line + 1
        yield from _walk(loader, value, (*path, key.value), lines)


def _no_value(loader: _Loader, node: ScalarNode) -> str:
    """Why a number or true/false has no value after all; empty if it has."""
    if node.value.lower() in _NO_NUMBERS:
        return "JSON has no such number"
    try:
        loader.construct_object(node)
    except (ValueError, KeyError):  # `!!int x`, `!!bool x`, or more digits than Python reads
        return f"it cannot be read as {_kind(node)}"
    return ""


def _kind(node: Node | None) -> str:
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    if node is None or node.tag == f"{_CORE}null":
        return "nothing"
    return "text" if node.tag == f"{_CORE}str" else "a single value"


def _at(node: Node, path: Path, value: object, allowed: str, reason: str) -> Problem:
    where = join(path)
    message = f"{where or 'the file'} must be {allowed}: {reason}"
    if value is not None:
        message = f"{where or 'the file'} must be {allowed}, but is {show(value)}: {reason}"
    return Problem(where, value, allowed, message, node.start_mark.line + 1)


def _whole(reason: str, line: int | None = None) -> Problem:
    allowed = "one mapping with apiVersion, kind, metadata and spec"
    return Problem("", None, allowed, f"the file must hold {allowed}, but {reason}", line)


def _bad_yaml(error: yaml.YAMLError, text: str) -> Problem:
    line = None
    what = str(error)
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        line = error.problem_mark.line + 1
        what = ", ".join(part for part in (error.context, error.problem) if part)
    elif isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        what = f"the character {error.character!r} is not allowed"
    return Problem("", None, "YAML", f"the file is not YAML: {what}", line)
