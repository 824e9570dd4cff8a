"""What is written down about a job: its newest plan in a ConfigMap, its status in the job itself.

One writer, and no write without knowing what it replaces: both are replaced at the resourceVersion that was read, so a
second operator cannot write another plan of the same epoch, whatever it believes (docs/protocol.md, rule 5).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from pydantic import ValidationError

from spare.api.status import Status
from spare.control.plan import Plan
from spare.coordinator.actor import PLAN_DOCUMENT
from spare_operator import names
from spare_operator.cluster import CONFIG_MAPS, JOBS, ApiError, Body, Cluster, Conflict, Exists, NotFound
from spare_operator.marks import belongs, marked, whose
from spare_operator.pod import JobKey

logger = logging.getLogger(__name__)

_AGAIN: Final = 2.0
"""Pause before a write that the API server did not take for a minute is tried once more, seconds."""


Troubled = Callable[[str], Awaitable[None]]
"""Told why something is not written yet."""


class Outrun(Exception):
    """What is recorded is not what we wrote: another operator was faster, or somebody's hand. To be read anew."""


class JobGone(Exception):
    """The job was deleted; there is nothing left to write to."""


class Record:
    """The written state of one job."""

    def __init__(self, cluster: Cluster, job: JobKey, body: Body, plan_map: Body | None) -> None:
        self._cluster = cluster
        self._job = job
        self.body = body
        """The job object as it was last seen."""
        self._map = plan_map
        self._lock = asyncio.Lock()

    @classmethod
    async def read(cls, cluster: Cluster, job: JobKey) -> Record:
        """What stands there now.

        Raises:
            JobGone: no such job, or another one by that name.
        """
        body = await _the_job(cluster, job)
        try:
            plan_map: Body | None = await cluster.get(CONFIG_MAPS, job.namespace, names.plan_map(job.name))
        except NotFound:
            plan_map = None
        if plan_map is not None and not _tells_of(plan_map, job):
            plan_map = None  # of an earlier job of that name, on its way out
        return cls(cluster, job, body, plan_map)

    @property
    def plan(self) -> str | None:
        """The recorded plan, as the coordinator wrote it; None before the first."""
        text: str | None = (self._map or {}).get("data", {}).get(PLAN_DOCUMENT)
        return text

    def has(self, plan: Plan) -> bool:
        """Whether this is the plan that is recorded."""
        there = (self._map or {}).get("data", {})
        return bool((there.get("epoch"), there.get("digest")) == (str(plan.epoch), plan.digest))

    @property
    def status(self) -> Status:
        """The status as it was last seen; what cannot be read counts as absent, and is written anew."""
        return _status(self.body)

    async def write_plan(self, text: str, change: Callable[[Status], Status], troubled: Troubled | None = None) -> None:
        """Write a plan, then the status that names it. Returns once both are written, however long it takes.

        Args:
            text: of the plan.
            change: as in `write_status`.
            troubled: told why it is not written yet, once.

        Raises:
            Outrun: another operator has written that epoch.
            JobGone, NotLeading.
        """
        plan = Plan.from_json(text)
        async with self._lock:
            await self._insist(lambda: self._put_plan(plan, text), troubled)
            await self._insist(lambda: self._put_status(change, plan), troubled)

    async def write_status(self, change: Callable[[Status], Status]) -> bool:
        """Write what `change` makes of the status that stands there. False: nothing had changed.

        Raises:
            JobGone, NotLeading; ApiError: the server did not take it for a minute.
        """
        async with self._lock:
            return await self._put_status(change, None)

    async def _insist(self, write: Callable[[], object], troubled: Troubled | None) -> None:
        told = False
        while True:
            try:
                await write()  # type: ignore[misc]
                return
            except ApiError as error:
                logger.warning("%s: not written yet, and nobody is told before it is: %s", self._job, error)
                if troubled is not None and not told:
                    told = True
                    await troubled(str(error))
                await asyncio.sleep(_AGAIN)

    async def _put_plan(self, plan: Plan, text: str) -> None:
        data = {PLAN_DOCUMENT: text, "epoch": str(plan.epoch), "digest": plan.digest}
        name = names.plan_map(self._job.name)
        while True:
            if (self._map or {}).get("data", {}) == data:
                return  # our own write, whose answer was lost
            there = _plan_of(self._map)  # one that somebody has edited is none
            if there is not None and _another(there, plan):
                raise Outrun(f"{self._job}: plan {there.epoch} is recorded already; plan {plan.epoch} is not pushed")
            try:
                if self._map is None:
                    fresh = {"metadata": self._job.meta(name), "data": data}
                    self._map = await self._cluster.create(CONFIG_MAPS, self._job.namespace, fresh)
                else:
                    body = {**marked(self._map, self._job), "data": data}
                    self._map = await self._cluster.replace(CONFIG_MAPS, body)
                return
            except (Conflict, Exists, NotFound):
                self.body = await _the_job(self._cluster, self._job)
                self._map = await self._there(name)

    async def _there(self, name: str) -> Body | None:
        """The ConfigMap as it is now; None if there is none.

        Raises:
            Exists: it is not this job's, such as that of an earlier one of its name, which goes in a while.
        """
        try:
            found = await self._cluster.get(CONFIG_MAPS, self._job.namespace, name)
        except NotFound:
            return None
        ours = self._map is not None and self._map["metadata"]["uid"] == found["metadata"]["uid"]
        if not (ours or _tells_of(found, self._job)):
            text = f"ConfigMap {self._job.namespace}/{name} {whose(found)}; it is waited for to go"
            raise Exists(409, "AlreadyExists", text)
        return found

    async def keep(self) -> None:
        """Write the plan once more if somebody has deleted or edited it: whoever comes next could not know who computes
        what. What it is found by is put back, too.

        Raises:
            Outrun, JobGone, NotLeading, ApiError.
        """
        async with self._lock:
            known, name = self._map, names.plan_map(self._job.name)
            if known is None:
                return
            found, text = await self._there(name), str(known["data"][PLAN_DOCUMENT])
            plan, there = Plan.from_json(text), _plan_of(found)
            if found is not None and (marked(found, self._job) == found and found.get("data") == known["data"]):
                return
            if there is not None and _another(there, plan):
                return  # another operator's: the next write finds out
            self.body = await _the_job(self._cluster, self._job)
            if self.body["metadata"].get("deletionTimestamp"):
                return  # it goes with the job
            what = "deleted" if found is None else "edited"
            logger.warning("%s: ConfigMap %s was %s; it is written once more", self._job, name, what)
            self._map = None if found is None else {**found, "data": {}}
            try:
                await self._put_plan(plan, text)
            finally:
                self._map = self._map if self._map is not None and self._map["data"] else known

    async def _put_status(self, change: Callable[[Status], Status], plan: Plan | None) -> bool:
        while True:
            before = self.status
            if plan is not None and before.epoch >= plan.epoch and before.digest != plan.digest:
                raise Outrun(f"{self._job}: the status is at plan {before.epoch}; plan {plan.epoch} is not pushed")
            after = change(before)
            if plan is not None:
                after = after.model_copy(update={"epoch": plan.epoch, "digest": plan.digest})
            if after.epoch < before.epoch:
                raise Outrun(f"{self._job}: the status is at plan {before.epoch}, ours is {after.epoch}")
            text = after.plain()
            if text == self.body.get("status"):
                return False
            try:
                self.body = await self._cluster.replace(JOBS, {**self.body, "status": text}, "status")
                return True
            except Conflict:
                self.body = await _the_job(self._cluster, self._job)
            except NotFound as error:
                raise JobGone(str(self._job)) from error


