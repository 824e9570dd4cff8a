"""One start of a group: its pods are made, one after the other, however long the cluster takes to let them in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spare.api.reasons import EventReason
from spare.control.signal import AgentNotStarted
from spare_operator import names
from spare_operator.cluster import PODS, ApiError, Body, Cluster, Exists, Invalid, NotFound, NotLeading, Refused
from spare_operator.pod import Pods

logger = logging.getLogger(__name__)

PAUSE_FIRST: Final = 1.0
PAUSE_MOST: Final = 40.0
"""Seconds between two tries while a quota has no room, doubled from the first to the most. The most, and a start, fit
into the minute after which a group should be back once there is room (field case F46)."""
THRASH: Final = 120.0
"""Seconds in which the third start of one group, and each further one, is held back longer than the one before."""


class Pace:
    """When each group was started: one that comes and goes costs the others a regroup each time (field case F48)."""

    def __init__(self) -> None:
        self._starts: dict[int, list[float]] = {}

    def pause(self, group: int, now: float) -> float:
        """Seconds to wait before a start that is asked for now."""
        recent = [at for at in self._starts.get(group, []) if now - at < THRASH]
        self._starts[group] = [*recent, now]
        return min(2.0 ** (len(recent) - 2), PAUSE_MOST) if len(recent) > 2 else 0.0


@dataclass(frozen=True)
class Held:
    """A pod is not let in for now; it is tried again."""

    pod: int
    reason: EventReason
    text: str


class Starting:
    """The pods of one incarnation in the making."""

    def __init__(
        self,
        cluster: Cluster,
        pods: Pods,
        group: int,
        incarnation: str,
        missing: Sequence[int],
        pause: float = 0.0,
        after: Callable[[], bool] | None = None,
        strict: bool = False,
    ) -> None:
        """`pause`: seconds before the first pod is made. `after`: whether something else is to be made before.

        `strict`: a template with a misspelt field is refused. Only before a job has begun: one that trains goes on.
        """
        self._strict = strict
        self._pause, self._after = pause, after
        self._cluster, self._pods = cluster, pods
        self.group, self.incarnation = group, incarnation
        self._missing = tuple(missing)
        self._cancelled = False
        self._done = False

    @property
    def active(self) -> bool:
        """Whether pods are still to be made. One that was cancelled may hang in a pause or a request for a while."""
        return not (self._done or self._cancelled)

    def cancel(self) -> None:
        """Make no further pod."""
        self._cancelled = True

    async def run(
        self, older_gone: Callable[[int, str], Awaitable[None]]
    ) -> AsyncIterator[Body | Held | AgentNotStarted]:
        """The pods as they are made, what keeps one waiting, or why one cannot be made (then the start is over)."""
        try:
            await asyncio.sleep(self._pause)
            if self._queued():
                await older_gone(self.group, self.incarnation)
            for pod in self._missing:
                async for made in self._make(pod):
                    yield made
                    if isinstance(made, AgentNotStarted):
                        return
        finally:
            self._done = True

    def _queued(self) -> bool:
        labels = (self._pods.template.get("metadata") or {}).get("labels") or {}
        return names.QUEUE_NAME in labels

    async def _make(self, pod: int) -> AsyncIterator[Body | Held | AgentNotStarted]:
        """One pod; ends without any when no more are wanted, or we may make none."""
        job, pause = self._pods.job, PAUSE_FIRST
        manifest = self._pods.manifest(self.group, pod, self.incarnation)
        while not self._cancelled:
            if self._after is not None and self._after():
                await asyncio.sleep(PAUSE_FIRST)
                continue
            try:
                yield await self._made(manifest, pod)
                return
            except (Invalid, NotFound) as error:
                yield AgentNotStarted(self.group, str(error), pod)
                return
            except Refused as error:
                if not (error.quota_exceeded or error.of_us):
                    yield AgentNotStarted(self.group, str(error), pod)
                    return
                reason = EventReason.QUOTA_EXCEEDED if error.quota_exceeded else EventReason.PODS_NOT_STARTING
                yield Held(pod, reason, error.text)
            except NotLeading:
                return
            except ApiError as error:
                logger.warning("%s: pod %s could not be made: %s", job, manifest["metadata"]["name"], error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MOST)

    async def _made(self, manifest: Body, pod: int) -> Body | AgentNotStarted:
        """Create it; that it exists is an answer that was lost, or somebody else's pod. Raises as `Cluster.create`."""
        try:
            return await self._cluster.create(PODS, self._pods.job.namespace, manifest, strict=self._strict)
        except Exists as exists:
            name = manifest["metadata"]["name"]
            try:
                there = await self._cluster.get(PODS, self._pods.job.namespace, name)
            except NotFound:
                raise ApiError(exists.status, exists.reason, f"{exists.text}; and it is gone again") from exists
        if (there["metadata"].get("labels") or {}).get(names.INCARNATION) == self.incarnation:
            return there
        return AgentNotStarted(self.group, f"another pod is called {name}", pod)


def groups_first(starts: Mapping[int, Starting], groups: int) -> bool:
    """Whether pods of groups are still to be made: whatever room a quota has is theirs, before that of spares.

    Args:
        starts: by number; from `groups` on they are spares'.
        groups: of the job.
    """
    return any(number < groups and each.active for number, each in starts.items())
