"""The state of a job as others see it: `observe.Snapshot` from `control.State`."""

from __future__ import annotations

from spare.control.recovered import Recovered
from spare.control.state import Group, GroupState, State
from spare.coordinator.observe import GroupSnapshot, Recovery, Snapshot, SpareSnapshot

_UNSEEN = -1.0


def snapshot_of(state: State, wall: float) -> Snapshot:
    """What one may know of the job. `wall`: the wall clock when the coordinator's clock showed 0."""
    plan = state.plan
    return Snapshot(
        job=state.config.job,
        state=state.job.value,
        epoch=plan.epoch if plan else 0,
        step=max([state.step, *(state.groups[g].step for g in state.live)]),
        depth=plan.schedule.depth if plan else 0.0,
        loss=state.loss,
        groups=tuple(_group(state, number) for number in range(len(state.groups))),
        masked=state.masked,
        restarts=state.restarts,
        checkpoint=state.checkpoints[0] if state.checkpoints else None,
        refused=state.refused,
        stalled=state.stalled,
        plan_reason=plan.reason if plan else "",
        recoveries=tuple(_recovery(r, wall) for r in state.recoveries),
        exit_code=state.exit_code,
        verdict=state.verdict,
        digest=state.digest,
        spares=tuple(_spare(state, here) for here in state.spares),
        spares_used=state.taken,
    )


def _spare(state: State, here: Group) -> SpareSnapshot:
    pids = tuple(rank.pid for rank in here.ranks)
    reason = here.reason if here.state is GroupState.LOST else ""
    return SpareSnapshot(here.group - len(state.groups), here.state.value, pids, reason)


def _group(state: State, number: int) -> GroupSnapshot:
    here, plan = state.groups[number], state.plan
    return GroupSnapshot(
        group=number,
        state=here.state.value,
        stack=plan.schedule.placement.stack(number) if plan else (),
        load=plan.schedule.load(number) if plan else 0,
        step=here.step,
        phase=here.phase,
        still=here.still,
        pid=here.pid,
        pids=tuple(rank.pid for rank in here.ranks),
        reason=here.reason,
        pace=here.pace,
        lag=here.lag if here.straggler else 0.0,
    )


def _recovery(seen: Recovered, wall: float) -> Recovery:
    return Recovery(
        groups=seen.groups,
        step=seen.step,
        epoch=seen.epoch,
        detect=(seen.decided if seen.given_up is None else seen.given_up) - seen.sign,
        restart=0.0 if seen.given_up is None else seen.decided - seen.given_up,
        plan=_between(seen.decided, seen.pushed),
        regroup=_between(seen.pushed, seen.running),
        patch=_between(seen.running, seen.committed),
        total=_between(seen.sign, seen.committed),
        decided_at=wall + seen.decided,
        reason=seen.reason,
    )


def _between(first: float | None, then: float | None) -> float:
    """Seconds from one moment to the other; reports of different groups may cross, so never less than 0."""
    return _UNSEEN if first is None or then is None else max(0.0, then - first)
