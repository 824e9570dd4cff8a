"""A job while it trains: its coordinator, its pods, what is reported of it, and what its run policy allows."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
from typing import Any

from spare.api.exit_codes import ExitCode
from spare.api.reasons import EventReason
from spare.api.spec import RunPolicy, Spec
from spare.control.config import Config
from spare.control.record import read_document
from spare.control.resume import going_on
from spare.control.signal import Allow, Suspend
from spare.control.state import JobState, State
from spare.coordinator.actor import Coordinator
from spare.planner import recommended_redundancy
from spare_operator.backend import KubernetesBackend
from spare_operator.cluster import ApiError, Body
from spare_operator.credentials import Credentials, Occupied, credentials
from spare_operator.network import close_in
from spare_operator.pod import JobKey, Pods
from spare_operator.record import Outrun, Record
from spare_operator.reporter import Reporter
from spare_operator.surroundings import Fenced, Surroundings

logger = logging.getLogger(__name__)

SUSPEND_PATIENCE = 600.0
"""Seconds that the groups get to finish a step and save it: nobody presses, and a step may be long."""
LOOK = 1.0
"""Seconds between two looks at the job's deadline."""
KEEP = 20.0
"""Seconds between two looks whether what is written of the job is still there."""
CREATE_BACKOFF = 1.0
"""Seconds before the second start of a group; doubled at each further one, up to a minute (field case F48)."""


