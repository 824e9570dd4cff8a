"""Files with results: whether they can be written is asked before the work is done, and JSON holds no infinity."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click


class OutFile(click.Path):
    """A file to be written, in a folder that is there.

    Args:
        suffix: how its name has to end; empty: anyhow.
        dash: whether `-` stands for the terminal.
    """

    name = "file"

    def __init__(self, suffix: str = "", dash: bool = False) -> None:
        super().__init__(dir_okay=False, allow_dash=dash, path_type=Path)
        self._suffix = suffix

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See click.ParamType."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if self.allow_dash and str(path) == "-":
            return path
        if self._suffix and path.suffix.lower() != self._suffix:
            self.fail(f"{str(path)!r}: the name has to end in {self._suffix}", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"{str(path)!r}: there is no folder {str(path.parent)!r}", param, ctx)
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            self.fail(f"{str(path)!r} cannot be written", param, ctx)
        return path


@contextmanager
def written(path: Path) -> Iterator[None]:
    """An error while writing is said in one line."""
    try:
        yield
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror or error}") from error


def folder(path: Path) -> None:
    """Make sure of it, before hours are spent on what goes into it."""
    with written(path):
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError("no right to write")


def write_json(path: Path, document: Any) -> None:
    """With null for what is infinite."""
    with written(path):
        path.write_text(json_text(document, 1) + "\n", encoding="utf-8")


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """One run a line."""
    with written(path), path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def json_text(document: Any, indent: int) -> str:
    """JSON has no infinity: null."""
    return json.dumps(_without_infinity(document), indent=indent, allow_nan=False)


def read_results(path: Path) -> Any:
    """What ``write_json`` wrote of estimates: null is infinite.

    Raises:
        click.UsageError: the file cannot be read, or holds something else.
    """

    def restored(values: dict[str, Any]) -> dict[str, Any]:
        if values.keys() == {"mean", "half", "runs"}:
            return {key: math.inf if value is None else value for key, value in values.items()}
        return values

    try:
        return json.loads(path.read_text(encoding="utf-8"), object_hook=restored)
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise click.UsageError(f"{path} is not JSON: {error}") from error


def _without_infinity(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_infinity(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinity(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
