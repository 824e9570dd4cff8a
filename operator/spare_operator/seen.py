"""What a pod object says, in the terms of a job: is it up, is it going, has it ended, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from spare.api import wire
from spare.api.exit_codes import ExitCode
from spare_operator import names
from spare_operator.cluster import Body

_LONGEST: Final = 500
"""Characters of a container's last message that are passed on."""
_STUCK: Final = frozenset(
    {
        *("ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"),
        *("CreateContainerConfigError", "CreateContainerError", "CrashLoopBackOff", "RunContainerError"),
    }
)
"""The kubelet's reasons for which a container does not start, and somebody should look (field case F55)."""


@dataclass(frozen=True)
class Seen:
    """One pod at one moment."""

    uid: str
    """The API server's, of this pod alone."""
    incarnation: str
    """Ours, of the start of the group that it belongs to."""
    name: str
    group: int
    """Or, from spec.groups on, spare."""
    pod: int
    node: str
    address: str | None
    """Where its agent listens, once its container runs."""
    leaving: str | None
    """Why it is going (evicted, drained, deleted); None while it is not. It is still there."""
    grace: float | None
    """Seconds that it has from its deletion on, where it is being deleted."""
    deleting: bool
    """It has a deletionTimestamp."""
    ended: str | None
    """Why it is over: no process of it runs any more; None while any may."""
    outside: bool
    """It goes or has ended for no reason of its own: deleted, evicted, or refused or ended by its node."""
    exit_code: int | None
    """Of the trainer's container, where the kubelet told; it exits as its agent does."""
    stuck: str | None
    """Why its containers cannot start, as the kubelet or the scheduler has it; None if they do or may still."""
    unprepared: bool = False
    """It has its node, and what no container can start without is not there yet: its volumes, its network."""

    tolerations: tuple[Body, ...] = ()
    """Of its node's taints."""
    labels: Mapping[str, str] = field(default_factory=dict)
    owners: tuple[Body, ...] = ()
    """What marks it as the job's, as it is now: somebody may have changed it."""

    @property
    def live(self) -> bool:
        """Whether it is, or may become, a part of its group."""
        return self.ended is None and self.leaving is None


def exited(seen: Seen, job: str, procs: int) -> wire.Exited | None:
    """What the agent of an ended pod would have said; None where its exit code is not known.

    None also where the agent itself was killed: the kubelet's word for it (OOMKilled) says more than the signal.

    Args:
        seen: the pod.
        job: as in all messages.
        procs: workers of a pod.
    """
    code = seen.exit_code
    if seen.ended is None or code is None or code == ExitCode.SIGKILL:
        return None
    return wire.Exited(
        job=job,
        epoch=0,
        uid=seen.incarnation,
        group=seen.group,
        pod=seen.pod,
        rank=seen.pod * procs,
        code=code if code <= 128 else None,
        signal=code - 128 if code > 128 else None,
        tail=f"its pod ended: {seen.ended}",
    )


def job_of(body: Body) -> str:
    """uid of the job that a pod was made for, by its label, or else by its environment; empty if it is no job's."""
    label = (body["metadata"].get("labels") or {}).get(names.JOB_UID)
    return str(label or _environment(body.get("spec") or {}).get("SPARE_JOB", "").rpartition("/")[2])