def _tells_of(plan_map: Body, job: JobKey) -> bool:
    """Whether it is the job's, by its marks or by what it says: somebody may have changed the one or the other."""
    there = _plan_of(plan_map)
    return belongs(plan_map, job) or (there is not None and there.job == str(job))


def _plan_of(plan_map: Body | None) -> Plan | None:
    """The plan that a map has; None if there is none that can be read."""
    text = ((plan_map or {}).get("data") or {}).get(PLAN_DOCUMENT)
    try:
        return None if text is None else Plan.from_json(text)
    except ValueError:
        return None


def _another(there: Plan, plan: Plan) -> bool:
    """Whether a plan that stands there is not to be overwritten by this one."""
    return there.epoch > plan.epoch or (there.epoch == plan.epoch and there.digest != plan.digest)


async def _the_job(cluster: Cluster, job: JobKey) -> Body:
    try:
        body = await cluster.get(JOBS, job.namespace, job.name)
    except NotFound as error:
        raise JobGone(str(job)) from error
    if body["metadata"]["uid"] != job.uid:
        raise JobGone(f"{job}; another one has its name")
    return body


def _status(body: Body) -> Status:
    try:
        return Status.model_validate(body.get("status") or {})
    except ValidationError as error:
        logger.warning("%s: the status cannot be read and is written anew: %s", body["metadata"]["name"], error)
        return Status()
