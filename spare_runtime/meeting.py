"""The members of one plan meet: in the leader's store, then as a process group (docs/protocol.md, regroup 1 to 3).

A `Meeting` is one epoch's communication and dies with it. The main thread blocks in it; `interrupt`, called by the
thread that reads plans, frees it within milliseconds. The process group is connected by a thread of its own while the
main thread already computes patches: gloo waits for a peer that died before it connected without any socket to cut,
and then only that thread is left behind.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from spare.api import wire
from spare_runtime.errors import CollectiveFailed, RendezvousTimeout, Superseded
from spare_runtime.introductions import Introductions
from spare_runtime.sockets import cut
from spare_runtime.store import StoreServer
from spare_runtime.store_client import StoreClient

dist: Any = torch.distributed  # its stubs know little of what its C++ part exports

_POLL_FIRST, _POLL_GROWTH, _POLL_LONGEST = 0.0005, 1.3, 0.02
_DIAL_TIMEOUT, _DIAL_LONGEST = 2.0, 1.0
_CUT_EVERY, _CUT_FOR = 0.002, 60.0
_LOOK_EVERY = timedelta(seconds=0.1)


_EXIT_PATIENCE = 1.0
_in_gloo: list[threading.Thread] = []
"""Threads that gloo may keep."""


def _aside(target: Callable[[], None], name: str) -> None:
    """Let a thread go into gloo, which may come back late, or not before its timeout."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    _in_gloo[:] = [*(each for each in _in_gloo if each.is_alive()), thread]
    thread.start()


@atexit.register
def _come_out() -> None:
    """A thread that comes out of C++ while Python ends aborts the process: who is about to is waited for."""
    until = time.monotonic() + _EXIT_PATIENCE
    for thread in _in_gloo:
        thread.join(max(0.0, until - time.monotonic()))


def pauses() -> Iterator[float]:
    """Growing pauses between looks at something that will happen soon, seconds."""
    pause = _POLL_FIRST
    while True:
        yield pause
        pause = min(pause * _POLL_GROWTH, _POLL_LONGEST)


