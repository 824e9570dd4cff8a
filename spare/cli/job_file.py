"""Reading a job file for a command: with fields overridden, and with every problem told."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import yaml
from pydantic import ValidationError

from spare.api.document import Document, read_document
from spare.api.document import Path as Place
from spare.api.explain import explain
from spare.api.job import JobFileError, SPAReJob, load_job
from spare.api.problems import join
from spare.cli.mistake import Mistake

_PART = re.compile(r"([A-Za-z][A-Za-z0-9]*)((?:\[\d+\])*)")


def overrides_of(
    context: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> tuple[tuple[Place, Any], ...]:
    """`PATH=VALUE` of a repeatable option, such as spec.redundancy=2, as (place, value); the value is read as YAML.

    Raises:
        click.BadParameter: it has another form.
    """
    return tuple(map(_override, texts))


def _override(text: str) -> tuple[Place, Any]:
    path, equals, value = text.partition("=")
    place: list[str | int] = []
    for part in path.split("."):
        match = _PART.fullmatch(part)
        if match is None or not equals:
            raise click.BadParameter(f"{text!r} is not PATH=VALUE, such as spec.redundancy=2")
        place += [match[1], *map(int, re.findall(r"\d+", match[2]))]
    try:
        return tuple(place), yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise click.BadParameter(f"the value {value!r} of {path} is not YAML: {error}") from error


def read_job(path: Path, overrides: Sequence[tuple[Place, Any]] = ()) -> SPAReJob:
    """The job in a file, with `overrides` in place of what stands there, checked as if they stood there.

    Raises:
        Mistake: with every problem that was found.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return _overridden(text, overrides) if overrides else load_job(text)
    except (OSError, UnicodeDecodeError) as error:
        raise Mistake(f"{path} cannot be read: {error}") from error
    except JobFileError as error:
        raise Mistake(f"{path}: {error}") from error


def _overridden(text: str, overrides: Sequence[tuple[Place, Any]]) -> SPAReJob:
    document = read_document(text)
    lines = dict(document.lines)
    for place, value in overrides:
        _put(document.data, place, value)
        lines = {known: line for known, line in lines.items() if known[: len(place)] != place}
        lines[place] = document.line(place) or 1
    try:
        return SPAReJob.model_validate(document.data, by_alias=True, by_name=False)
    except ValidationError as error:
        problems = explain(SPAReJob, error.errors(include_url=False), Document(document.data, lines))
        raise JobFileError(problems) from error


def _put(data: dict[str, Any], place: Place, value: Any) -> None:
    here: Any = data
    for part, last in ((part, index == len(place) - 1) for index, part in enumerate(place)):
        if isinstance(here, dict) and isinstance(part, str):
            here.setdefault(part, {})
        elif not (isinstance(here, list) and isinstance(part, int) and part < len(here)):
            raise click.UsageError(f"--set {join(place)}: the job file has no place for it, and none is made in a list")
        if last:
            here[part] = value
        here = here[part]
