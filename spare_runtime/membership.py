"""Which plan this worker runs under, which it knows of, and what it must act on: shared by two threads.

The line's thread brings plans in; the main thread acts on them between micro-batches, or is freed from a collective
to do so. All decisions are `reaction`'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from spare.api import wire
from spare.api.exit_codes import ExitCode
from spare_runtime.errors import Departed, PlanTimeout
from spare_runtime.meeting import Meeting
from spare_runtime.reaction import Reaction, reaction
from spare_runtime.surroundings import REAL, Surroundings

_SAY_EVERY = 30.0
_SAY_WHILE_WANTED = 3600.0
"""The same for what may last for days."""


class Membership:
    """Plans as one worker sees them."""

    def __init__(self, uid: str, surroundings: Surroundings = REAL) -> None:
        self._uid = uid
        self._around = surroundings
        self._changed = surroundings.condition()
        self._pending: wire.Plan | None = None
        self._seen: wire.Plan | None = None
        self._waiting = True
        self.plan: wire.Plan | None = None
        """The plan that this worker runs under."""
        self.meeting: Meeting | None = None
        self.finished = False
        self.gives = False
        """It offers what it holds of the step in flight: a plan without it does not end this process at once."""

    @property
    def epoch(self) -> int:
        """Of the plan that this worker runs under; 0 before the first."""
        return self.plan.epoch if self.plan else 0

    # --- the line's thread ------------------------------------------------------------------------------------------

    def on_plan(self, plan: wire.Plan) -> None:
        """Take note of a plan; free the main thread where it must act."""
        with self._changed:
            what = reaction(
                plan,
                uid=self._uid,
                epoch=self.epoch,
                seen=self._seen.epoch if self._seen else 0,
                admission=self.plan.admission if self.plan else None,
                waiting=self._waiting,
            )
            if what is Reaction.IGNORE:
                return
            if what is Reaction.STOP and not self.gives:
                self._removed(plan)
            self._seen = plan
            self._changed.notify_all()
            if what in (Reaction.ACT, Reaction.STOP):
                self._pending = plan
                if self.meeting is not None:
                    self.meeting.interrupt()

    def on_finish(self) -> None:
        """The job has ended well: all have committed the last step, and who still meets others meets nobody."""
        with self._changed:
            self.finished = True
            if self.meeting is not None:
                self.meeting.interrupt()
            self._changed.notify_all()

    # --- the main thread --------------------------------------------------------------------------------------------

    @property
    def must_act(self) -> bool:
        """Whether a plan waits to be acted on at once."""
        return self._pending is not None

    @property
    def let_go(self) -> bool:
        """Whether the plan to be acted on is without this group."""
        return self._pending is not None and self._pending.admission is None

    def departs(self, why: str) -> None:
        """Raise Departed if a plan lets this group go, as it asked."""
        plan = self._pending
        if plan is not None and plan.drained:
            raise Departed(f"let go by plan {plan.epoch}: {why}")

    def has_seen_newer(self) -> bool:
        """Whether a plan newer than the present one is known."""
        return self._seen is not None and self._seen.epoch > self.epoch

    def go_to_newest(self) -> None:
        """Everybody has seen a boundary plan: the newest one that I know is to be acted on."""
        with self._changed:
            self._pending = self._seen

    @property
    def seen_epoch(self) -> int:
        """Of the newest plan that is known."""
        return self._seen.epoch if self._seen else 0

    def wait_for_news(self, deadline: float, than: int) -> None:
        """Wait, at most `deadline` seconds, for a plan newer than epoch `than`, whatever it is."""
        with self._changed:
            until = self._around.clock() + deadline
            while self.seen_epoch <= than and self._around.clock() < until:
                self._changed.wait(min(1.0, max(0.0, until - self._around.clock())))

    def failed(self) -> None:
        """A collective or rendezvous failed here: only an urgent plan, newer than this epoch, answers that."""
        with self._changed:
            self._waiting = False

    def next_plan(self, deadline: float, what: str, least: int = 0) -> wire.Plan | None:
        """The plan to act on, waiting for it: one of at least the epoch `least`, that another rank of this group has.
        None: the job has ended well meanwhile, none will come.

        Raises:
            PlanTimeout: none came within `deadline` seconds.
        """
        with self._changed:
            newer = f"a plan {f'of epoch {least}' if least else f'newer than epoch {self.epoch}'}, {what}"
            self._wait(
                lambda: self.finished or (self._pending is not None and self._pending.epoch >= least), deadline, newer
            )
            return None if self.finished else self._pending

    def act_on(self, plan: wire.Plan) -> None:
        """Run under this plan. From now on, until `go_on`, any newer one supersedes it.

        Raises:
            Departed: it lets this group go.
        """
        with self._changed:
            if self._pending is plan:
                self._pending = None
            if plan.drained:
                raise Departed(f"let go by plan {plan.epoch}: {plan.reason}")
            if plan.admission is None:
                self._removed(plan)
            self.plan = plan
            self._waiting = True

    def _removed(self, plan: wire.Plan) -> None:
        """What is being computed must not leave this process."""
        code = ExitCode.COMPLETE if plan.drained else ExitCode.SIGTERM
        self._around.leave(f"removed from the job by plan {plan.epoch}: {plan.reason}", code)

    def _wait(self, ready: Callable[[], bool], deadline: float, what: str) -> None:
        began = said = self._around.clock()
        while not ready():
            self._changed.wait(1.0)
            now = self._around.clock()
            if not ready() and now - began > deadline:
                raise PlanTimeout(f"waited {deadline:.0f} s for {what}")
            if now - said > (_SAY_EVERY if deadline < math.inf else _SAY_WHILE_WANTED):
                said = now
                self._around.say(f"spare: {now - began:.0f} s of waiting for {what}")

    def meet(self, meeting: Meeting) -> None:
        """The meeting that `on_plan` must interrupt from now on."""
        with self._changed:
            self.meeting = meeting
            if self._pending is not None or self.finished:
                meeting.interrupt()

    def go_on(self) -> None:
        """The exchange is complete: from here on boundary plans wait for a commit."""
        with self._changed:
            self._waiting = False

    def wait_for_end(self, deadline: float) -> bool:
        """After the last step: True when the job has ended, False when there is a plan to act on.

        Raises:
            PlanTimeout: neither happened within `deadline` seconds.
        """
        with self._changed:
            self._waiting = True
            if self.has_seen_newer():
                self._pending = self._seen
            what = "the other groups to finish"
            self._wait(lambda: self.finished or self._pending is not None, deadline, what)
            return self.finished