class Training:
    """From the first pod to the last order."""

    def __init__(self, around: Surroundings, key: JobKey, record: Record, spec: Spec, body: Body) -> None:
        """`body`: the object that `spec` was read from. The record's may be of before an edit."""
        self._around, self._key, self._record, self._spec = around, key, record, spec
        self._template = body["spec"]["template"]
        self._policy = spec.run_policy
        self.coordinator: Coordinator | None = None
        """Once it works."""
        self._backend: KubernetesBackend | None = None
        generation = body["metadata"].get("generation", 0)
        self._reporter = Reporter(around, key, record, generation, self._state)
        self._changed = asyncio.Event()

    @property
    def suspended(self) -> bool:
        """Whether it stopped in good order, to be gone on with."""
        state = self._state()
        return state is not None and state.job is JobState.SUSPENDED

    def pod(self, body: Body, *, deleted: bool) -> None:
        """Take note of a pod."""
        if self._backend is not None:
            self._backend.see(body, deleted=deleted)

    def node(self, name: str) -> None:
        """Something is wrong with a node."""
        if self._backend is not None:
            self._backend.node_changed(name)

    def policy(self, policy: RunPolicy) -> None:
        """This is the run policy now; that it is as before, or as it once was, is fine."""
        before, self._policy = self._policy, policy
        if self.coordinator is not None and policy.suspend and not before.suspend:
            self.coordinator.emit(Suspend("runPolicy.suspend is set", SUSPEND_PATIENCE))
        if self.coordinator is not None and policy.backoff_limit != before.backoff_limit:
            self.coordinator.emit(Allow(policy.backoff_limit))
        self._changed.set()

    def _state(self) -> State | None:
        return self.coordinator.state if self.coordinator is not None else None

    async def run(self) -> None:
        """Train until the job has ended, and that is written; or until it is suspended.

        Raises:
            JobGone, NotLeading, Outrun: somebody else's now.
        """
        around, spec = self._around, self._spec
        secret = await credentials(around.cluster, self._key, trains=trains(self._record.plan))
        if around.operators is not None:  # before the first pod is made
            await close_in(around.cluster, self._key, around.operators, around.agent_port)
        recorded = self._record.plan
        written = read_document(recorded)[0].epoch if recorded is not None else 0
        if written < self._record.status.epoch:
            what = f"the status is at plan {self._record.status.epoch}, the recorded plan is {written or 'missing'}"
            raise Outrun(f"{self._key}: {what}; nothing is done: restore the ConfigMap, or create the job anew")
        if recorded is not None and read_document(recorded)[1].exit_code == ExitCode.SIGTERM:
            recorded = going_on(recorded)  # it was suspended, and is not any more
        members = _members(recorded) if recorded is not None else None
        self._backend = KubernetesBackend(
            around.cluster,
            Pods(self._key, spec, self._template, around.agent_port),
            around.nodes,
            members=members,
            leaving=_leaving(recorded) if recorded is not None else (),
            record=self._reporter.write_plan,
            created=self._reporter.created,
            restored=self._reporter.restored,
        )
        self._reporter.held = self._backend.held
        self.coordinator = Coordinator(
            config_of(self._key, spec.model_copy(update={"run_policy": self._policy})),
            self._backend,
            token=secret.token,
            transport=Fenced(secret.transport(), around.leading),
            observers=[self._reporter],
            recorded=recorded,
            incarnation=around.identity,
            term=around.term,
            clock=around.clock,
            wall=around.wall,
        )
        if self._policy.suspend:  # since nobody was there to hear of it: what runs is to finish its step first
            self.coordinator.emit(Suspend("runPolicy.suspend is set", SUSPEND_PATIENCE))
        await self._until_the_end(self.coordinator, self._backend, secret)
        await self._reporter.flush()

    async def _until_the_end(self, coordinator: Coordinator, backend: KubernetesBackend, secret: Credentials) -> None:
        loop = asyncio.get_running_loop()
        job, report = loop.create_task(coordinator.run()), loop.create_task(self._reporter.run())
        keep = loop.create_task(self._keep(secret))
        try:
            while not job.done():
                change = loop.create_task(self._changed.wait())
                waits: set[asyncio.Future[Any]] = {job, report, keep, backend.failure, change}
                try:
                    await asyncio.wait(waits, timeout=LOOK, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    change.cancel()
                if report.done() and not job.done():
                    report.result()
                    assert self._reporter.broken is not None
                    raise self._reporter.broken
                for failed in (backend.failure, keep):
                    if failed.done():
                        failed.result()
                self._changed.clear()
                self._end_if_late(coordinator)
            job.result()
        finally:
            for task in (job, report, keep):
                task.cancel()
            await asyncio.wait({job, report, keep})

    async def _keep(self, secret: Credentials) -> None:
        """Make again what somebody deletes of the plan and the Secrets: while an operator lives, it knows them."""
        while True:
            await asyncio.sleep(KEEP)
            try:
                await self._record.keep()
                await credentials(self._around.cluster, self._key, secret)
            except (ApiError, Occupied) as error:
                logger.warning("%s: whether plan and Secrets are there is not known: %s", self._key, error)

    def _time_left(self) -> float | None:
        """Seconds until activeDeadlineSeconds is over; None without. A suspension ends the count."""
        limit, began = self._policy.active_deadline_seconds, self._record.status.start_time
        if limit is None or began is None:
            return None
        return max(0.0, limit - (self._around.now() - began).total_seconds())

    def _end_if_late(self, coordinator: Coordinator) -> None:
        left = self._time_left()
        if left is not None and left <= 0 and not coordinator.state.ended:
            text = f"it ran longer than runPolicy.activeDeadlineSeconds ({self._policy.active_deadline_seconds})"
            self._reporter.end = EventReason.DEADLINE_EXCEEDED
            coordinator.stop(text)


def trains(recorded: str | None) -> bool:
    """Whether the record is of a job that has begun and not ended: groups of it may run."""
    return recorded is not None and read_document(recorded)[1].exit_code is None


def _members(recorded: str) -> dict[int, str]:
    """The incarnations that the record counts on."""
    plan, kept = read_document(recorded)
    past = dict(kept.past)
    return {m.group: m.uid for m in plan.members if m.uid not in past.get(m.group, ())}


def _leaving(recorded: str) -> tuple[tuple[int, str], ...]:
    """(group, incarnation) of those that the recorded plan let go: they may be there, and are not to be disturbed."""
    return tuple((each.group, each.uid) for each in read_document(recorded)[0].leaving)


def config_of(key: JobKey, spec: Spec) -> Config:
    """What the job's control is to know. Waiting for pods has no end of its own: quotas and queues may take days.

    Nor is the job's deadline the control's: it counts from the status, which outlives operators.
    """
    redundancy = spec.redundancy
    if redundancy == "auto":
        redundancy = recommended_redundancy(spec.groups, spec.parts)
    config = Config.of(str(key), spec, redundancy)
    return dataclasses.replace(config, create_backoff=CREATE_BACKOFF, start_timeout=math.inf, deadline=None)