def read_pod(body: Body, port: int, job: str) -> Seen | None:
    """What the object says; None if it is none of the job's pods.

    Who it is its environment says: labels may have been changed.

    Args:
        body: the object.
        port: where its agent listens, unless the pod itself says so: it may be of an operator with another setting.
        job: as in all messages.
    """
    meta, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    labels, own = meta.get("labels") or {}, _environment(spec)
    group, pod, incarnation = own.get("SPARE_GROUP", ""), own.get("SPARE_POD", ""), own.get("SPARE_UID", "")
    if own.get("SPARE_JOB") != job or not (group.isdigit() and pod.isdigit() and incarnation):
        return None
    if own.get("SPARE_SPARE") and (place := labels.get(names.GROUP_NUMBER, "")).isdigit():
        group = place  # which it has taken since
    trainer = _trainer(spec, status)
    leaving, ended = _leaving(meta, status), _ended(status, trainer)
    return Seen(
        uid=meta["uid"],
        incarnation=incarnation,
        name=meta["name"],
        group=int(group),
        pod=int(pod),
        node=spec.get("nodeName") or "",
        address=_address(status, trainer, _agent_port(spec) or port),
        leaving=leaving,
        grace=meta.get("deletionGracePeriodSeconds"),
        deleting=bool(meta.get("deletionTimestamp")),
        ended=ended,
        outside=leaving is not None or (ended is not None and bool(status.get("reason"))),
        exit_code=((trainer.get("state") or {}).get("terminated") or {}).get("exitCode"),
        stuck=_stuck(status),
        unprepared=any(_conditions(status, "PodReadyToStartContainers", "False")),
        tolerations=tuple(spec.get("tolerations") or ()),
        labels=labels,
        owners=tuple(meta.get("ownerReferences") or ()),
    )


def _environment(spec: Body) -> dict[str, str]:
    """Of the container that runs our agent, as far as it is plain text."""
    for container in spec.get("containers") or []:
        if any(port.get("name") == names.AGENT_PORT_NAME for port in container.get("ports") or []):
            return {each["name"]: each["value"] for each in container.get("env") or [] if each.get("value")}
    return {}


def _agent_port(spec: Body) -> int | None:
    ports = [port for container in spec.get("containers") or [] for port in container.get("ports") or []]
    return next((port.get("containerPort") for port in ports if port.get("name") == names.AGENT_PORT_NAME), None)


def _trainer(spec: Body, status: Body) -> Body:
    """Status of the container that runs our agent: it is the one with our port."""
    for container in spec.get("containers") or []:
        if any(port.get("name") == names.AGENT_PORT_NAME for port in container.get("ports") or []):
            for each in status.get("containerStatuses") or []:
                if each.get("name") == container.get("name"):
                    found: Body = each
                    return found
    return {}


def _address(status: Body, trainer: Body, port: int) -> str | None:
    if not status.get("podIP") or "running" not in (trainer.get("state") or {}):
        return None
    return str(wire.Address(status["podIP"], port))


def _conditions(status: Body, kind: str, value: str) -> Iterator[Body]:
    return (c for c in status.get("conditions") or [] if c.get("type") == kind and c.get("status") == value)


def _leaving(meta: Body, status: Body) -> str | None:
    for condition in _conditions(status, "DisruptionTarget", "True"):
        return f"{condition.get('reason') or 'disrupted'}: {condition.get('message') or 'no message'}"
    return "it is being deleted" if meta.get("deletionTimestamp") else None


def _ended(status: Body, trainer: Body) -> str | None:
    phase = status.get("phase")
    terminated: dict[str, Any] = (trainer.get("state") or {}).get("terminated") or {}
    if not terminated and phase not in ("Failed", "Succeeded"):
        return None
    if status.get("reason"):  # the kubelet's own: Evicted, NodeShutdown, ...
        return f"{status['reason']}: {status.get('message') or 'no message'}"
    if terminated:
        return _how(terminated)
    for each in status.get("initContainerStatuses") or []:
        over = (each.get("state") or {}).get("terminated") or {}
        if over.get("exitCode"):
            return f"init container {each.get('name')}: {_how(over)}"
    return f"its phase is {phase}"


def _how(terminated: Body) -> str:
    """How a container ended; a runtime that could not start it (`StartError`) says why."""
    reason, code = terminated.get("reason") or "ended", terminated.get("exitCode")
    text = f"{reason}, exit code {code}" if reason != "Completed" else f"exited with code {code}"
    return f"{text}: {said[:_LONGEST]}" if (said := (terminated.get("message") or "").strip()) else text


def _stuck(status: Body) -> str | None:
    for each in (*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])):
        waiting = (each.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _STUCK:
            return f"{waiting['reason']}: {waiting.get('message') or 'no message'}"
    for condition in _conditions(status, "PodScheduled", "False"):
        if condition.get("reason") in ("Unschedulable", "SchedulingGated"):
            return f"{condition['reason']}: {condition.get('message') or 'no message'}"
    return None
