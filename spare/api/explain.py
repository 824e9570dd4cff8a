"""Turns what pydantic found into sentences about the job file: where, what stands there, what may."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from spare.api.document import Document, Path
from spare.api.problems import Problem, join, show
from spare.api.rule import Rule, unquoted

Model = type[BaseModel]


def explain(root: Model, errors: list[ErrorDetails], document: Document) -> list[Problem]:
    """One problem for each error, in the order of the file."""
    problems = [_one(root, error, document) for error in errors]
    return sorted(problems, key=lambda problem: problem.line or 0)


def fields(model: Model) -> dict[str, FieldInfo]:
    """The fields of a model by the names that they have in the file."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def _one(root: Model, error: ErrorDetails, document: Document) -> Problem:
    path, value, kind = error["loc"], error["input"], error["type"]
    if kind == "relation":
        return _broken_relation(root, error, document)
    if kind == "extra_forbidden":
        return _unknown(root, path, value, document)
    allowed = _allowed_at(root, path)
    where, line = join(path) or "the file", document.line(path)
    if kind == "missing":
        return Problem(where, None, allowed, f"{where} is missing; it must be {allowed}", line)
    reason = str(error.get("ctx", {}).get("error", "")) or (unquoted(value) if kind == "string_type" else "")
    hint = f": {reason}" if reason else ""
    return Problem(where, value, allowed, f"{where} must be {allowed}, but is {show(value)}{hint}", line)


def _broken_relation(root: Model, error: ErrorDetails, document: Document) -> Problem:
    context, path = error["ctx"], _as_in_file(root, error["loc"])
    where, allowed, value = f"{join(path)}{context['below']}", str(context["allowed"]), context["value"]
    message = f"{where} must be {allowed}"
    if not context["below"]:
        message += f", but is {show(value)}" + ("" if document.has(path) else " by default")
    return Problem(where, value, allowed, message, document.line(path))


def _as_in_file(root: Model, path: Path) -> Path:
    """The place in the file's spelling; for a default pydantic gives the attribute's name."""
    named: list[str | int] = []
    for part in path:
        model = _model_at(root, tuple(named))
        info = model.model_fields.get(str(part)) if model is not None else None
        named.append(part if info is None else info.alias or part)
    return tuple(named)


def _unknown(root: Model, path: Path, value: object, document: Document) -> Problem:
    parent = _model_at(root, path[:-1])
    known = list(fields(parent)) if parent is not None else []
    name = str(path[-1])
    where, allowed = join(path), f"one of the fields {', '.join(known)}"
    message = f"{where} is not a field of {join(path[:-1]) or 'the file'}"
    if (close := _closest(name, known)) is not None:
        message += f"; is {close} meant?"
    elif elsewhere := [join(place) for place in _everywhere(root, ()) if place[-1] == name]:
        message += f"; it belongs at {' or '.join(elsewhere)}"
    else:
        message += f"; its fields are {', '.join(known)}"
    return Problem(where, value, allowed, message, document.line(path))


def _closest(name: str, known: list[str]) -> str | None:
    """The known name that was probably meant; spelling with `_` or `-` or other capitals is no difference."""
    plain = {_plain(other): other for other in known}
    matches = difflib.get_close_matches(_plain(name), plain, n=1, cutoff=0.75)
    return plain[matches[0]] if matches else None


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _everywhere(model: Model, path: Path) -> Iterator[Path]:
    for name, info in fields(model).items():
        yield (*path, name)
        if (below := _model_of(info.annotation)) is not None:
            yield from _everywhere(below, (*path, name))


def _model_at(root: Model, path: Path) -> Model | None:
    """The model that describes a place; None where the place is open or a single value."""
    model: Model | None = root
    for part in path:
        if isinstance(part, int):
            continue  # a list's items were taken for the list itself by _model_of
        if model is None or (info := fields(model).get(part)) is None:
            return None
        model = _model_of(info.annotation)
    return model


def _model_of(annotation: Any) -> Model | None:
    """The model inside an annotation: itself, or what an optional or a tuple of it is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (tuple, Annotated, Union, types.UnionType):
        for inner in get_args(annotation):
            if (model := _model_of(inner)) is not None:
                return model
    return None


def _allowed_at(root: Model, path: Path) -> str:
    if not path:
        return f"a mapping with {', '.join(fields(root))}"
    names = [part for part in path if isinstance(part, str)]
    for length in range(len(names), 0, -1):  # the last name may be a key of an open mapping, such as a label
        model = _model_at(root, tuple(names[: length - 1]))
        info = fields(model).get(names[length - 1]) if model is not None else None
        if info is not None:
            inside = length < len(names) or isinstance(path[-1], int)
            return _allowed(info.annotation, info.metadata, inside=inside)
    return "as documented"


def _allowed(annotation: Any, metadata: list[Any], *, inside: bool = False) -> str:
    """What a field may hold, in words; `inside`: what one entry of its list or mapping may."""
    for item in metadata:
        if isinstance(item, Rule):
            return item.allowed
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return _allowed(next(each for each in arguments if each is not type(None)), metadata, inside=inside)
    if origin is Literal:
        return _one_of([str(each) for each in arguments])
    if origin in (tuple, dict, Mapping):
        if inside:
            return _allowed(arguments[0 if origin is tuple else 1], [])
        return _several(origin, arguments, metadata)
    return _single(annotation, metadata)


def _several(origin: Any, arguments: tuple[Any, ...], metadata: list[Any]) -> str:
    if origin is not tuple:
        return "a mapping of text to text" if arguments[1] is str else "a mapping"
    what = "text" if arguments[0] is str else "mappings"
    most = next((item.max_length for item in metadata if isinstance(item, annotated_types.MaxLen)), None)
    return f"a list of {what}" if most is None else f"a list of at most {most} {what}"


def _single(annotation: Any, metadata: list[Any]) -> str:
    if annotation is bool:
        return "true or false"
    if annotation is int:
        return _whole_number(metadata)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _one_of([str(each.value) for each in annotation])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"a mapping with {', '.join(fields(annotation))}"
    most = next((item.max_length for item in metadata if isinstance(item, annotated_types.MaxLen)), None)
    text = "text" if most is None else f"text of at most {most} characters"
    return f"{text}, not empty" if any(isinstance(item, annotated_types.MinLen) for item in metadata) else text


def _one_of(choices: list[str]) -> str:
    return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"


def _whole_number(metadata: list[Any]) -> str:
    low = next((item.ge for item in metadata if isinstance(item, annotated_types.Ge)), None)
    high = next((item.le for item in metadata if isinstance(item, annotated_types.Le)), None)
    if low is None or high is None:
        return "a whole number" if low is None else f"a whole number of at least {low}"
    return f"a whole number from {low} to {high}"
