"""All jobs that this operator works on. Handlers only come here, and only to say what they saw."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from spare_operator.cluster import JOBS, ApiError, Body
from spare_operator.job import Job
from spare_operator.seen import job_of
from spare_operator.surroundings import Surroundings

logger = logging.getLogger(__name__)

LOOK: Final = 30.0
"""Seconds between two lists of all jobs: how late one is noticed that a watch lost (field case F61)."""


class Jobs:
    """By uid: a name can be used again."""

    def __init__(self, surroundings: Surroundings, namespaces: Iterable[str]) -> None:
        """`namespaces`: where to look; empty: everywhere."""
        self._around = surroundings
        self._namespaces: tuple[str | None, ...] = tuple(namespaces) or (None,)
        self._jobs: dict[str, tuple[Job, asyncio.Task[None]]] = {}
        self._closed = False

    @property
    def running(self) -> list[Job]:
        """Those that somebody works on."""
        return [job for job, task in self._jobs.values() if not task.done()]

    def see(self, body: Body, *, deleted: bool = False) -> None:
        """A job was seen, or is gone. One that was given up though it is there, such as after an answer that there was
        none, is taken up again."""
        uid = body["metadata"]["uid"]
        known = self._jobs.get(uid)
        if deleted:
            if known is not None:
                known[1].cancel()
                del self._jobs[uid]
        elif known is not None and not known[1].done():
            known[0].see(body)
        elif not self._closed and not body["metadata"].get("deletionTimestamp"):
            job = Job(self._around, body)
            task = asyncio.get_running_loop().create_task(job.run(), name=f"job {job.key}")
            self._jobs[uid] = (job, task)

    def see_pod(self, body: Body, *, deleted: bool = False) -> None:
        """A pod was seen, or is gone."""
        uid = job_of(body)
        if uid in self._jobs:
            self._jobs[uid][0].pod(body, deleted=deleted)

    def see_node(self, body: Body, *, deleted: bool = False) -> None:
        """A node was seen, or is gone."""
        trouble = self._around.nodes.see(body, deleted=deleted)
        if trouble is not None:
            logger.warning("%s", trouble)
            for job in self.running:
                job.node(body["metadata"]["name"])

    async def keep_looking(self) -> None:
        """List all jobs again and again; ends by cancellation only."""
        while True:
            try:
                await self._look()
            except ApiError as error:
                logger.warning("jobs could not be listed: %s", error)
            await asyncio.sleep(LOOK)

    async def _look(self) -> None:
        before = set(self._jobs)
        listed = [body for namespace in self._namespaces for body in await self._around.cluster.list(JOBS, namespace)]
        for body in listed:
            self.see(body)
        for uid in before - {body["metadata"]["uid"] for body in listed}:
            if uid in self._jobs:
                job, task = self._jobs.pop(uid)
                logger.info("%s: not listed any more", job.key)
                task.cancel()

    async def close(self) -> None:
        """Let go of all jobs: they train on, and whoever comes next takes them up."""
        self._closed = True
        tasks = [task for _, task in self._jobs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
