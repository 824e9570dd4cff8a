"""What of a job is written down, so that a coordinator that comes back knows it: the plan, and a few facts beside it.

One document holds both, so a crash leaves all of a decision or nothing of it. Everything else is asked again: agents
repeat what must not be lost to whoever attaches next (docs/protocol.md, rule 5).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from spare.control.plan import Plan
from spare.control.state import GroupState, State

_PAST = 4
"""Removed incarnations that are remembered of one group: older ones were deleted long ago."""


@dataclass(frozen=True)
class Kept:
    """Facts of a job that its agents cannot tell. Tables are ascending by group."""

    masked: int = 0
    restarts: int = 0
    drained: int = 0
    step: int = 0
    """Newest step known as committed when this was written: never more than the truth."""
    joining: tuple[int, ...] = ()
    """Members that have not committed a step yet."""
    attempts: tuple[tuple[int, int], ...] = ()
    """(group, starts) of groups that were started more than once since they last were members; see `Group.failed`."""
    past: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """(group, incarnations that were removed, the newest last)."""
    left: tuple[str, ...] = ()
    """Incarnations that the plan lets go and that are told of as gone: drained, or lost on the way."""
    finishing: bool = False
    """All members have committed the last step."""
    checkpoints: tuple[str, ...] = ()
    """The newest complete ones that are known, newest first."""
    damaged: tuple[str, ...] = ()
    """Those that somebody could not read."""
    restarting: tuple[int, str] | None = None
    """(last step, why), between a wipe-out and the plan with which all groups begin again."""
    digest: str | None = None
    exit_code: int | None = None
    """The job has ended, with this code."""
    verdict: str = ""
    end: str = ""
    """Reason of the end."""

    @classmethod
    def of(cls, state: State) -> Kept:
        """What is to be kept of a state."""
        joining = tuple(here.group for here in state.groups if here.state is GroupState.JOINING)
        return cls(
            masked=state.masked,
            restarts=state.restarts,
            drained=state.drained,
            step=state.step,
            joining=joining,
            attempts=tuple((here.group, here.failed) for here in state.groups if here.failed > 1),
            past=tuple((here.group, here.past[-_PAST:]) for here in state.groups if here.past),
            left=_left(state),
            finishing=state.finishing,
            checkpoints=state.checkpoints,
            damaged=tuple(sorted(state.damaged)),
            restarting=None if state.restarting is None else (state.restarting.step, state.restarting.reason),
            digest=state.digest,
            exit_code=state.exit_code,
            verdict=state.verdict,
            end=state.end,
        )

    def same(self, other: Kept | None) -> bool:
        """Whether nothing but the step, which grows all the time and is told by all agents, differs."""
        return other is not None and {**asdict(self), "step": 0} == {**asdict(other), "step": 0}


def _left(state: State) -> tuple[str, ...]:
    going = {each.uid for each in state.leavers if not each.left}
    return tuple(each.uid for each in state.plan.leaving if each.uid not in going) if state.plan is not None else ()


def document(plan: Plan, kept: Kept) -> str:
    """The record: the plan's own document with `kept` in it."""
    return json.dumps({**json.loads(plan.to_json()), "kept": asdict(kept)}, sort_keys=True, separators=(",", ":"))


def read_document(text: str) -> tuple[Plan, Kept]:
    """The inverse of `document`; a plan's document without anything kept is read, too.

    Raises:
        ValueError: not such a document, or the plan's digest is not that of its contents.
    """
    plan = Plan.from_json(text)
    raw: dict[str, Any] = json.loads(text).get("kept", {})
    try:
        kept = Kept(
            **{
                **raw,
                "joining": tuple(raw.get("joining", ())),
                "left": tuple(raw.get("left", ())),
                "checkpoints": tuple(raw.get("checkpoints", ())),
                "damaged": tuple(raw.get("damaged", ())),
                "restarting": None if (again := raw.get("restarting")) is None else (again[0], again[1]),
                "attempts": tuple((group, count) for group, count in raw.get("attempts", ())),
                "past": tuple((group, tuple(uids)) for group, uids in raw.get("past", ())),
            }
        )
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"recorded plan of epoch {plan.epoch}: what is kept beside it cannot be read: {error}"
        ) from error
    return plan, kept
