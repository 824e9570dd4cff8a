"""What is wrong with a job file, said so that its author can mend it: where, what stands there, what may."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

_LONGEST_VALUE = 80  # a value of the file, shown in an error, is cut here: the place is named, that suffices


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a job file."""

    path: str
    """Where, from the root of the file: `spec.detection.deadAfter`; empty for the file as a whole."""
    value: object
    """What stands there; None also when nothing does."""
    allowed: str
    """What may stand there, as a noun phrase: `a whole number from 1 to 1000`."""
    message: str
    """The whole as one sentence, path and value included."""
    line: int | None = None
    """Line in the file, from 1; for something missing, that of the mapping it is missing from. None: unknown."""

    def __str__(self) -> str:
        return self.message if self.line is None else f"line {self.line}: {self.message}"


class JobFileError(ValueError):
    """A job file that cannot be used. Carries every problem found, in the order of the file, not only the first."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        if not self.problems:
            raise ValueError("a JobFileError needs at least one problem")
        super().__init__(self.problems)

    def __str__(self) -> str:
        count = len(self.problems)
        head = "the job file has a problem" if count == 1 else f"the job file has {count} problems"
        return "\n".join([f"{head}:", *(f"  {problem}" for problem in self.problems)])


def show(value: object) -> str:
    """A value as it would stand in the file (JSON is YAML too), cut to what fits a line."""
    if value is None:
        return "empty"
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def join(path: Iterable[str | int]) -> str:
    """`("spec", "containers", 0, "name")` as `spec.containers[0].name`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text
