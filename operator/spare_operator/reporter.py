"""Tells the world about one job: its status, written when it has changed, and events, after the status they are about.

An observer of the coordinator. It never makes the coordinator wait: what it is told is kept, and written by a task of
its own. Many changes in a short time make one write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from spare.api.reasons import EventReason
from spare.api.status import Status
from spare.control.plan import Plan
from spare.control.state import JobState, State
from spare.coordinator.observe import Event, Snapshot
from spare_operator.account import moved_by, spares_wait, starts_fail, status_of, waits_of
from spare_operator.cluster import ApiError, NotLeading
from spare_operator.pod import JobKey
from spare_operator.posting import post
from spare_operator.record import JobGone, Outrun, Record
from spare_operator.surroundings import Surroundings

logger = logging.getLogger(__name__)

STEP_EVERY: Final = 2.0
"""Shortest time between two writes that tell of nothing but further steps, seconds."""
_FEW: Final = 4
"""Pods that a sentence names."""
PAUSE_FIRST: Final = 1.0
PAUSE_MOST: Final = 30.0
"""Seconds before a status that was refused is written again, doubled from the first to the most: what passes by itself
was waited out before."""


class Reporter:
    """`spare.coordinator.observe.Observer` that writes to the API server."""

    def __init__(
        self, around: Surroundings, job: JobKey, record: Record, generation: int, state: Callable[[], State | None]
    ) -> None:
        """`state`: the job's present state; None while no coordinator runs."""
        self._around, self._job, self._record = around, job, record
        self._generation = generation
        self._state = state
        self._events: list[Event] = []
        self._changed = asyncio.Event()
        self._created: list[tuple[int, str]] = []
        self._plan: Plan | None = None
        self._moved = 0
        self._wall = around.wall() - around.clock()
        self._written = float("-inf")
        self.held: Mapping[tuple[int, int], tuple[EventReason, str]] = {}
        """What keeps pods from being there: the backend's."""
        self._pause, self._trouble = PAUSE_FIRST, ""
        """Before the next write, if the last one was refused; and why."""
        self._waits: tuple[EventReason, str] | None = None
        self._spares_wait: tuple[EventReason, str] | None = None
        self.end: EventReason | None = None
        """Why the job is being ended, where somebody but its control says so."""
        self.broken: BaseException | None = None
        """What made further writes impossible: the job is gone, or somebody else writes."""

    # --- told -------------------------------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        """See Observer. What is posted: one event for what is lost together, one for the plan that answers it, one for
        what was made, one for what is back; the rest is for the log (field case F54)."""
        if event.reason == EventReason.INTERRUPTED and self.end is not None:
            event = replace(event, reason=self.end)  # it was ended from here, and for that
        logger.info("%s: %s: %s", self._job, event.reason, event.text)
        if event.reason == EventReason.SUSPECTED:
            return
        if event.reason == EventReason.REORDERED and not any(e.groups == event.groups for e in self._events):
            return  # a boundary plan: the return that it prepares is told when it has happened
        self._events.append(event)
        self._changed.set()

    def state(self, snapshot: Snapshot) -> None:
        """See Observer."""
        count = len(snapshot.groups)
        state = self._state()
        waits, apart = waits_of(self.held, count), spares_wait(self.held, count)
        if waits is None and state is not None:
            waits = starts_fail(state)
        for now, before in ((waits, self._waits), (apart, self._spares_wait)):
            if now is not None and (before is None or now[0] != before[0]):
                self.event(Event(self._around.wall(), now[0], now[1]))
        self._waits, self._spares_wait = waits, apart
        self._changed.set()

    def created(self, group: int, pod: str) -> None:
        """A pod was made."""
        self._created.append((group, pod))
        self._changed.set()

    def restored(self, pods: Sequence[str]) -> None:
        """Pods were found without their labels or owner, and have them again."""
        if pods:
            text = f"somebody had changed labels or owner of {_shown(pods)}: they are as they were, and the pods stay"
            self.event(Event(self._around.wall(), EventReason.MARKS_RESTORED, text))

    # --- written ------------------------------------------------------------------------------------------------------

    async def write_plan(self, text: str) -> None:
        """The record of a plan, before anybody is told of it (`Backend.record`)."""
        await self._record.write_plan(text, self._change, self._not_written)

    async def _not_written(self, why: str) -> None:
        """Posted at once: whatever else is to be told waits for the plan."""
        text = f"a plan could not be written down, and nobody is told of it before: {why}; it is tried again"
        await post(self._around.cluster, self._job, Event(self._around.wall(), EventReason.BACKEND_FAILED, text))

    async def run(self) -> None:
        """Write until cancelled, or until nothing can be written any more (`broken`)."""
        try:
            while True:
                await self._changed.wait()
                await asyncio.sleep(0.05)  # what comes together is written together
                self._changed.clear()
                await self._pass()
        except (JobGone, NotLeading, Outrun) as error:
            self.broken = error

    async def flush(self) -> None:
        """Write what is left. Raises as `Record.write_status`."""
        await self._pass(last=True)

    async def _pass(self, *, last: bool = False) -> None:
        now = self._around.clock()
        if not last and not self._events and not self._news():
            wait = self._written + STEP_EVERY - now
            if wait > 0:
                await asyncio.sleep(wait)
        self._events = [*self._gathered(), *self._events]
        due = len(self._events)
        try:
            if await self._record.write_status(self._change):
                self._written = self._around.clock()
        except ApiError as error:
            self._changed.set()
            if last:
                raise
            await self._refused(str(error))
            return
        self._pause, self._trouble = PAUSE_FIRST, ""
        final = self._final(self._events[:due])
        for _ in range(due):  # each stays until it is posted: a job's end may cut this short, and flushes the rest
            event = self._events[0]
            await post(self._around.cluster, self._job, event, final=event is final)
            del self._events[0]

    async def _refused(self, why: str) -> None:
        """A status is not taken: told once, and tried again after a pause."""
        if why != self._trouble:
            logger.warning("%s: the status could not be written, and is tried again: %s", self._job, why)
        self._trouble = why
        await asyncio.sleep(self._pause)
        self._pause = min(2 * self._pause, PAUSE_MOST)

    def _final(self, events: Sequence[Event]) -> Event | None:
        """The one of them that tells of the job's end."""
        state = self._state()
        if state is None or state.job not in (JobState.COMPLETE, JobState.FAILED):
            return None
        reason = self.end or state.end
        return next((event for event in reversed(events) if event.reason == reason), None)

    def _news(self) -> bool:
        """Whether more than a step has changed since the last write."""
        state, before = self._state(), self._record.status
        if state is None:
            return True
        after = self._change(before)
        return after.model_copy(update={"step": before.step}) != before

    def _change(self, before: Status) -> Status:
        state = self._state()
        if state is None:
            return before
        plan = state.plan
        if plan is not None and not self._record.has(plan):
            return before  # it is not written down yet, and may never be
        if plan is not None and (self._plan is None or plan.epoch != self._plan.epoch):
            if plan.base == plan.epoch:  # one that answers a failure
                self._moved = moved_by(self._plan, plan)
            self._plan = plan
        return status_of(
            state,
            before,
            self._around.now(),
            generation=self._generation,
            wall=self._wall,
            moved=self._moved,
            waits=self._waits,
            end=self.end,
        )

    def _gathered(self) -> list[Event]:
        """One event for all pods made since the last."""
        created, self._created = self._created, []
        if not created:
            return []
        groups = tuple(sorted({group for group, _ in created}))
        text = f"created {_shown([name for _, name in created])}"
        return [Event(self._around.wall(), EventReason.POD_CREATED, text, groups)]


def _shown(pods: Sequence[str]) -> str:
    """The first of some names."""
    more = len(pods) - _FEW
    return ", ".join(pods[:_FEW]) + (f" and {more} more" if more > 0 else "")
