"""A group of a job on a cluster leaves: its pods are evicted, as `kubectl drain` does with all those of a node."""

from __future__ import annotations

import asyncio
from typing import Final

import click

from spare.api.exit_codes import ExitCode
from spare.api.reasons import ConditionType, EventReason
from spare.api.status import Status
from spare.cli.cluster import Place
from spare.cli.mistake import Mistake
from spare.control.record import read_document
from spare.coordinator.actor import PLAN_DOCUMENT
from spare_operator import names
from spare_operator.cluster import PODS, Body

LOOK: Final = 0.5
LEAST: Final = 60.0
"""Seconds after the grace in which it must be known what became of the group."""
_ENDS: Final = {
    EventReason.DRAINED: ExitCode.COMPLETE,
    EventReason.GROUP_LOST: ExitCode.USER_ERROR,
    EventReason.HALTING: ExitCode.USER_ERROR,
}
"""A group that the job cannot do without makes it stop as a whole."""
_TOLD: Final = (EventReason.LEAVING, *_ENDS)


async def evict(place: Place, group: int, grace: float | None) -> int:
    """Evict the pods of a group and say what comes of it, until it has left (0) or was lost instead (1).

    Raises:
        Mistake: there is no such group.
        click.ClickException: it has no pods, the job does not train, or nothing was heard of it in time.
        ApiError: an eviction was refused, by the user's rights or a disruption budget.
    """
    job = await place.read()
    uid, count = job["metadata"]["uid"], job["spec"]["groups"]
    if not 0 <= group < count:
        raise Mistake(f"group {group}: the job has the groups 0 to {count - 1}")
    status = Status.model_validate(job.get("status") or {})
    if not _trains(status):
        said = next((f"{each.reason}: {each.message}" for each in status.conditions), "nobody has taken it up yet")
        raise click.ClickException(f"{place.job} does not train ({said}): only a group that trains can leave")
    pods = [
        pod for pod in await place.cluster.list(PODS, place.namespace, await _labels(place, uid, group)) if _runs(pod)
    ]
    if not pods:
        raise click.ClickException(f"group {group} has no pod that runs: only a group that trains can leave")
    before = {each["metadata"]["uid"] for each in await place.events(uid)}
    for pod in pods:
        await place.cluster.evict(place.namespace, pod["metadata"]["name"], uid=pod["metadata"]["uid"], grace=grace)
        click.echo(f"pod {pod['metadata']['name']} is evicted")
    longest = max(float(pod["spec"].get("terminationGracePeriodSeconds") or 30) for pod in pods)
    return await _follow(place, uid, group, before, LEAST + (longest if grace is None else grace))


def _trains(status: Status) -> bool:
    """Whether its groups can be asked to leave: they train, or have trained and wait for others."""
    waits = any(each.reason == EventReason.BELOW_MIN_GROUPS for each in status.conditions)
    return status.state in (ConditionType.RUNNING, ConditionType.DEGRADED) or (waits and not status.final)


async def _labels(place: Place, uid: str, group: int) -> dict[str, str]:
    """Those of the pods that are the group now: a spare that took its place has no number of a group."""
    plan_map = await place.plan(uid)
    if plan_map is not None:
        member = read_document(plan_map["data"][PLAN_DOCUMENT])[0].by_group.get(group)
        if member is not None:
            return {names.JOB_UID: uid, names.INCARNATION: member.uid}
    return {names.JOB_UID: uid, names.GROUP_NUMBER: str(group)}


async def _follow(place: Place, uid: str, group: int, told: set[str], seconds: float) -> int:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while loop.time() < deadline:
        for event in await place.events(uid):
            if event["metadata"]["uid"] in told or not _concerns(event, group):
                continue
            told.add(event["metadata"]["uid"])
            reason = EventReason(event["reason"])
            code = _ENDS.get(reason)
            click.echo(event["message"], err=bool(code))
            if code is not None:
                return int(code)
        status = Status.model_validate((await place.read()).get("status") or {})
        if status.final:
            click.echo(f"the job has ended meanwhile: {status.state}")
            return int(ExitCode.COMPLETE if status.state is ConditionType.COMPLETE else ExitCode.USER_ERROR)
        await asyncio.sleep(LOOK)
    raise click.ClickException(
        f"nothing was heard of group {group} for {seconds:.0f} s after its eviction: does an operator run?"
    )


def _concerns(event: Body, group: int) -> bool:
    """Whether it tells of this group. An event names its groups in its annotation, for texts are for people."""
    groups = (event["metadata"].get("annotations") or {}).get(names.GROUPS, "")
    return event.get("reason") in _TOLD and (not groups or str(group) in groups.split(","))


def _runs(pod: Body) -> bool:
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return not ended and not pod["metadata"].get("deletionTimestamp")
