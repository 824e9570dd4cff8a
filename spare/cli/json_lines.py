"""A run for machines: one JSON object a line. All but the last have a `type`; the last is the summary.

Who reads too slowly gets a line of type `dropped` in place of those that it missed, and always the last one.
"""

from __future__ import annotations

import json
import time
from typing import Any

import click

from spare.cli.outcome import Outcome, finite
from spare.cli.view import Pace, Run, live_groups
from spare.coordinator.observe import Event, Snapshot


def dropped(lines: int) -> str:
    """What stands in place of lines that nobody read in time."""
    return json.dumps({"type": "dropped", "lines": lines})


class JsonLines:
    """`View` as JSON."""

    def __init__(self) -> None:
        self._pace = Pace()
        self._last: tuple[object, ...] = ()

    def begin(self, run: Run) -> None:
        """See View."""
        self._say(
            type="begin",
            job=run.job,
            groups=run.groups,
            redundancy=run.redundancy,
            micro_batches=run.micro_batches,
            folder=str(run.folder),
            script=list(run.script),
        )

    def note(self, text: str) -> None:
        """See View. On stderr: it is for people."""
        click.echo(text, err=True)

    def event(self, event: Event) -> None:
        """See Observer."""
        self._say(type="event", at=event.at, reason=event.reason, text=event.text, groups=list(event.groups))

    def state(self, snapshot: Snapshot) -> None:
        """See Observer. One line per step, plan, new state or standstill: who draws a curve needs them all."""
        now, step = time.monotonic(), snapshot.step
        self._pace.see(now, snapshot)
        pids = [list(group.pids) if len(group.pids) > 1 else group.pid for group in snapshot.groups]
        spares = [{"state": spare.state, "pids": list(spare.pids)} for spare in snapshot.spares]
        news = (step, snapshot.epoch, snapshot.state, snapshot.masked, snapshot.stalled, pids, spares)
        if news == self._last:
            return
        self._last = news
        self._say(
            type="progress",
            at=time.time(),
            state=snapshot.state,
            step=step,
            epoch=snapshot.epoch,
            loss=finite(snapshot.loss),
            depth=snapshot.depth,
            live=live_groups(snapshot),
            masked=snapshot.masked,
            restarts=snapshot.restarts,
            checkpoint=snapshot.checkpoint,
            stalled=snapshot.stalled,
            stragglers={str(group.group): round(group.lag, 2) for group in snapshot.groups if group.lag},
            steps_per_second=round(self._pace.at(now), 3),
            pids=pids,
            spares=spares,
        )

    def broken(self) -> None:
        """See View."""

    def end(self, outcome: Outcome) -> None:
        """See View."""
        self._say(**outcome.as_json())

    def _say(self, **what: Any) -> None:
        click.echo(json.dumps(what))
