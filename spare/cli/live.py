"""A run on a terminal: groups, progress, loss and the last events, redrawn a few times a second at most."""

from __future__ import annotations

import asyncio
import time
from collections import deque

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from spare.cli.curve import sparkline
from spare.cli.lines import progress_line
from spare.cli.outcome import Outcome
from spare.cli.view import Pace, Run
from spare.coordinator.observe import Event, GroupSnapshot, Snapshot

REDRAW = 0.25
"""Seconds between two pictures: the cores are the workers'."""
EVENTS = 8
BAR = 16
COLOURS = {"active": "green", "done": "green", "ready": "cyan", "joining": "cyan", "starting": "yellow", "lost": "red"}
JOB_COLOURS = {"running": "green", "complete": "green", "pending": "yellow", "degraded": "yellow", "failed": "red"}


class Terminal:
    """`View` that redraws in place. Nothing is polled: a change asks for a picture, a timer of the loop draws it."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._live = Live(console=self._console, auto_refresh=False, transient=False)
        self._pace = Pace()
        self._run: Run | None = None
        self._snapshot: Snapshot | None = None
        self._losses: list[float] = []
        self._step = 0
        self._events: deque[Event] = deque(maxlen=EVENTS)
        self._drawn = float("-inf")
        self._pending: asyncio.TimerHandle | None = None

    def begin(self, run: Run) -> None:
        """See View."""
        self._run = run
        self._live.start()
        self._changed()

    def note(self, text: str) -> None:
        """See View."""
        self._live.console.print(text, style="yellow", markup=False)

    def event(self, event: Event) -> None:
        """See Observer."""
        self._events.append(event)
        self._changed()

    def state(self, snapshot: Snapshot) -> None:
        """See Observer."""
        self._snapshot = snapshot
        step = snapshot.step
        self._pace.see(time.monotonic(), snapshot)
        if step != self._step and snapshot.loss is not None:
            self._step = step
            self._losses.append(snapshot.loss)
        self._changed()

    def end(self, outcome: Outcome) -> None:
        """See View."""
        self.broken()
        for line in outcome.lines():
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def broken(self) -> None:
        """See View."""
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        self._live.update(self.picture(), refresh=True)
        self._live.stop()

    # --- drawing ----------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        if self._pending is None:
            wait = max(0.0, self._drawn + REDRAW - time.monotonic())
            self._pending = asyncio.get_running_loop().call_later(wait, self._draw)

    def _draw(self) -> None:
        self._pending = None
        self._live.update(self.picture(), refresh=True)
        self._drawn = time.monotonic()

    def picture(self) -> Group:
        """The whole view, as of now."""
        parts: list[Text | Table] = [self._header()]
        if self._snapshot is not None:
            parts.append(_groups(self._snapshot))
            if self._losses:
                width = min(60, max(10, self._console.width - 30))
                first, last = self._losses[0], self._losses[-1]
                parts.append(Text(f"loss {first:.4f} {sparkline(self._losses, width)} {last:.4f}"))
        for event in self._events:
            clock = time.strftime("%H:%M:%S", time.localtime(event.at))
            parts.append(
                Text(f"{clock} {event.reason:<14} {event.text}", no_wrap=True, overflow="ellipsis", style="dim")
            )
        return Group(*parts)

    def _header(self) -> Text:
        assert self._run is not None
        text = Text(f"{self._run.job}  ", style="bold")
        if self._snapshot is not None:
            text.append(self._snapshot.state, style=JOB_COLOURS.get(self._snapshot.state, ""))
            text.append(f"  {progress_line(self._snapshot, self._pace.at(time.monotonic()))}", style="not bold")
        text.append(f"\nlogs: {self._run.folder}/group-G.log", style="not bold dim")
        return text


def _groups(snapshot: Snapshot) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("group", "state", "stack", "load", "step", "phase", "pid", ""):
        table.add_column(heading, justify="right" if heading in ("group", "step", "pid") else "left")
    most = max((group.load for group in snapshot.groups), default=0)
    for group in snapshot.groups:
        table.add_row(
            str(group.group),
            Text(group.state, style=COLOURS.get(group.state, "")),
            " ".join(map(str, group.stack)),
            _bar(group, most),
            str(group.step),
            _phase(group),
            " ".join(str(pid) for pid in group.pids or (group.pid,) if pid),
            _remark(group),
        )
    for spare in snapshot.spares:
        state = Text(spare.state, style=COLOURS.get(spare.state, ""))
        pids = " ".join(str(pid) for pid in spare.pids if pid)
        table.add_row(f"spare {spare.spare}", state, "", "", "", "", pids, Text(spare.reason, style="dim"))
    return table


def _remark(group: GroupSnapshot) -> Text:
    if group.lag and group.state == "active":
        return Text(f"{group.lag:.1f} x slower ({1000 * group.pace:.3g} ms a micro-batch)", style="yellow")
    return Text(group.reason, style="red" if group.state == "lost" else "dim")


def _phase(group: GroupSnapshot) -> str:
    if group.state == "lost":
        return ""
    if group.state == "done":  # what its worker said last was before the end
        return "waits for the others"
    return group.phase + (f" ({group.still:.0f} s)" if group.still >= 2 else "")


def _bar(group: GroupSnapshot, most: int) -> str:
    return f"{'█' * round(BAR * group.load / most):<{BAR}} {group.load}" if most else ""
