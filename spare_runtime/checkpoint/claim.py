"""Whose a folder of checkpoints is: the job's that was the last to begin to save there.

A path is for one job at a time. Files do not tell whether who wrote them still lives, and clocks differ from host to
host, so nothing is locked and nothing runs out. A job leaves a small file with its first checkpoint, a claim, whose
number is larger than any before, and looks for a larger one before each that follows. Who finds one is fenced off for
good: it trains on, but saves nothing any more, and removes nothing that the other has saved.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

KEPT: Final = 64
"""Claims that are left of earlier jobs: one that lives, and misses its own, would take the folder back."""
_NAME: Final = re.compile(r"\.claim-(\d{8,})-([0-9a-f]{8})", re.ASCII)


class PathTaken(Exception):
    """Another job has begun to save there since; the text names it."""


class _Claim(NamedTuple):
    """The larger one counts; of two of one number, the one of the larger tag, for everybody alike."""

    number: int
    tag: str

    def below(self, path: Path) -> Path:
        return path / f".claim-{self.number:08d}-{self.tag}"


def hold(path: Path, tag: str, job: str) -> None:
    """Claim the folder, or see that it has not been claimed by another job since.

    Args:
        path: Of all checkpoints.
        tag: Of this job, see `spare.api.checkpoint.tag_of`.
        job: Its unique name, for whoever is refused.

    Raises:
        PathTaken: it has.
        OSError: it cannot be read or written.
    """
    claims = _claims(path)
    if not any(claim.tag == tag for claim in claims):
        path.mkdir(parents=True, exist_ok=True)
        _Claim(claims[-1].number + 1 if claims else 1, tag).below(path).write_text(job, encoding="utf-8")
        claims = _claims(path)  # another may have come at the same moment
        for old in claims[:-KEPT]:
            old.below(path).unlink(missing_ok=True)
    if (newest := claims[-1]).tag != tag:
        whose = newest.below(path).read_text(encoding="utf-8", errors="replace") or f"of tag {newest.tag}"
        raise PathTaken(f"job {whose} has begun to save in {path} since job {job} did: a path is for one job at a time")


def _claims(path: Path) -> list[_Claim]:
    """Of all jobs, the one that counts last."""
    found = (_NAME.fullmatch(entry.name) for entry in path.glob(".claim-*"))
    return sorted(_Claim(int(match[1]), match[2]) for match in found if match)
