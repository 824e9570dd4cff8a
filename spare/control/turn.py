"""One call of `decide` in the making: the state so far, and what is to be done about it.

The only mutable thing in this room. It never leaves `decide`, which is a pure function for everybody outside.
"""

from __future__ import annotations

from typing import Any, TypeVar

from spare.api.exit_codes import ExitCode
from spare.api.reasons import EventReason
from spare.control.action import Action, Announce, EndJob, SendStop
from spare.control.config import Config
from spare.control.rank import Pod, Rank
from spare.control.state import GROUP_MOVES, JOB_MOVES, Group, GroupState, JobState, Loss, State

T = TypeVar("T", State, Group, Pod, Rank)


def changed(value: T, **changes: Any) -> T:
    """`dataclasses.replace` for what this room is made of: plain fields, no `__post_init__`.

    Most of what a decision costs is this, and the general one looks at every field anew: it takes 20 times as long.

    Raises:
        TypeError: there is no such field.
    """
    fields = vars(value)
    if not changes.keys() <= fields.keys():
        raise TypeError(f"{type(value).__name__} has no {', '.join(sorted(changes.keys() - fields.keys()))}")
    found = object.__new__(type(value))
    vars(found).update(fields)
    vars(found).update(changes)
    vars(found).pop("live", None)  # worked out from the others, see State
    return found


class Turn:
    """Collects the next state and the actions."""

    def __init__(self, state: State, now: float) -> None:
        self.state = state
        self.now = now
        self.actions: list[Action] = []
        self.reasons: list[str] = []
        self.moved = False
        """A group or the job has gone to another state."""

    @property
    def config(self) -> Config:
        """The job's settings."""
        return self.state.config

    def set(self, **changes: Any) -> None:
        """Change fields of the state."""
        self.state = changed(self.state, **changes)

    def group(self, group: int) -> Group:
        """One group, or spare, as it is now."""
        return self.state.at(group)

    def name(self, number: int) -> str:
        """ "group 3" or "spare 0"."""
        count = self.config.groups
        return f"group {number}" if number < count else f"spare {number - count}"

    def put(self, group: int, **changes: Any) -> None:
        """Change fields of one group; `move` is for its state."""
        self.seat(group, changed(self.group(group), **changes))

    def seat(self, number: int, here: Group) -> None:
        """Let this be all that is known under a group's, or spare's, number."""
        count = len(self.state.groups)
        kind, at = ("groups", number) if number < count else ("spares", number - count)
        rows = list(getattr(self.state, kind))
        rows[at] = here
        self.set(**{kind: tuple(rows)})

    def put_pod(self, group: int, pod: int, **changes: Any) -> None:
        """Change what is known of one pod of a group."""
        pods = self.group(group).pods
        self.put(group, pods=(*pods[:pod], changed(pods[pod], **changes), *pods[pod + 1 :]))

    def put_rank(self, group: int, rank: int, **changes: Any) -> None:
        """Change what is known of one rank of a group."""
        ranks = self.group(group).ranks
        self.put(group, ranks=(*ranks[:rank], changed(ranks[rank], **changes), *ranks[rank + 1 :]))

    def put_ranks(self, group: int, **changes: Any) -> None:
        """Change what is known of all ranks of a group."""
        self.put(group, ranks=tuple(changed(rank, **changes) for rank in self.group(group).ranks))

    def move(self, group: int, to: GroupState, **changes: Any) -> None:
        """Take a group to another state (see GROUP_MOVES), changing fields on the way."""
        at = self.group(group).state
        if at is not to and to not in GROUP_MOVES[at]:
            raise AssertionError(f"group {group} cannot go from {at} to {to}")
        self.moved = self.moved or at is not to
        self.put(group, state=to, **changes)

    def move_job(self, to: JobState) -> None:
        """Take the job to another state (see JOB_MOVES)."""
        at = self.state.job
        if at is not to and to not in JOB_MOVES[at]:
            raise AssertionError(f"the job cannot go from {at} to {to}")
        self.moved = True
        self.set(job=to)

    def do(self, *actions: Action) -> None:
        """Ask for actions, after those already asked for."""
        self.actions.extend(actions)

    def say(self, reason: EventReason, text: str, groups: tuple[int, ...] = ()) -> None:
        """Announce something, and let it be the reason of this decision."""
        self.reasons.append(text)
        self.do(Announce(reason, text, groups))

    def refuse(self, group: int, key: tuple[str, str], text: str) -> None:
        """Count something that must not be acted on; announce the first with this key, (from whom, what)."""
        self.set(refused=self.state.refused + 1)
        if key not in self.state.told:
            self.set(told=self.state.told | {key})
            about = (group,) if group < self.config.groups else ()
            self.say(EventReason.REFUSED, f"refused {text}", about)

    def lose(self, group: int, cause: str, sign: float) -> None:
        """A member is dead. It is answered at the end of this turn, together with all others that are known by then."""
        here = self.group(group)
        first = sign if here.link_down is None else min(sign, here.link_down)
        joined = here.state is not GroupState.JOINING
        losses = (*self.state.losses, Loss(group, here.uid, cause, first, joined))
        self.set(losses=losses, losses_seen=self.state.losses_seen + joined)
        self.move(group, GroupState.LOST, reason=cause, past=here.outlived(here.uid))
        self.start_again(group)

    def start_again(self, group: int) -> None:
        """Let a new incarnation of a group that is lost be started, after a pause that grows with every try."""
        if self.state.starting or self.config.replace:
            self.put(group, retry=self.now + self.config.backoff(self.group(group).attempts))

    def end(self, code: ExitCode, reason: EventReason, verdict: str, groups: tuple[int, ...] = ()) -> None:
        """End the job, once."""
        if self.state.ended:
            return
        ends = {EventReason.COMPLETED: JobState.COMPLETE, EventReason.SUSPENDED: JobState.SUSPENDED}
        self.move_job(ends.get(reason, JobState.FAILED))
        self.set(exit_code=int(code), verdict=verdict, end=str(reason))
        self.say(reason, verdict, groups)
        self.do(SendStop(verdict.splitlines()[0]), EndJob(int(code), verdict))
