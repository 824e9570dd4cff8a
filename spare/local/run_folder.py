"""The folder of one local run: logs, ledgers and the small documents that must be whole or absent after a crash."""

from __future__ import annotations

import os
import secrets
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Final

LEDGERS: Final = "ledger"
"""Folder in it, which the workers make."""


class RunFolder:
    """One run's folder. Nothing in it is ever removed by the run itself."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known = {each: _identity(each) for each in self._needed}

    @property
    def _needed(self) -> tuple[Path, Path]:
        return self.path, self.path / LEDGERS

    @classmethod
    def create(cls, runs: Path, job: str, now: datetime) -> RunFolder:
        """Make a fresh folder `JOB-YYYYmmdd-HHMMSS-xxxx` under `runs`.

        Raises:
            OSError: it cannot be made.
        """
        path = runs / f"{job}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        path.mkdir(parents=True)
        return cls(path.resolve())

    def removed(self) -> Path | None:
        """What somebody else has removed since it was there: the folder, or the ledgers in it. None: nothing, or it
        cannot be told now."""
        for path, known in self._known.items():
            try:
                now = _identity(path)
            except OSError:
                return None
            if known is None:
                self._known[path] = now
            elif now != known:
                return path
        return None

    @property
    def name(self) -> str:
        """Its own name: what tells this run from others of the same job."""
        return self.path.name

    def log(self, group: int, pod: int | None = None) -> Path:
        """File that the group's agent and workers write their output to; each `pod`'s where it has several."""
        return self.path / (f"group-{group}.log" if pod is None else f"group-{group}-pod-{pod}.log")

    def spare_log(self, spare: int, uid: str, pod: int | None = None) -> Path:
        """The same of a spare, for each start of one: the groups whose places they take go on writing there."""
        return self.path / f"spare-{spare}-{uid[:8]}{'' if pod is None else f'-pod-{pod}'}.log"

    def tail(self, log: Path, lines: int = 10) -> str:
        """The last lines of a log; empty where there is none."""
        try:
            with log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
                return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""

    def ledgers(self) -> dict[str, list[bytes]]:
        """Lines of each ledger, by the name of its file; empty where no step was begun."""
        return {file.stem: file.read_bytes().splitlines() for file in sorted(self.path.glob(f"{LEDGERS}/*.jsonl"))}

    def record(self, name: str, text: str) -> None:
        """Replace the document `name` as a whole: a crash leaves the old one or the new one, never half of one.

        Raises:
            ValueError: `name` is no plain file name.
            OSError: it cannot be written.
        """
        if name in ("", ".", "..") or "/" in name:
            raise ValueError(f"the document's name {name!r} is no plain file name")
        fd, temporary = tempfile.mkstemp(dir=self.path, prefix=f".{name}.")
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(text)
            # No fsync: it takes tens of milliseconds of every recovery, and a power loss takes every process of a
            # local run along, so that nobody is left whom a lost document could contradict.
            os.replace(temporary, self.path / name)
        except BaseException:
            os.unlink(temporary)
            raise


def _identity(path: Path) -> tuple[int, int] | None:
    """Of what is there now; None: nothing is."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
