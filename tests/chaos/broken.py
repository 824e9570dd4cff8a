"""Rules left out on purpose, one at a time: what the simulation must find, or it proves nothing.

Each is a change to the program (or to what a process of it does) of a few lines, made while a context is open. The
protocol's model has the same rules left out under the names in brackets (tests/model).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import spare.control.boundary
import spare.control.detect
import spare.control.note
import spare_runtime.membership
import spare_runtime.regrouping
from spare.api import wire
from spare.coordinator.actor import Coordinator
from spare_runtime.legacy import Legacies
from spare_runtime.member import Member
from spare_runtime.membership import Membership
from spare_runtime.reaction import Reaction, reaction
from spare_runtime.regroup import Outcome, outcome
from spare_runtime.training import Training
from tests.chaos.gloo import SimMeeting
from tests.chaos.store import SimDonor

Break = Callable[[], Any]


def _no_barrier() -> Any:
    """Commit as soon as one's own reduction is complete."""
    return mock.patch.object(SimMeeting, "barrier", return_value=None)


def _reacting(change: Callable[..., Reaction]) -> Any:
    return mock.patch.object(spare_runtime.membership, "reaction", change)


def _boundary_alone() -> Any:
    """Act on a boundary plan at the next commit, whoever else has seen it."""
    real = Membership.go_to_newest

    @contextmanager
    def broken() -> Iterator[None]:
        def go(self: Membership) -> None:
            if self.has_seen_newer():
                real(self)

        seen = mock.patch.object(Training, "all_have_seen", return_value=True)
        with seen, mock.patch.object(Membership, "go_to_newest", go):
            yield

    return broken()


def _waiting_waits() -> Any:
    """[wait] Who waits acts on urgent plans only."""
    return _reacting(lambda plan, **known: reaction(plan, **{**known, "waiting": known["epoch"] == 0}))


def _base_is_epoch() -> Any:
    """[base] A boundary plan is none to act on at once, also for who is behind its last urgent ancestor.

    The coordinator keeps that from mattering as long as it makes no boundary plan before all run: that is left out too.
    """

    def change(plan: wire.Plan, **known: Any) -> Reaction:
        return reaction(plan if plan.base == plan.epoch else plan.model_copy(update={"base": 0}), **known)

    @contextmanager
    def broken() -> Iterator[None]:
        with _reacting(change), mock.patch.object(spare.control.boundary, "_quiet", return_value=True):
            yield

    return broken()


def _concluding(change: Callable[[int, Outcome, Any], Outcome]) -> Any:
    def changed(me: int, facts: Any, *arguments: Any) -> Outcome:
        return change(me, outcome(me, facts, *arguments), facts)

    return mock.patch.object(spare_runtime.regrouping, "outcome", changed)


def _behind_stays_behind() -> Any:
    """Who is one step behind computes the step again instead of committing what it holds."""
    return _concluding(lambda me, found, facts: replace(found, commit=False))


def _never_all() -> Any:
    """The step that all hold reduced is not committed: it may have been, by somebody who is dead."""

    def change(me: int, facts: Any, *arguments: Any) -> Outcome:
        even = len({f.turn for f in facts.values() if f.whole}) == 1
        return outcome(me, {g: replace(f, reduced=None) if even else f for g, f in facts.items()}, *arguments)

    return mock.patch.object(spare_runtime.regrouping, "outcome", change)


def _held_is_dropped() -> Any:
    """All is computed again after a failure."""

    def change(me: int, facts: Any, *arguments: Any) -> Outcome:
        none = {g: replace(f, held=0) for g, f in facts.items()}
        return replace(outcome(me, none, *arguments), held=False)

    return mock.patch.object(spare_runtime.regrouping, "outcome", change)


def _old_sum_counts() -> Any:
    """[reset] Entering a reduction does not forget the last one's result."""
    real = Training.entering

    def entering(self: Training, epoch: int, unseen: bool) -> Any:
        reduced, tensors = self.reduced, real(self, epoch, unseen)
        self.reduced = reduced  # though W is overwritten
        return tensors

    return mock.patch.object(Training, "entering", entering)


def _state_kept() -> Any:
    """[inc] A group that is admitted again goes on with the state of its former admission."""
    return mock.patch.object(Training, "forget", return_value=None)


def _loaded_later() -> Any:
    """[early] A joiner passes the barrier before it has loaded."""
    return mock.patch.object(Member, "_load", return_value=None)


def _given_while_it_changes() -> Any:
    """A donor goes on giving while it commits."""
    return mock.patch.object(SimDonor, "withdraw", return_value=None)


def _handed_on_while_it_changes() -> Any:
    """[withdraw] What a group that leaves offers it goes on offering when it commits, or computes on."""

    def change(self: Legacies) -> None:
        self._still = False

    return mock.patch.object(Legacies, "may_change", change)


def _given_too_early() -> Any:
    """A donor that commits in a regroup gives at once, before the script's own code behind that commit has run."""
    return mock.patch.object(Member, "_behind", property(lambda self: False, lambda self, value: None), create=True)


def _nothing_to_save() -> Any:
    """Who is admitted at the last commit comes out of its loop with what its script began with."""
    return mock.patch.object(Member, "arrive", return_value=None)


def _joiner_ends_all() -> Any:
    """A joiner that meets nobody in time ends the job."""
    return mock.patch.object(spare.control.note, "costs_only_itself", return_value=False)


def _others_unheard() -> Any:
    """All members are silent, and that a group waits to be admitted is no sign that our network works."""
    return mock.patch.object(spare.control.detect, "_others_heard", return_value=False)


def _told_before_written() -> Any:
    """A plan is told first and recorded later."""
    real = Coordinator._record

    async def later(self: Coordinator) -> None:
        self._chore(real(self))

    return mock.patch.object(Coordinator, "_record", later)


def _failure_unanswered() -> Any:
    """[ans] A failure in an epoch that a boundary plan has followed is taken for answered."""
    real = spare.control.note._member

    def member(turn: Any, message: Any) -> None:
        if isinstance(message, wire.Suspect) and message.epoch < turn.state.plan.epoch:
            return
        real(turn, message)

    return mock.patch.object(spare.control.note, "_member", member)


def _silence_unnoticed() -> Any:
    """Nobody is lost by silence."""
    return mock.patch.object(spare.control.detect, "_silent_agents", return_value=None)


def _not_told_again() -> Any:
    """Who was away when a plan was pushed is not told it when it is back."""
    real = spare.control.note._hello

    def hello(turn: Any, message: wire.Hello) -> None:
        epoch = turn.state.plan.epoch if turn.state.plan else 0
        real(turn, message.model_copy(update={"epoch": epoch}))

    return mock.patch.object(spare.control.note, "_hello", hello)


BROKEN: dict[str, Break] = {
    "no barrier": _no_barrier,
    "boundary alone": _boundary_alone,
    "waiting waits": _waiting_waits,
    "base is epoch": _base_is_epoch,
    "behind stays behind": _behind_stays_behind,
    "never all": _never_all,
    "held is dropped": _held_is_dropped,
    "old sum counts": _old_sum_counts,
    "state kept": _state_kept,
    "loaded later": _loaded_later,
    "given while it changes": _given_while_it_changes,
    "handed on while it changes": _handed_on_while_it_changes,
    "given too early": _given_too_early,
    "nothing to save": _nothing_to_save,
    "joiner ends all": _joiner_ends_all,
    "others unheard": _others_unheard,
    "told before written": _told_before_written,
    "failure unanswered": _failure_unanswered,
    "silence unnoticed": _silence_unnoticed,
    "not told again": _not_told_again,
}
