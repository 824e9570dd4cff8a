"""Rendezvous stores of the workers, and the state on its way from a donor to a joiner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spare.api import wire
from spare_runtime.store import _older
from tests.chaos.net import Net
from tests.chaos.process import Process

_ASK_EVERY = 0.01
_NO_ANSWER = 30.0


class Call:
    """A request to another process, and what came of it."""

    def __init__(self, caller: Process) -> None:
        self.caller = caller
        self.values: list[str] = []
        self.error: str | None = None
        self.ended = False

    def end(self, values: list[str], error: str | None = None) -> None:
        """The answer is here."""
        if not self.ended:
            self.ended, self.values, self.error = True, values, error
            self.caller.poke()


class SimStore:
    """What `spare_runtime.store.StoreServer` is to a member."""

    def __init__(self, stores: Stores, process: Process) -> None:
        self.process = process
        self.address = stores.address(self)
        self._net = stores.net
        self._data: dict[str, str] = {}
        self._waiting: list[tuple[list[str], Call]] = []
        self._open: dict[Call, None] = {}
        process.at_end(self._gone)

    def forget(self, job: str, before: int) -> None:
        """See StoreServer."""
        self._data = {key: value for key, value in self._data.items() if not _older(key, f"{job}/", before)}

    def keys(self) -> frozenset[str]:
        """What has been said here."""
        return frozenset(self._data)

    def opened(self, call: Call) -> None:
        """A request is on its way: it fails with this process."""
        self._open[call] = None

    def serve(self, call: Call, kind: str, keys: list[str], value: str) -> None:
        """Answer a request, at once or when the keys are there."""
        if kind == "get":
            self._waiting.append((keys, call))
        else:
            if kind == "set":
                self._data[keys[0]] = value
            self._answer(call, [])
        for keys_, each in tuple(self._waiting):
            if all(key in self._data for key in keys_):
                self._waiting.remove((keys_, each))
                self._answer(each, [self._data[key] for key in keys_])

    def _answer(self, call: Call, values: list[str]) -> None:
        self._open.pop(call, None)
        self._net.send(self.process.node.host, call.caller.node, call.end, values)

    def _gone(self) -> None:
        for call in self._open:
            self._net.send(self.process.node.host, call.caller.node, call.end, [], "the store closed the connection")


class Stores:
    """Who listens where: stores and donors."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self._by_address: dict[str, Any] = {}

    def address(self, server: Any) -> wire.Address:
        """A fresh address for a server."""
        found = wire.Address("10.1.0.1", 1 + len(self._by_address))
        self._by_address[str(found)] = server
        return found

    def at(self, address: str) -> Any:
        """Who listens there."""
        return self._by_address[address]

    def call(self, caller: Process, address: str, kind: str, keys: list[str] | None = None, value: str = "") -> Call:
        """Ask the store at an address; its host may refuse, or never answer."""
        store, call = self._by_address[address], Call(caller)
        if store.process.dead:
            host = store.process.node.host
            if host not in self.net.vanished:
                caller.node.after(self.net.core.latency(), call.end, [], "Connection refused")
            return call
        store.opened(call)
        self.net.send(caller.node.host, store.process.node, store.serve, call, kind, keys or [], value)
        return call


class SimDonor:
    """What `spare_runtime.transfer.Donor` is to a member."""

    def __init__(self, stores: Stores, process: Process) -> None:
        self.process, self.net = process, stores.net
        self.address = stores.address(self)
        self._offer: Any = None
        self._given = False
        self._open: dict[SimTransfer, None] = {}
        self._asking: dict[SimTransfer, None] = {}
        process.at_end(self._gone)

    def offer(self, offer: Any) -> None:
        """See Donor."""
        self._offer, self._given = offer, False

    def gave(self, deadline: float) -> bool:
        """See Donor."""
        until = self.process.node.time() + deadline
        self.process.at = "giving what it holds"
        while not self._given and self.process.node.time() < until:
            self.process.pause(until)
        return self._given

    def withdraw(self) -> None:
        """See Donor."""
        self._offer = None
        for transfer in self._open:
            self._tell(transfer, transfer.fails, "the donor closed the connection")
        self._open.clear()

    def asked(self, transfer: SimTransfer) -> None:
        """A request is on its way: it fails with this process."""
        self._asking[transfer] = None

    def _gone(self) -> None:
        self._open.update(self._asking)
        self.withdraw()

    def _tell(self, transfer: SimTransfer, call: Callable[..., None], *args: Any) -> None:
        self.net.send(self.process.node.host, transfer.process.node, call, *args)

    def serve(self, transfer: SimTransfer, epoch: int) -> None:
        """A joiner asks."""
        self._asking.pop(transfer, None)
        if self._offer is None or self._offer.epoch != epoch:
            self._tell(transfer, transfer.not_yet)
            return
        self._open[transfer] = None
        seconds = self.net.core.random.choice((0.001, 0.02, 0.2, 1.0))
        for part in range(4):
            self.process.node.after(seconds * (part + 1) / 4, self._give, transfer, self._offer, part)

    def _give(self, transfer: SimTransfer, offer: Any, part: int) -> None:
        if transfer not in self._open:
            return
        if offer.state.torn:
            raise self.net.core.violated(f"{self.process.node.name} changes the state that it gives")
        if part < 3:
            self._tell(transfer, transfer.progress)
        else:
            del self._open[transfer]
            self._given = True
            self.process.poke()
            self._tell(transfer, transfer.loaded, offer.state)


class SimTransfer:
    """What `spare_runtime.transfer.Transfer` is to a joiner."""

    seconds = 0.0

    def __init__(
        self, stores: Stores, process: Process, address: wire.Address, token: str, epoch: int, deadline: float
    ) -> None:
        self.process, self.state, self.error, self.received = process, None, None, 0
        self._donor: SimDonor = stores.at(str(address))
        self._net, self._epoch, self._deadline = stores.net, epoch, deadline
        self._until = process.node.time() + deadline
        self._moved = process.node.time()
        self._ended = False
        self._ask()

    def _ask(self) -> None:
        if self._ended:
            return
        donor = self._donor.process
        if donor.dead and donor.node.host not in self._net.vanished:
            self.process.node.after(self._net.core.latency(), self.fails, "Connection refused")
        else:
            self._donor.asked(self)
            self._net.send(self.process.node.host, donor.node, self._donor.serve, self, self._epoch)

    def not_yet(self) -> None:
        """The donor has not come so far."""
        self._moved = self.process.node.time()
        if self._moved > self._until:
            self.fails(f"nothing is offered for this epoch, for {self._deadline:.0f} s")
        else:
            self.process.node.after(_ASK_EVERY, self._ask)

    def progress(self) -> None:
        """Some bytes came."""
        self.received += 1
        self._moved = self.process.node.time()

    def loaded(self, state: Any) -> None:
        """All is here: a copy of what it was when the last byte left."""
        if not self._ended:
            self.state, self._ended = state, True
            self.process.poke()

    def fails(self, error: str) -> None:
        """It broke."""
        if not self._ended:
            self.error, self._ended = f"loading the state: {error}", True  # type: ignore[assignment]
            self.process.poke()

    def wait(self, pause: float) -> bool:
        """See Transfer."""
        self.process.at = "loading the state"
        until = self.process.node.time() + pause
        if not self._ended and self.process.node.time() - self._moved > self._deadline:
            self.fails("timed out")
        if not self._ended:
            self.process.pause(until)
        return self._ended

    def cancel(self) -> None:
        """See Transfer."""
        self._ended = True
