"""Who works: the one operator that holds the Lease (field cases F62, F63).

Others' clocks are not trusted: a lease counts as abandoned once *we* have seen it unchanged for its whole duration. Our
own leadership counts as over a good while earlier, counted from before the last renewal was sent, on a clock that also
runs while this process is stopped. Between the two nobody works; never do two. A lease that is deleted counts as one
that stands still: whoever held it has time to make it again, or to stop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from spare_operator.cluster import LEASES, ApiError, Body, Cluster, Conflict, Exists, NotFound

logger = logging.getLogger(__name__)

_ORIGIN: Final = datetime(2025, 1, 1, tzinfo=UTC).timestamp()
"""A lease that is made counts from the seconds since then, and not from 1: agents refuse a number below one that they
have seen, and that may be of a lease that was deleted, or has another name or namespace. It fits the API's 32 bits."""
_ABSENT: Final = "absent"
"""In place of a resourceVersion."""
_MOST: Final = 2**31 - 1
"""Of the API's 32 bits. Nobody has led so often: a number there is somebody's hand."""


@dataclass(frozen=True)
class Timing:
    """Seconds. retry < renew_within < duration."""

    duration: float = 15.0
    """Unchanged for so long, a lease may be taken by another. Default: as Kubernetes' own controllers have it."""
    renew_within: float = 10.0
    """Not renewed for so long, its holder stops working. The rest is for requests that are under way."""
    retry: float = 2.0
    """Between two renewals, or two looks at another's lease."""


class Lease:
    """One Lease object and our claim to it."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        name: str,
        identity: str,
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`identity`: who we are, unique among all processes that ever were. `cluster` must let us write always."""
        self._cluster = cluster
        self._namespace, self._name, self.identity = namespace, name, identity
        self._timing = timing or Timing()
        self._clock, self._wall = clock, wall
        self._renewed = float("-inf")
        self._seen: tuple[str, float] = ("", float("inf"))
        """resourceVersion of the lease, or that it is not there, and since when we have seen it so."""
        self.answered = False
        """Whether the API server has ever answered us."""
        self.term = 0
        """Number of our leadership: the Lease counts its changes of holder. Fences who was deposed."""

    @property
    def held(self) -> bool:
        """Whether we may work at this very moment."""
        return self._clock() < self._renewed + self._timing.renew_within

    async def acquire(self) -> None:
        """Return once the lease is ours."""
        waiting = False
        while not await self._attempt():
            if not waiting:
                logger.info("waiting for the lease %s/%s", self._namespace, self._name)
                waiting = True
            await asyncio.sleep(self._timing.retry)
        logger.info("leading as %s, leadership %d", self.identity, self.term)

    async def keep(self) -> None:
        """Renew it; return once it is lost.

        A renewal that is taken after we had to stop comes too late: what was refused meanwhile, because we might not
        write, nobody would do any more.
        """
        while self.held:
            await asyncio.sleep(self._timing.retry)
            until = self._renewed + self._timing.renew_within
            if self._clock() >= until:  # we slept longer than asked for: stopped, or starved
                break
            await self._attempt()
            if self._clock() >= until:
                break
        taken = self._renewed == float("-inf")
        why = "another has it" if taken else f"it was not renewed within {self._timing.renew_within:g} s"
        logger.error("the lease is lost, %s: no longer leading", why)
        await self.release()  # where it was renewed too late, it is ours to give away
        self._renewed = float("-inf")

    async def release(self) -> None:
        """Let another take over at once. Best effort: if it fails, they wait for the duration."""
        if not self.held:
            return
        self._renewed = float("-inf")
        try:
            async with asyncio.timeout(self._timing.retry):
                body = await self._cluster.get(LEASES, self._namespace, self._name)
                if body["spec"].get("holderIdentity") == self.identity:
                    body["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
                    await self._cluster.replace(LEASES, body)
        except (ApiError, TimeoutError) as error:
            logger.warning("the lease could not be released: %s", str(error) or "no answer")

    async def _attempt(self) -> bool:
        """One try to take or renew it. Whatever goes wrong, the answer is: not now."""
        before = self._clock()
        try:
            async with asyncio.timeout(self._timing.renew_within / 3):
                got = await self._take(before)
        except (ApiError, TimeoutError) as error:
            logger.warning("the lease could not be read or written: %s", str(error) or "no answer in time")
            return False
        self.answered = True
        if got:
            self._renewed = before
        else:
            self._renewed = float("-inf")
        return got

    async def _take(self, now: float) -> bool:
        while True:  # what was changed while we wrote is read again: it may be our own write, whose answer was lost
            try:
                body = await self._cluster.get(LEASES, self._namespace, self._name)
                there, free = body.get("spec") or {}, self._abandoned(body, now)
            except NotFound:
                body = {"metadata": {"name": self._name, "namespace": self._namespace}}
                there, free = self._before_the_first(), self._deleted_long_ago(now)
            if not (free or there.get("holderIdentity") == self.identity):
                return False
            body["spec"] = self._spec(there)
            try:
                if body["metadata"].get("resourceVersion"):
                    await self._cluster.replace(LEASES, body)
                else:
                    await self._cluster.create(LEASES, self._namespace, body)
            except (Conflict, Exists, NotFound):
                continue
            self.term = body["spec"]["leaseTransitions"]
            return True

    def _before_the_first(self) -> Body:
        return {"leaseTransitions": max(self.term, int(self._wall() - _ORIGIN), 1) - 1}

    def _deleted_long_ago(self, now: float) -> bool:
        """Whether nobody can hold what is not there: at once where we hold it ourselves, or have never seen another."""
        return self.held or not self._seen[0] or self._still_for(_ABSENT, now) >= self._timing.duration

    def _abandoned(self, body: Body, now: float) -> bool:
        spec, still = body.get("spec") or {}, self._still_for(body["metadata"]["resourceVersion"], now)
        if not spec.get("holderIdentity"):
            return True
        return still >= float(spec.get("leaseDurationSeconds") or self._timing.duration)

    def _still_for(self, version: str, now: float) -> float:
        if version != self._seen[0]:
            self._seen = (version, now)
        return now - self._seen[1]

    def _spec(self, old: Body) -> Body:
        ours = old.get("holderIdentity") == self.identity
        number = int(old.get("leaseTransitions") or 0)
        return {
            **old,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(self._timing.duration),
            "renewTime": _now(),
            "acquireTime": old.get("acquireTime") if ours and old.get("acquireTime") else _now(),
            # What another hand writes there while we lead counts for nothing; an answer that we did not get does.
            "leaseTransitions": (self.term or max(number, 1)) if ours else self._next(number),
        }

    def _next(self, number: int) -> int:
        """Of a new leadership: above all that agents have seen, though the Lease came out of a backup or was edited.

        From 1 on: 0 is what agents have seen that nobody has attached to yet.
        """
        return max(number + 1 if number < _MOST else 0, self.term + 1, int(self._wall() - _ORIGIN), 1)


def _now() -> str:
    """For people and other programs: MicroTime. We never compare it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
