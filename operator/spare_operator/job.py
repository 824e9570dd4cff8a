"""One job, from first sight to its end: read, run, ended, cleaned up. Begun again by every operator that comes after.

What the object says is read at the start and whenever it changes; everything else follows from that and from what was
recorded, so an operator may die at any point of this file.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from spare.api.job import JobFileError, load_object
from spare.api.reasons import ConditionType, EventReason
from spare.api.spec import RunPolicy, Spec
from spare.api.status import Status, with_state
from spare.coordinator.observe import Event
from spare_operator.cluster import ApiError, Body, NotLeading
from spare_operator.credentials import Occupied
from spare_operator.ending import after_the_end, remove_pods
from spare_operator.pod import JobKey
from spare_operator.posting import post
from spare_operator.record import JobGone, Outrun, Record
from spare_operator.surroundings import Surroundings
from spare_operator.training import Training, trains

logger = logging.getLogger(__name__)

LATE = 1800.0
"""Seconds after a job's end from which on nothing more is told of it: the API server forgets events after an hour, and
each operator that comes would tell of all jobs that ever ended."""
AGAIN = 10.0
"""Seconds after which a job whose run broke, by an error of ours or of the API server's, is taken up again: all that is
written of it is then read anew."""


class Job:
    """The life of one job under one operator."""

    def __init__(self, surroundings: Surroundings, body: Body) -> None:
        meta = body["metadata"]
        self.key = JobKey(meta["namespace"], meta["name"], meta["uid"])
        self._around = surroundings
        self._body = body
        self._changed = asyncio.Event()
        self._told = ""
        """The trouble that was told last."""
        self.training: Training | None = None
        """While it runs."""

    def see(self, body: Body) -> None:
        """Take note of the object as it is now. A list that was under way may be older than what a watch has told."""
        older = _generation(body) < _generation(self._body)
        if body != self._body and not older:
            self._body = body
            self._changed.set()

    def pod(self, body: Body, *, deleted: bool) -> None:
        """Take note of one of its pods."""
        if self.training is not None:
            self.training.pod(body, deleted=deleted)

    def node(self, name: str) -> None:
        """Something is wrong with a node."""
        if self.training is not None:
            self.training.node(name)

    async def run(self) -> None:
        """To the end of the job, or until we may not act; errors that may pass are tried again."""
        while True:
            try:
                await self._run()
                return
            except JobGone:
                logger.info("%s is gone", self.key)
                return
            except NotLeading:
                return
            except Exception as error:  # noqa: BLE001  # one job's trouble is not another's; told, and tried again
                with contextlib.suppress(NotLeading):
                    await self._troubled(error)
            await asyncio.sleep(AGAIN)

    async def _troubled(self, error: Exception) -> None:
        """Say what keeps us from going on: in the log, and once where the job's owner looks."""
        text = str(error) or type(error).__name__
        if not isinstance(error, Outrun | Occupied | ApiError):
            logger.error("%s: its run broke; taken up again in %.0f s", self.key, AGAIN, exc_info=error)
        elif text != self._told:
            logger.error("%s: %s; tried again every %.0f s", self.key, text, AGAIN)
        if text != self._told:
            self._told = text
            told = Event(self._around.wall(), EventReason.BACKEND_FAILED, f"the operator cannot go on: {text}")
            await post(self._around.cluster, self.key, told)

    @property
    def _going(self) -> bool:
        """Whether somebody has deleted it: then nothing is made any more, whatever keeps the object (F41)."""
        return bool(self._body["metadata"].get("deletionTimestamp"))

    async def _run(self) -> None:
        record = await Record.read(self._around.cluster, self.key)
        self._body = record.body
        while not self._going:
            spec = self._spec()
            if record.status.final:
                await self._tell_the_end(record.status)
                await self._clean_up(record.status)
                continue
            if isinstance(spec, JobFileError):
                await record.write_status(self._said(ConditionType.FAILED, EventReason.INVALID_SPEC, str(spec)))
                continue
            if spec.run_policy.suspend and not trains(record.plan):
                await self._suspended(record)
                continue
            await self._train(record, spec)
        raise JobGone(f"{self.key}: deleted")

    def _spec(self) -> Spec | JobFileError:
        try:
            return load_object(self._body).spec
        except JobFileError as error:
            return error

    def _said(self, kind: ConditionType, reason: EventReason, message: str) -> Callable[[Status], Status]:
        generation = _generation(self._body)

        def change(before: Status) -> Status:
            now = self._around.now()
            conditions = with_state(
                before.conditions, kind, reason=reason, message=message, now=now, generation=generation
            )
            changes: dict[str, object] = {"conditions": conditions, "observed_generation": generation}
            if kind is ConditionType.SUSPENDED:
                changes["start_time"] = None  # it counts anew when it is gone on with
            elif before.completion_time is None:
                changes["completion_time"] = now
            return before.model_copy(update=changes)

        return change

    async def _tell_the_end(self, status: Status) -> None:
        """Post the last event, if nobody did: the status stood before it, and its writer may have died in between."""
        ended = [c for c in status.conditions if c.type in (ConditionType.COMPLETE, ConditionType.FAILED)]
        told = next((condition for condition in ended if condition.status == "True"), None)
        at = status.completion_time
        if told is not None and at is not None and (self._around.now() - at).total_seconds() < LATE:
            end = Event(at.timestamp(), told.reason, told.message)
            await post(self._around.cluster, self.key, end, final=True)

    async def _clean_up(self, status: Status) -> None:
        """What the run policy says of a job that has ended; anew when that is changed."""
        while not self._going:
            policy = _policy(self._spec())
            cleaning = asyncio.get_running_loop().create_task(after_the_end(self._around, self.key, policy, status))
            try:
                while not self._going and _policy(self._spec()) == policy:
                    await self._change_or(cleaning)
            finally:
                cleaning.cancel()
                await asyncio.wait({cleaning})

    async def _change_or(self, work: asyncio.Task[None]) -> None:
        """Wait for the next change of the object, or the end of some work; raises its error."""
        change = asyncio.get_running_loop().create_task(self._change())
        try:
            await asyncio.wait({change} if work.done() else {change, work}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            change.cancel()
        if work.done():
            work.result()

    async def _suspended(self, record: Record) -> None:
        """No pods, until somebody takes it back."""
        await remove_pods(self._around.cluster, self.key)
        spec, text = self._spec(), "runPolicy.suspend is set: there are no pods"
        if isinstance(spec, Spec) and spec.checkpoint.path is None:
            text += "; nothing is saved without spec.checkpoint.path, so it begins with step 0"
        await record.write_status(self._said(ConditionType.SUSPENDED, EventReason.SUSPENDED, text))
        while not self._going and isinstance(spec := self._spec(), Spec) and spec.run_policy.suspend:
            await self._change()

    async def _change(self) -> None:
        await self._changed.wait()
        self._changed.clear()  # what comes from here on is a change of its own

    async def _train(self, record: Record, spec: Spec) -> None:
        self.training = Training(self._around, self.key, record, spec, self._body)
        running = asyncio.get_running_loop().create_task(self.training.run())
        try:
            while not running.done():
                await self._change_or(running)
                if running.done():
                    break
                if self._going:
                    return
                now = self._spec()
                if isinstance(now, Spec):
                    self.training.policy(now.run_policy)
            if self.training.suspended:
                await remove_pods(self._around.cluster, self.key)
        finally:
            running.cancel()
            await asyncio.wait({running})
            self.training = None


def _generation(body: Body) -> int:
    """Grows with each change of the spec, and with the object's deletion."""
    return int(body["metadata"].get("generation", 0))


def _policy(spec: Spec | JobFileError) -> RunPolicy | None:
    return spec.run_policy if isinstance(spec, Spec) else None
