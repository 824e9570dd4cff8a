"""A run as plain lines, for logs and pipes: every event, and how far it is at most once a second."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from spare.cli.outcome import Outcome
from spare.cli.view import Pace, Run, live_groups
from spare.coordinator.observe import Event, Snapshot
from spare.planner.words import counted

EVERY = 1.0
"""Seconds between two lines of progress."""


class Lines:
    """`View` in plain text."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pace = Pace()
        self._said = float("-inf")
        self._step = 0

    def begin(self, run: Run) -> None:
        """See View."""
        click.echo(
            f"job {run.job}: {counted(run.groups, 'group')}, redundancy {run.redundancy}, "
            f"{counted(run.groups * run.micro_batches, 'micro-batch')} a step"
        )
        for failure in run.script:
            click.echo(f"scripted: {failure}")
        click.echo(f"logs: {run.folder}/group-G.log")

    def note(self, text: str) -> None:
        """See View."""
        click.echo(text, err=True)

    def event(self, event: Event) -> None:
        """See Observer."""
        click.echo(f"{time.strftime('%H:%M:%S', time.localtime(event.at))} {event.reason}: {event.text}")

    def state(self, snapshot: Snapshot) -> None:
        """See Observer."""
        now, step = self._clock(), snapshot.step
        self._pace.see(now, snapshot)
        if step != self._step and now - self._said >= EVERY:
            self._said, self._step = now, step
            click.echo(progress_line(snapshot, self._pace.at(now)))

    def broken(self) -> None:
        """See View."""

    def end(self, outcome: Outcome) -> None:
        """See View."""
        click.echo("\n".join(outcome.lines()))


def progress_line(snapshot: Snapshot, pace: float) -> str:
    """How far a run is, in one line."""
    loss = "" if snapshot.loss is None else f", loss {snapshot.loss:.4f}"
    return (
        f"step {snapshot.step}{loss}, {pace:.1f} steps/s, {counted(live_groups(snapshot), 'group')}, "
        f"depth {snapshot.depth:.3g}, epoch {snapshot.epoch}, masked {snapshot.masked}{_spares(snapshot)}"
    )


def _spares(snapshot: Snapshot) -> str:
    if not snapshot.spares:
        return ""
    ready = sum(spare.state == "ready" for spare in snapshot.spares)
    return f", {ready} of {len(snapshot.spares)} spares ready"
