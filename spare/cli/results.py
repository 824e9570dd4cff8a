"""Files with results: whether they can be written is asked before the work is done, and JSON holds no infinity."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from spare.cli.mistake import Mistake


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
        if str(path) == "-":
            if not self.allow_dash:
                self.fail("'-' is no file here; /dev/stdout is one", param, ctx)
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
    write_whole(path, json_text(document, 1) + "\n")


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """One run a line."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, text.getvalue())


def write_whole(path: Path, text: str) -> None:
    """All of it or nothing: a full disk or a kill leaves the file that was there. A device is written as it is."""
    with written(path):
        target = path.resolve()
        if (target.exists() and not target.is_file()) or not os.access(target.parent, os.W_OK):
            target.write_text(text, encoding="utf-8", newline="")
            return
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            beside.write_text(text, encoding="utf-8", newline="")
            if target.exists():
                beside.chmod(target.stat().st_mode)
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)


def json_text(document: Any, indent: int) -> str:
    """JSON has no infinity: null."""
    return json.dumps(_without_infinity(document), indent=indent, allow_nan=False)


def read_results(path: Path) -> Any:
    """What ``write_json`` wrote of estimates: null is infinite.

    Raises:
        Mistake: the file cannot be read, or holds something else.
    """

    def restored(values: dict[str, Any]) -> dict[str, Any]:
        if values.keys() == {"mean", "half", "runs"}:
            return {key: math.inf if value is None else value for key, value in values.items()}
        return values

    try:
        return json.loads(path.read_text(encoding="utf-8"), object_hook=restored)
    except OSError as error:
        raise Mistake(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise Mistake(f"{path} is not JSON: {error}") from error


def _without_infinity(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_infinity(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinity(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
