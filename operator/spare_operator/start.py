"""One start of a group: its pods are made, one after the other, however long the cluster takes to let them in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from spare.control.signal import AgentNotStarted
from spare_operator import names
from spare_operator.cluster import PODS, ApiError, Body, Cluster, Exists, Invalid, NotFound, NotLeading, Refused
from spare_operator.pod import Pods

logger = logging.getLogger(__name__)

PAUSE_FIRST: Final = 1.0
PAUSE_MOST: Final = 40.0
"""Seconds between two tries while a quota has no room, doubled from the first to the most. The most, and a start, fit
into the minute after which a group should be back once there is room (field case F46)."""


class Starting:
    """The pods of one incarnation in the making."""

    def __init__(self, cluster: Cluster, pods: Pods, group: int, incarnation: str, missing: Sequence[int]) -> None:
        self._cluster, self._pods = cluster, pods
        self.group, self.incarnation = group, incarnation
        self._missing = tuple(missing)
        self._cancelled = False
        self.done = False

    def cancel(self) -> None:
        """Make no further pod."""
        self._cancelled = True

    async def run(self, older_gone: Callable[[int, str], Awaitable[None]]) -> AsyncIterator[Body | AgentNotStarted]:
        """The pods as they are made, or why one cannot be (then the start is over)."""
        try:
            if self._queued():
                await older_gone(self.group, self.incarnation)
            for pod in self._missing:
                made = await self._make(pod)
                if made is not None:
                    yield made
                if not isinstance(made, dict):
                    return
        finally:
            self.done = True

    def _queued(self) -> bool:
        labels = (self._pods.template.get("metadata") or {}).get("labels") or {}
        return names.QUEUE_NAME in labels

    async def _make(self, pod: int) -> Body | AgentNotStarted | None:
        """One pod; None: no more pods are wanted, or we may make none."""
        job, pause = self._pods.job, PAUSE_FIRST
        manifest = self._pods.manifest(self.group, pod, self.incarnation)
        while not self._cancelled:
            try:
                return await self._cluster.create(PODS, job.namespace, manifest)
            except Exists:  # an answer that was lost, or somebody else's pod
                there = await self._cluster.get(PODS, job.namespace, manifest["metadata"]["name"])
                if there["metadata"].get("labels", {}).get(names.INCARNATION) == self.incarnation:
                    return there
                return AgentNotStarted(self.group, f"another pod is called {manifest['metadata']['name']}", pod)
            except (Invalid, NotFound) as error:
                return AgentNotStarted(self.group, str(error), pod)
            except Refused as error:
                if not error.quota_exceeded:
                    return AgentNotStarted(self.group, str(error), pod)
                logger.info("%s: group %d waits for room: %s", job, self.group, error)
            except NotLeading:
                return None
            except ApiError as error:
                logger.warning("%s: a pod of group %d could not be made: %s", job, self.group, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MOST)
        return None