class Meeting:
    """Store and process group of one plan, as one member sees them."""

    def __init__(
        self,
        plan: wire.Plan,
        own_store: StoreServer,
        token: str,
        bind: str,
        deadline: float,
        timeout: float,
        column: int = 0,
    ) -> None:
        """Nothing is connected yet.

        Args:
            plan: My part of it; I am a member.
            own_store: The store that this process serves, in case I am the leader.
            token: The job's.
            bind: Host that gloo listens on.
            deadline: Seconds that members wait for each other.
            timeout: Seconds after which a collective gives up by itself.
            column: My rank inside my group: whom I meet are the ranks of this number of the other groups.
        """
        self.plan = plan
        self.members = wire.groups_of(plan.members)
        self.rank = self.members.index(plan.group)
        self.interrupted = threading.Event()
        self._own_store, self._token, self._bind, self._column = own_store, token, bind, column
        self._clients: list[StoreClient] = []
        self._deadline, self._timeout = deadline, timeout
        self._summing, self._passing = dist.AllreduceOptions(), dist.BarrierOptions()
        self._summing.reduceOp = dist.ReduceOp.SUM
        self._summing.timeout = self._passing.timeout = timedelta(seconds=timeout)
        self._introductions: Introductions | None = None
        self._inside = False
        self._store: Any = None
        self._group: Any = None
        self._connected = threading.Event()
        self._failure: Exception | None = None
        self._work: list[Any] = []
        """Reductions under way."""
        self._unsent: RuntimeError | OSError | None = None
        """Why one could not be begun."""
        self._dropped = False

    # --- interruption ---------------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Free the main thread from whatever it waits for in here, from another thread. Returns at once."""
        if not self.interrupted.is_set():
            self.interrupted.set()
            threading.Thread(target=self._cut_until_free, name="spare-cut", daemon=True).start()

    def _cut_until_free(self) -> None:
        until = time.monotonic() + _CUT_FOR
        while (self._inside or not self._connected.is_set()) and not self._dropped and time.monotonic() < until:
            self._cut()
            time.sleep(_CUT_EVERY)

    def _cut(self) -> None:
        # Not what came in at one's own store: others may be in the next rendezvous there already.
        for client in tuple(self._clients):
            client.shut()
        if (gloo := self._introductions) is not None:
            cut(gloo.own, gloo.others)

    @contextlib.contextmanager
    def _blocking(self, what: str, unreachable: tuple[int, ...] = ()) -> Iterator[None]:
        """What fails in here is a failure of the group, unless a newer plan caused it."""
        self._inside = True
        try:
            if self.interrupted.is_set():
                raise Superseded(what)
            yield
        except (RuntimeError, OSError) as error:  # torch's DistError, DistStoreError, ... derive from RuntimeError
            if self.interrupted.is_set():
                raise Superseded(what) from error
            raise CollectiveFailed(what, (str(error) or type(error).__name__).splitlines()[0], unreachable) from error
        finally:
            self._inside = False

    # --- rendezvous -------------------------------------------------------------------------------------------------

    def enter(self) -> None:
        """Reach the leader's store, and begin to connect the process group.

        Raises:
            Superseded, CollectiveFailed, RendezvousTimeout
        """
        leader = self.plan.leader_group
        with self._blocking("reaching the leader's store", (leader,)):
            self._store = self._prefixed(self._dial())
        if leader == self.plan.group:
            # The last epoch's facts stay: who has not read them yet may still do so.
            self._own_store.forget(self.plan.job, self.plan.epoch - 1)
        _aside(self._connect, "spare-connect")

    def _prefixed(self, store: Any) -> Any:
        return dist.PrefixStore(f"{self.plan.job}/{self.plan.epoch}/{self.plan.digest[:16]}/{self._column}", store)

    def _dial(self) -> Any:
        """A client of the leader's store. The lookup and the connection are both retried until the deadline."""
        address = wire.Address.parse(self.plan.stores[self._column])
        began, pause = time.monotonic(), 0.01
        while True:
            try:
                client = StoreClient(address, self._token, _DIAL_TIMEOUT, self._deadline)
                self._clients.append(client)  # gloo keeps no reference of its own to a store made in Python
                if self._dropped:  # while it was made
                    client.close()
                    raise Superseded("reaching the leader's store")
                return client
            except OSError as error:
                waited = time.monotonic() - began
                if self.interrupted.is_set():
                    raise Superseded("reaching the leader's store") from error
                if waited > self._deadline:
                    raise RendezvousTimeout(
                        f"group {self.plan.group} waited {waited:.0f} s for the store of the leader, group "
                        f"{self.plan.leader_group}, at {address} (epoch {self.plan.epoch}); last error: {error}",
                        (self.plan.leader_group,),
                    ) from error
                self.interrupted.wait(pause)
                pause = min(2 * pause, _DIAL_LONGEST)

    def exchange(self, mine: str) -> dict[int, str]:
        """Say `mine` to all members and hear what each said. Complete only when all have spoken.

        The leader gathers and publishes one document: every member decides from the same bytes.
        """
        store, rank = self._store, self.rank
        assert store is not None
        keys = [f"fact/{r}" for r in range(len(self.members))]
        with self._blocking("the exchange", (self.plan.leader_group,)):
            store.set(keys[rank], mine)
            if self.plan.leader_group == self.plan.group:
                self._await(lambda: store.check(keys))
                store.set("facts", "\n".join(store.get(key).decode() for key in keys))
            else:
                self._await(lambda: store.check(["facts"]))
            return dict(zip(self.members, store.get("facts").decode().split("\n"), strict=True))

    def _await(self, ready: Callable[[], bool]) -> None:
        began = time.monotonic()
        for pause in pauses():
            if ready():
                return
            if self.interrupted.wait(pause):
                raise Superseded("the exchange")
            if time.monotonic() - began > self._deadline:
                store = self._store
                assert store is not None
                missing = [g for r, g in enumerate(self.members) if not store.check([f"fact/{r}"])]
                where, whom = self.plan.stores[self._column], ", ".join(map(str, missing)) or "none"
                raise RendezvousTimeout(
                    f"group {self.plan.group} waited {self._deadline:.0f} s in the rendezvous of epoch "
                    f"{self.plan.epoch} at {where} for groups {whom}",
                    tuple(missing),
                )

    # --- process group ----------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        try:
            store = self._prefixed(self._dial())  # a client of its own: a blocked one would block the exchange
            gloo = self._introductions = Introductions(dist.PrefixStore("gloo", store))
            if self._dropped:
                return
            options = dist.ProcessGroupGloo._Options()
            options._devices = [dist.ProcessGroupGloo.create_device(hostname=self._bind, lazy_init=False)]
            options._timeout = timedelta(seconds=min(self._deadline, self._timeout))
            group = dist.ProcessGroupGloo(gloo, self.rank, len(self.members), options)
            if len(self.members) > 1 and gloo.own is None:
                raise RuntimeError(f"gloo of torch {torch.__version__} does not say where it listens, and is not cut")
            if not self._dropped:  # else its end closes the connections
                self._group = group
        except Exception as error:  # noqa: BLE001  # told to the main thread, which raises it
            self._failure = error.with_traceback(None)  # its frames would keep the sockets open
        finally:
            self._connected.set()

    def group(self) -> Any:
        """The process group; waits for its connection.

        Raises:
            Superseded, CollectiveFailed, RendezvousTimeout
        """
        if self._group is None:
            with self._blocking("connecting to the other groups"):
                began = time.monotonic()
                for pause in pauses():
                    if self._connected.wait(pause):
                        break
                    if self.interrupted.is_set():
                        raise Superseded("connecting to the other groups")
                    if time.monotonic() - began > self._deadline:
                        raise RendezvousTimeout(
                            f"group {self.plan.group} waited {self._deadline:.0f} s to connect with groups "
                            f"{self.plan.members} (epoch {self.plan.epoch})"
                        )
                if self._failure is not None:
                    if isinstance(self._failure, RendezvousTimeout | Superseded):
                        raise self._failure
                    raise RuntimeError(str(self._failure)) from self._failure
        assert self._group is not None
        return self._group

    @property
    def connected(self) -> bool:
        """Whether the process group is there; `send` may be called then."""
        return self._group is not None

    def send(self, tensor: Tensor) -> None:
        """Begin to sum a tensor over all members, in place, ahead of those that `reduce` will be called with. Neither
        blocks nor raises: it is called in the middle of a backward, and `reduce` tells what came of it."""
        try:
            self._begin(tensor)
        except (RuntimeError, OSError) as error:
            self._unsent = error

    def _begin(self, tensor: Tensor) -> None:
        if self._unsent is None:
            self._work.append(self.group().allreduce([tensor], self._summing))

    def reduce(self, tensors: list[Tensor], entered: Callable[[], None]) -> None:
        """Sum the tensors over all members, in place, and those that were sent before; all members in the same order.
        `entered` is called while they are under way.

        Raises:
            Superseded, CollectiveFailed, RendezvousTimeout
        """
        self.group()
        with self._blocking("the reduction"):
            for tensor in tensors:
                self._begin(tensor)
            entered()
            if self._unsent is not None:
                raise self._unsent
            while self._work:
                self._end(self._work.pop(0))

    def barrier(self, entered: Callable[[], None]) -> None:
        """Pass only when every member has come here. `entered` is called while it is under way."""
        group = self.group()
        with self._blocking("the commit barrier"):
            work = group.barrier(self._passing)
            entered()
            self._end(work)

    def broadcast(self, tensors: list[Tensor], source: int) -> None:
        """Give all members the tensors of the group `source`, in place."""
        group = self.group()
        with self._blocking("taking over the first parameters"):
            options = dist.BroadcastOptions()
            options.rootRank, options.rootTensor = self.members.index(source), 0
            options.timeout = timedelta(seconds=self._timeout)
            for work in [group.broadcast([tensor], options) for tensor in tensors]:
                self._end(work)

    def _end(self, work: Any) -> None:
        """Wait for an operation, but not longer than until it is not wanted any more.

        Gloo (torch 2.13) may lose a send whose connection ends in the same moment, and waits for it until its timeout.
        """
        while not work.is_completed():
            if self.interrupted.is_set():
                raise RuntimeError("it was interrupted")
            with contextlib.suppress(RuntimeError):  # so long it takes, or it has failed: told below
                work.wait(_LOOK_EVERY)
        work.wait()

    def drop(self) -> None:
        """Leave: cut the connections, so that every peer learns of it at once, and let go of the group."""
        self._dropped = True
        self.interrupted.set()
        self._cut()
        left = [self._group, *self._work]
        self._group = self._store = None
        self._work.clear()
        # Its end waits for what is under way: see `_end`. What is written there meanwhile is nobody's (buffers).
        _aside(left.clear, "spare-drop")
        for client in tuple(self._clients):
            client.close()
