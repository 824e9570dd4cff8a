"""A file of failures: CSV with the columns seconds and group."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from spare.cli.mistake import Mistake

COLUMNS = ("seconds", "group")


def read_trace(path: Path, groups: int) -> tuple[tuple[float, int], ...]:
    """(seconds, group or -1 for any), ascending.

    Raises:
        Mistake: the file cannot be read, or a line of it is wrong; it names the line.
    """
    found: list[tuple[float, int]] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, skipinitialspace=True)
            head = [name.strip() for name in next(rows, [])]
            if sorted(head) != sorted(COLUMNS):
                raise Mistake(f"{path}: the columns are {', '.join(head) or 'missing'}; needed are seconds and group")
            for row in rows:
                if any(field.strip() for field in row):
                    if len(row) > len(head):
                        raise ValueError(f"{len(row)} fields; allowed are seconds and group")
                    found.append(_event(dict(zip(head, row, strict=False)), groups))
                    if found[1:] and found[-1][0] < found[-2][0]:
                        raise ValueError(f"seconds are {found[-1][0]:g} after {found[-2][0]:g}; they must ascend")
    except ValueError as error:  # a UnicodeDecodeError is one, too
        if isinstance(error, UnicodeDecodeError):
            raise Mistake(f"{path} is no text in UTF-8: {error}") from error
        raise Mistake(f"{path}, line {rows.line_num}: {error}") from error
    except (OSError, csv.Error) as error:
        raise Mistake(f"{path} cannot be read: {error}") from error
    return tuple(found)


def _event(fields: dict[str, str], groups: int) -> tuple[float, int]:
    text, group = fields.get("seconds", "").strip(), fields.get("group", "").strip()
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError(f"seconds is {text!r}; allowed is a number from 0 up")
    if not group:
        return seconds, -1
    if not group.isdecimal() or not int(group) < groups:
        raise ValueError(f"group is {group!r}; allowed is 0 to {groups - 1}, or nothing for any group")
    return seconds, int(group)
