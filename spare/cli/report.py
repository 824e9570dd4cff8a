"""What a cluster says of one job, put together from the job, its plan, its pods and its events. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from spare.api.job import load_object
from spare.api.status import Status
from spare.cli.cluster import when
from spare.control.plan import Plan
from spare.control.record import Kept, read_document
from spare.coordinator.actor import PLAN_DOCUMENT
from spare_operator.cluster import Body
from spare_operator.names import AGENT_PORT
from spare_operator.pod import JobKey
from spare_operator.seen import Seen, read_pod


@dataclass(frozen=True)
class GroupReport:
    """One group."""

    group: int
    state: str
    """active: trains; joining: a member without the training state yet; done; starting: it has pods and is no member;
    lost: neither."""
    stack: tuple[int, ...]
    """Shards that it hosts; none before the first plan."""
    load: int
    """Micro-batches that it computes in a step by the newest plan."""
    pods: tuple[str, ...]
    nodes: tuple[str, ...]
    remark: str
    """What keeps it from starting, or why it goes; empty: nothing."""


@dataclass(frozen=True)
class EventReport:
    """One event."""

    time: str
    reason: str
    message: str
    warning: bool


@dataclass(frozen=True)
class JobReport:
    """One job. As JSON its fields keep their names and meaning; new ones may come."""

    name: str
    namespace: str
    state: str
    """The first true condition: Failed, Complete, Suspended, Degraded, Running; Pending while none is."""
    reason: str
    message: str
    step: int
    epoch: int
    depth: float | None
    hosts_left: int | None
    masked: int
    drained: int
    restarts: int
    checkpoint: str | None
    """The newest complete one that the plan's record knows."""
    checkpoint_time: str | None
    """When it was complete; None where its event has expired."""
    groups: tuple[GroupReport, ...]
    spares: tuple[str, ...]
    """Pods that wait warm, or start to."""
    events: tuple[EventReport, ...]
    effective: dict[str, Any]
    """The spec without its template, defaults filled in."""

    def plain(self) -> dict[str, Any]:
        """For JSON and YAML: names as in the API."""
        raw = asdict(self)
        raw["hostsLeft"], raw["checkpointTime"] = raw.pop("hosts_left"), raw.pop("checkpoint_time")
        return raw


def report(job: Body, plan_map: Body | None, pods: Sequence[Body], events: Sequence[Body]) -> JobReport:
    """Put together one job.

    Args:
        job: the SPAReJob.
        plan_map: the ConfigMap with its plan; None before the first.
        pods: all pods with the job's label.
        events: those about the job, oldest first.
    """
    status, spec = Status.model_validate(job.get("status") or {}), load_object(job)
    text = ((plan_map or {}).get("data") or {}).get(PLAN_DOCUMENT)
    plan, kept = read_document(text) if text else (None, Kept())
    state = status.state
    told = next((c for c in status.conditions if c.type == (state or "Running")), None)
    count, meta = spec.spec.groups, job["metadata"]
    key = str(JobKey(meta["namespace"], meta["name"], meta["uid"]))
    seen = [each for pod in pods if (each := read_pod(pod, AGENT_PORT, key)) is not None]
    shown = tuple(map(event_report, events))
    newest = kept.checkpoints[0] if kept.checkpoints else None
    saved = [e.time for e in shown if e.reason == "Checkpointed" and newest is not None and newest in e.message]
    return JobReport(
        name=job["metadata"]["name"],
        namespace=job["metadata"]["namespace"],
        state=str(state or "Pending"),
        reason=told.reason if told else "",
        message=told.message if told else "no operator has taken it up yet",
        step=status.step or 0,
        epoch=status.epoch,
        depth=status.depth,
        hosts_left=status.hosts_left,
        masked=status.masked,
        drained=status.drained,
        restarts=status.restarts,
        checkpoint=newest,
        checkpoint_time=saved[-1] if saved else None,
        groups=tuple(_group(group, plan, kept, status, seen) for group in range(count)),
        spares=_spares(plan, count, seen),
        events=shown,
        effective={key: value for key, value in spec.effective()["spec"].items() if key != "template"},
    )


def event_report(event: Body) -> EventReport:
    """One event as it is shown."""
    warning = event.get("type") == "Warning"
    return EventReport(when(event), event.get("reason") or "", event.get("message") or "", warning)


def _group(group: int, plan: Plan | None, kept: Kept, status: Status, seen: Sequence[Seen]) -> GroupReport:
    member = plan.by_group.get(group) if plan is not None else None
    # A spare that has taken a group's place keeps its own number: what tells is the incarnation in the plan.
    ours = sorted((each for each in seen if each.group == group), key=lambda each: each.pod)
    mine = sorted((e for e in seen if member is not None and e.incarnation == member.uid), key=lambda e: e.pod) or ours
    # Lost, and no plan without it is out yet: the job waits for `minGroups`, or to begin again.
    past = dict(kept.past).get(group, ())
    trains = member is not None and member.uid not in past and kept.restarting is None and status.state != "Suspended"
    if status.final:
        state = "done" if member is not None else "lost"
    elif trains:
        state = "joining" if group in kept.joining else "active"
    else:
        state = "starting" if any(each.live and each.incarnation not in past for each in ours) else "lost"
    remarks = [why for each in mine if (why := each.leaving or each.stuck or each.ended)]
    return GroupReport(
        group=group,
        state=state,
        stack=plan.schedule.placement.stack(group) if plan is not None else (),
        load=plan.schedule.loads[group] if plan is not None else 0,
        pods=tuple(each.name for each in mine),
        nodes=tuple(sorted({each.node for each in mine if each.node})),
        remark=remarks[0] if remarks else "" if mine or status.final or status.state == "Suspended" else "no pod",
    )


def _spares(plan: Plan | None, groups: int, seen: Sequence[Seen]) -> tuple[str, ...]:
    members = {member.uid for member in plan.members} if plan is not None else set()
    waiting = [each for each in seen if each.group >= groups and each.live and each.incarnation not in members]
    return tuple(each.name for each in sorted(waiting, key=lambda each: (each.group, each.pod)))
