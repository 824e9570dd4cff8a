"""Groups as pods: makes them, tells what becomes of them, deletes them. The Kubernetes side of a coordinator.

A group's start is an *incarnation*: its pods carry the same mark and live and die together. Of each group one
incarnation is the chosen one; pods of any other are deleted and never spoken of. What a watch tells and what a list has
go the same way and are told to the coordinator once, so it does not matter which comes first, how often, or if one is
lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from spare.api.reasons import EventReason
from spare.control.signal import AgentGone, AgentNotStarted, AgentUp, DrainGroup, Report, Signal
from spare.coordinator.backend import Emit
from spare_operator import adoption, names
from spare_operator.cluster import PODS, ApiError, Body, Cluster, NotFound, NotLeading
from spare_operator.marks import put_back
from spare_operator.nodes import Nodes
from spare_operator.pod import Pods
from spare_operator.seen import Seen, exited, read_pod
from spare_operator.start import Held, Pace, Starting, groups_first
from spare_operator.stuck import Patience

logger = logging.getLogger(__name__)

LOOK: Final = 5.0
"""Seconds between two lists of the job's pods: how late what a watch lost is noticed."""
PATIENCE: Final = 60.0
"""Seconds for which an old pod that a queue still counts is waited for without a word."""


class KubernetesBackend:
    """`spare.coordinator.backend.Backend` on the pods of one job. Belongs to one event loop."""

    def __init__(
        self,
        cluster: Cluster,
        pods: Pods,
        nodes: Nodes,
        *,
        members: Mapping[int, str] | None,
        leaving: Iterable[tuple[int, str]] = (),
        record: Callable[[str], Awaitable[None]],
        created: Callable[[int, str], None],
        restored: Callable[[Sequence[str]], None] = lambda names: None,
    ) -> None:
        """
        Args:
            cluster, pods, nodes: Where the pods are, how they are made, and what is known of the nodes.
            members: Incarnation of each group in the recorded plan; None: nothing is recorded yet.
            leaving: Groups and incarnations that it let go.
            record: Writes a plan down.
            created: Told of each pod that was made: (group, name). restored: Of those that got labels back, if any.
        """
        self._cluster, self._pods, self._nodes = cluster, pods, nodes
        self._begun, self._members = members is not None, dict(members or {})
        self._record, self._created, self._restored = record, created, restored
        self._emit: Emit | None = None
        self._seen: dict[str, Seen] = {}
        """By the pods' uid: all that exist, as far as we know."""
        self._past: set[str] = set()
        """Pods (uid) that are no more: an old list may still have them."""
        self._told: set[tuple[str, ...]] = set()
        self._up: set[str] = set()
        """Pods (uid) that the coordinator has been told to dial."""
        self._adopted = False
        """Whether it has been decided which of the pods that were there at the start belong to the job."""
        leaving = tuple(leaving)
        self._places = {uid: group for group, uid in (*self._members.items(), *leaving)}
        """Groups of incarnations, whatever their pods' labels say: those of spares change later, or never did."""
        self._chosen: dict[int, str] = {}
        self._doomed: set[str] = set()
        """Incarnations that are to go."""
        self._leaving = {uid for _, uid in leaving}
        """Incarnations that end by themselves."""
        self._starting: dict[int, Starting] = {}
        self._pace, self._patience = Pace(), Patience()
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self.held: dict[tuple[int, int], tuple[EventReason, str]] = {}
        """By group and pod: why it is not there yet."""
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Set to the error if work of ours ends by a defect."""

    # --- Backend ------------------------------------------------------------------------------------------------

    async def open(self, emit: Emit) -> None:
        """See `Backend.open`. Pods that exist already are adopted (field cases F27, F37)."""
        self._emit = emit
        await self._look()
        self._spawn(self._keep_looking())

    async def create(self, group: int) -> None:
        """See `Backend.create`. Pods that are there, or are being made, stay; only what is missing is made."""
        chosen, under_way = self._chosen.get(group), self._starting.get(group)
        if under_way is not None and under_way.active:
            return
        here = self._of(group, chosen)
        present = {seen.pod for seen in here}
        if chosen is None or chosen in self._doomed | self._leaving or not all(seen.live for seen in here):
            chosen, present = names.incarnation(), set()
        self._chosen[group] = chosen
        missing = [pod for pod in range(self._pods.spec.pods_per_group) if pod not in present]
        if missing:
            count = self._pods.spec.groups
            after = None if group < count else partial(groups_first, self._starting, count)
            pause = self._pace.pause(group, asyncio.get_running_loop().time())
            starting = Starting(self._cluster, self._pods, group, chosen, missing, pause, after, not self._begun)
            self._starting[group] = starting
            self._spawn(self._start(starting))

    async def take_over(self, group: int, spare: int, uid: str) -> None:
        """See `Backend.take_over`."""
        overtaken, starting = self._chosen.get(group), self._starting.get(group)
        self._chosen[group], self._places[uid] = uid, group
        if self._chosen.get(spare) == uid:
            del self._chosen[spare]
        if starting is not None:
            starting.cancel()
        for at in [at for at in self.held if at[0] == group]:
            del self.held[at]
        if overtaken not in (None, uid, *self._leaving):
            self._doomed.add(str(overtaken))
        self._place_all()
        await self._label()
        await self._clear()

    def _placed(self, seen: Seen) -> Seen:
        group = self._places.get(seen.incarnation, seen.group)
        return seen if group == seen.group else replace(seen, group=group)

    def _place_all(self) -> None:
        self._seen = {uid: self._placed(seen) for uid, seen in self._seen.items()}

    async def let_go(self, group: int, uid: str) -> None:
        """See `Backend.let_go`. Pods of other names are made beside it."""
        self._leaving.add(uid)

    async def delete(self, group: int, uid: str) -> None:
        """See `Backend.delete`. The pods get their grace; what of them is left is out of the plan already."""
        self._give_up(group, uid)
        await self._clear()

    def _give_up(self, group: int, uid: str) -> None:
        """All pods of an incarnation are to go, and no further one is made."""
        self._doomed.add(uid)
        if (starting := self._starting.get(group)) is not None and starting.incarnation == uid:
            starting.cancel()
        self._changed.set()

    async def record(self, name: str, text: str) -> None:
        """See `Backend.record`."""
        await self._record(text)

    async def close(self) -> None:
        """See `Backend.close`, but for the pods: what becomes of them is the run policy's, and not of an operator's."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- what is seen ---------------------------------------------------------------------------------------------

    def see(self, body: Body, *, deleted: bool = False) -> None:
        """Take note of a pod as a watch has it."""
        seen = self._read(body)
        if seen is None or self._emit is None:
            return
        if deleted and not seen.deleting:
            self._spawn(self._look_at(seen))  # a watch says so, too, of a pod whose labels are gone
        elif deleted:
            self._gone(seen)
        else:
            self._seen[seen.uid] = seen
            self._tell(seen)

    def _read(self, body: Body) -> Seen | None:
        """What a pod's object says; None if it is none of ours, or known to be gone."""
        seen = read_pod(body, self._pods.port, str(self._pods.job))
        return self._placed(seen) if seen is not None and seen.uid not in self._past else None

    def node_changed(self, node: str) -> None:
        """Something is wrong with a node: all groups there are told of at once (field cases F05, F32)."""
        for seen in tuple(self._seen.values()):
            if seen.node == node:
                self._tell(seen)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            try:
                await self._look()
                await self._label()
                await self._clear()
            except ApiError as error:
                logger.warning("%s: its pods could not be listed: %s", self._pods.job, error)

    async def _look(self) -> None:
        """Read everything again, and tell what is new."""
        before = set(self._seen)
        unlisted = before - await self._list({names.JOB_UID: self._pods.job.uid})
        for seen in [self._seen[uid] for uid in unlisted & self._seen.keys()]:
            await self._look_at(seen)  # list and watch are not one: what only one of them lacks is asked for by name
        if not self._adopted:
            await self._choose()
            self._adopted = True
        for seen in sorted(self._seen.values(), key=lambda each: each.incarnation not in self._leaving):
            self._tell(seen)  # who leaves first: the line to its successor is to be the group's

    async def _list(self, labels: Mapping[str, str] | None) -> set[str]:
        """Take note of all pods of the job, or those with these labels; their uids."""
        bodies = await self._cluster.list(PODS, self._pods.job.namespace, labels)
        listed = {seen.uid: seen for body in bodies if (seen := self._read(body)) is not None}
        self._seen |= listed
        return set(listed)

    async def _look_at(self, seen: Seen) -> None:
        """See whether a pod is there, whatever its labels say."""
        try:
            body = await self._cluster.get(PODS, self._pods.job.namespace, seen.name)
            there = body["metadata"]["uid"] == seen.uid
            self.see(body) if there else self._gone(seen)
        except NotFound:
            self._gone(seen)
        except ApiError as error:
            logger.warning("whether pod %s is there is not known: %s", seen.name, error)

    async def _choose(self) -> None:
        """At the start: which of the pods that are there belong to the job as it was left."""
        count = self._pods.spec.pods_per_group
        if not adoption.complete(self._seen.values(), self._members, count):  # or their labels have been taken away
            await self._list(None)
        self._places = adoption.places(self._seen.values(), self._places)
        self._place_all()
        for group, member, pod in adoption.missing(self._seen.values(), self._members, count):
            self._say(AgentGone(group, member, "its pod was gone when the operator came back", pod, None))
        # Once there is a plan, a start that was cut off is made anew: nobody would ask for its rest.
        least = count if self._begun else 1
        self._chosen |= self._members
        self._chosen |= adoption.starts(self._seen.values(), self._members, self._leaving, least)

    # --- what is told -----------------------------------------------------------------------------------------------

    def _of(self, group: int, incarnation: str | None) -> list[Seen]:
        return [s for s in self._seen.values() if s.group == group and s.incarnation == incarnation]

    def _gone(self, seen: Seen) -> None:
        self._seen.pop(seen.uid, None)
        self._past.add(seen.uid)
        self._changed.set()
        if self._chosen.get(seen.group) == seen.incarnation or seen.incarnation in self._leaving:
            self._unheld(seen)
            self._over(seen, "its pod was deleted", outside=True)

    def _unheld(self, seen: Seen) -> None:
        """Nothing keeps it from starting any more; what ended a start that is given up is told until another runs."""
        if seen.incarnation not in self._doomed:
            self.held.pop((seen.group, seen.pod), None)

    def _tell(self, seen: Seen) -> None:
        """Tell what is new of one pod."""
        if not self._adopted:
            return  # a watch was faster than the list: until it is known whose pod this is, none is to go
        if self._chosen.get(seen.group) != seen.incarnation and seen.incarnation not in self._leaving:
            self._doomed.add(seen.incarnation)
            self._changed.set()
            return
        if seen.ended is not None:
            self._unheld(seen)
            said = exited(seen, str(self._pods.job), self._pods.spec.proc_per_pod)
            # So that an error of the script is known as one, and who left as such, though nobody heard its agent.
            if said is not None and self._known(seen) and (said.code != 0 or seen.incarnation in self._leaving):
                self._once(seen, "exited", Report(said))
            self._over(seen, f"its pod ended: {seen.ended}", outside=seen.outside)
        elif (why := self._must_go(seen)) is not None:
            if seen.grace == 0:
                return  # deleted by force: there is nothing to ask for, and its end follows at once
            if self._known(seen):
                self._leave(seen, why)
            else:
                self._over(seen, why, outside=True)
        elif seen.incarnation in self._doomed:
            return  # it goes, whatever its containers do meanwhile
        elif seen.address is None:
            if (stuck := self._patience.lost(seen, asyncio.get_running_loop().time())) is not None:
                self.held[seen.group, seen.pod] = (EventReason.PODS_NOT_STARTING, f"pod {seen.name}: {stuck}")
        else:  # whatever a container beside it does
            self.held.pop((seen.group, seen.pod), None)
            zone = self._nodes.zone(seen.node, self._pods.spec.placement.spread_over)
            up = AgentUp(seen.group, seen.incarnation, seen.address, zone, seen.pod)
            self._up.add(seen.uid)
            self._once(seen, "up", up, seen.address)
            if seen.grace:  # who was let go is told how long it has as well
                self._leave(seen, f"pod {seen.name}: {seen.leaving}")

    def _leave(self, seen: Seen, why: str) -> None:
        """Ask for its group to go; again when it is known how long it has: of an eviction that is told second."""
        self._once(seen, "leave", DrainGroup(seen.group, why, seen.grace, uid=seen.incarnation), str(seen.grace))

    def _known(self, seen: Seen) -> bool:
        """Whether the coordinator has ever heard of it."""
        mark = seen.incarnation
        return seen.uid in self._up or mark in self._leaving or self._members.get(seen.group) == mark

    def _over(self, seen: Seen, why: str, outside: bool) -> None:
        """It is no more, or, if the coordinator has not heard of it yet, it will never be, and its start is over."""
        if self._known(seen):
            ended = seen.exit_code == 0, outside
            self._once(seen, "gone", AgentGone(seen.group, seen.incarnation, why, seen.pod, *ended))
        elif seen.incarnation not in self._doomed:  # else it was told of another pod of that start
            self._give_up(seen.group, seen.incarnation)
            if seen.ended is not None:  # stays until a pod in its place runs: the next may end like it
                self.held[seen.group, seen.pod] = (EventReason.PODS_NOT_STARTING, f"pod {seen.name}: {seen.ended}")
            self._once(seen, "gone", AgentNotStarted(seen.group, why, seen.pod, outside))

    def _must_go(self, seen: Seen) -> str | None:
        """Why its group is to leave, if it is (field cases F32, F36); what we delete ourselves has left already."""
        if seen.incarnation in self._doomed | self._leaving:
            return None
        if seen.leaving is not None:
            return f"pod {seen.name}: {seen.leaving}"
        return self._nodes.trouble(seen.node, seen.tolerations, lambda: {each.node for each in self._seen.values()})

    def _once(self, seen: Seen, what: str, signal: Signal, more: str = "") -> None:
        key = (seen.uid, what, more)
        if key not in self._told:
            self._told.add(key)
            self._say(signal)

    def _say(self, signal: Signal) -> None:
        assert self._emit is not None, "open comes first"
        self._emit(signal)

    # --- what is done -----------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self.failure.done():
            self.failure.set_exception(error)

    async def _start(self, starting: Starting) -> None:
        kept: set[tuple[int, int]] = set()
        async for made in starting.run(self._older_gone):
            if isinstance(made, Held):
                self.held[starting.group, made.pod] = (made.reason, made.text)
                kept.add((starting.group, made.pod))
            elif isinstance(made, AgentNotStarted):
                self._give_up(starting.group, starting.incarnation)
                self.held[made.group, made.pod] = (EventReason.PODS_NOT_STARTING, made.reason)
                self._say(made)
            else:
                if (at := (starting.group, int(made["metadata"]["labels"][names.POD_NUMBER]))) in kept:
                    self.held.pop(at, None)
                self._created(starting.group, made["metadata"]["name"])
                self.see(made)
        await self._clear()

    async def _older_gone(self, group: int, incarnation: str) -> None:
        """Wait until no pod of an earlier incarnation of the group exists (field case F48); say so in time."""
        clock, text = asyncio.get_running_loop().time, ""
        began = clock()
        while incarnation not in self._doomed:
            older = [s.name for s in self._seen.values() if s.group == group and s.incarnation != incarnation]
            if not older:
                break
            if clock() - began >= PATIENCE:
                text = f"its queue admits no pod while {older[0]}, of an earlier start, is there"
                self.held[group, 0] = (EventReason.PODS_NOT_STARTING, text)
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await self._changed.wait()
        if text:
            self.held.pop((group, 0), None)

    async def _clear(self) -> None:
        """Delete every pod of an incarnation that is to go. Called again and again, until none is left."""
        for seen in [s for s in self._seen.values() if s.incarnation in self._doomed and not s.deleting]:
            try:
                await self._cluster.delete(PODS, self._pods.job.namespace, seen.name, uid=seen.uid)
            except ApiError as error:
                logger.warning("pod %s could not be deleted, will be tried again: %s", seen.name, error)
            except NotLeading:
                return

    async def _label(self) -> None:
        """Let labels say what a pod is, also of one that was a spare: for people, and for an operator that comes."""
        stay = [s for s in self._seen.values() if not (s.ended or s.deleting or s.incarnation in self._doomed)]
        self._restored(await put_back(self._cluster, self._pods, stay, self.see))
