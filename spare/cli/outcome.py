"""What came of a run: the last snapshot, the audit of the ledgers, the exit code; for machines and for people."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spare.api.exit_codes import ExitCode
from spare.api.ledger import Audit, whose
from spare.coordinator.observe import Recovery, Snapshot
from spare.planner.words import counted, named

PARTS = ("detect", "plan", "regroup", "patch", "total")


def finite(loss: float | None) -> float | None:
    """The loss as JSON can say it: NaN and infinity are null there (for people they are shown as they are)."""
    return loss if loss is not None and math.isfinite(loss) else None


@dataclass(frozen=True)
class Outcome:
    """The end of a run."""

    snapshot: Snapshot
    audit: Audit
    recoveries: tuple[Recovery, ...]
    exit_code: int
    folder: Path
    unhappened: tuple[str, ...]
    """Scripted failures whose moment never came."""

    def as_json(self) -> dict[str, Any]:
        """The last line of `--json`. Seconds are null where that part was not seen before the job ended."""
        return {
            "result": self.snapshot.state,
            "steps": self.snapshot.step,
            "masked": self.snapshot.masked,
            "spares_used": self.snapshot.spares_used,
            "epoch": self.snapshot.epoch,
            "restarts": self.snapshot.restarts,
            "checkpoint": self.snapshot.checkpoint,
            "abandoned": self.audit.abandoned,
            "lost": self.audit.lost,
            "repeated": self.audit.repeated,
            "skipped": [list(micro) for micro in self.audit.skipped],
            "recoveries": [
                {"groups": list(r.groups), "step": r.step}
                | {part: _seconds(r, part) for part in PARTS}
                | {"restart": _seconds(r, "restart"), "decided_at": r.decided_at, "reason": r.reason}
                for r in self.recoveries
            ],
            "loss": finite(self.snapshot.loss),
            "digest": self.snapshot.digest,
            "exit_code": self.exit_code,
            "verdict": self.snapshot.verdict,
            "unhappened": list(self.unhappened),
            "problems": list(self.audit.problems),
            "folder": str(self.folder),
        }

    def lines(self) -> list[str]:
        """The summary for people."""
        last = self.snapshot
        loss = "" if last.loss is None else f", loss {last.loss:.6g}"
        how = f"{counted(last.step, 'step')}, epoch {last.epoch}, failures masked: {last.masked}{loss}"
        lines = [f"{last.state}: {how}"]
        if last.exit_code != ExitCode.COMPLETE and last.verdict:
            lines += ["", *last.verdict.splitlines(), ""]
        elif last.exit_code == ExitCode.COMPLETE and "; " in last.verdict:
            lines.append(last.verdict.partition("; ")[2])  # such as: its end could not be saved
        if self.recoveries:
            lines.append("seconds lost  " + "".join(f"{part:>9}" for part in PARTS))
            lines += [_recovery_line(recovery) for recovery in self.recoveries]
        if last.restarts:
            lines.append(
                f"restarts: {last.restarts}; steps given up by them and computed again: {self.audit.abandoned}"
            )
        if last.spares_used:
            lines.append(f"places of groups taken by spares: {last.spares_used}")
        if last.checkpoint:
            lines.append(f"newest checkpoint: {last.checkpoint}")
        lines.append(f"micro-batches computed again by survivors: {self.audit.repeated}")
        lines.append(f"micro-batches (and their samples) lost: {self.audit.lost}")
        lines += [
            f"skipped as poison: micro-batch {index} of shard {shard} in step {step}"
            for step, shard, index in self.audit.skipped
        ]
        lines += [f"a scripted failure did not happen, its moment never came: {each}" for each in self.unhappened]
        lines += [f"LEDGER: {problem}" for problem in self.audit.problems]
        if last.digest:
            lines.append(f"parameters: sha256 {last.digest}")
        lines.append(f"logs and ledgers: {self.folder}")
        return lines


def conclude(
    snapshot: Snapshot,
    ledgers: Mapping[str, Iterable[bytes]],
    audit: Audit,
    folder: Path,
    signalled: int | None,
    script: Iterable[str] = (),
) -> Outcome:
    """Put the end together.

    Args:
        snapshot: The last one.
        ledgers: Lines of the run's ledgers, which know the moments of scripted failures.
        audit: Of the same ledgers.
        folder: The run folder.
        signalled: Exit code for the signal that ended the run; None when it ended by itself.
        script: The failures that were asked for, `group G: ACTION@STEP:POINT[=SECONDS]`.
    """
    code = ExitCode.STALLED if snapshot.exit_code is None else snapshot.exit_code
    if signalled is not None and code == ExitCode.INTERRUPTED:
        code = signalled
    if audit.problems and code == ExitCode.COMPLETE:
        code = ExitCode.INEXACT
    moments = list(_moments(ledgers))
    recoveries = tuple(_since_the_failure(recovery, moments) for recovery in snapshot.recoveries)
    happened = {moment.text for moment in moments}
    unhappened = tuple(each for each in script if each.partition("=")[0] not in happened)
    return Outcome(snapshot, audit, recoveries, int(code), folder, unhappened)


@dataclass(frozen=True)
class _Moment:
    """A scripted failure as the one that it hit wrote it down just before."""

    group: int
    step: int
    at: float
    text: str
    """As it was asked for, without its seconds."""


def _moments(ledgers: Mapping[str, Iterable[bytes]]) -> Iterable[_Moment]:
    for name, lines in ledgers.items():
        for line in lines:
            if b'"fault"' in line:
                try:
                    entry = json.loads(line)
                except ValueError:  # torn: it died while it wrote
                    continue
                (group, rank), step = whose(name), int(entry["step"])
                of_rank = f".{rank}" if rank else ""
                text = f"group {group}: {entry['fault']}{of_rank}@{step}:{entry['point']}"
                yield _Moment(group, step, float(entry["at"]), text)


def _since_the_failure(recovery: Recovery, moments: Iterable[_Moment]) -> Recovery:
    """Detection counted from the failure itself where it was scripted; the coordinator knows its first sign only."""
    before = [
        moment.at
        for moment in moments
        if moment.group in recovery.groups
        and abs(moment.step - recovery.step) <= 1
        and moment.at <= recovery.decided_at
    ]
    if not before:
        return recovery
    detect = max(recovery.decided_at - recovery.restart - min(before), recovery.detect)
    total = recovery.total if recovery.total < 0 else recovery.total + detect - recovery.detect
    return replace(recovery, detect=detect, total=total)


def _seconds(recovery: Recovery, part: str) -> float | None:
    value = float(getattr(recovery, part))
    return None if value < 0 else round(value, 6)


def _recovery_line(recovery: Recovery) -> str:
    values = [_seconds(recovery, part) for part in PARTS]
    shown = "".join(f"{'-':>9}" if value is None else f"{value:9.3f}" for value in values)
    who = named("group", recovery.groups) if recovery.groups else "nobody"
    again = f", {recovery.restart:.3f} of them until all began again" if recovery.restart else ""
    return f"{'':14}{shown}   {who} lost in step {recovery.step}{again}"
