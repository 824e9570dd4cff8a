"""The training state on its way from a donor to a joiner, over one connection (docs/protocol.md).

The donor's thread sends while its main thread computes gradients: parameters and optimizer state change only at a
commit, which the joiner's barrier holds back until it has loaded. Before a regroup may commit anything the donor drops
the connection first, so a joiner has either all of one step's state or nothing.

On the wire: the joiner's token and epoch in a line; then from the donor a header line (sizes), the skeleton, which is
the state with each tensor replaced by its number, and the tensors' bytes.
"""

from __future__ import annotations

import contextlib
import hmac
import io
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from spare.api import wire

_CHUNK = 1 << 20
_GREETING_DEADLINE = 10.0
_ASK_EVERY = 0.01
_MARK = "__tensor__"


class _NotOffered(Exception):
    """The donor offers nothing for this epoch, or not yet."""


@dataclass(frozen=True)
class Offer:
    """What a donor gives in one epoch."""

    epoch: int
    state: Any
    """Nested dicts, lists and plain values, with tensors in them. Not changed while it is offered."""


def split(state: Any) -> tuple[Any, list[Tensor]]:
    """The state with its tensors replaced by `{__tensor__: number}`, and those tensors."""
    tensors: list[Tensor] = []

    def walk(value: Any) -> Any:
        if isinstance(value, Tensor):
            tensors.append(value)
            return {_MARK: len(tensors) - 1, "shape": list(value.shape), "dtype": str(value.dtype).split(".")[1]}
        if isinstance(value, dict):
            return {k: walk(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(walk(v) for v in value) if type(value) in (list, tuple) else [walk(v) for v in value]
        return value

    return walk(state), tensors


def join(skeleton: Any, tensors: list[Tensor]) -> Any:
    """The inverse of `split`."""
    if isinstance(skeleton, dict):
        if _MARK in skeleton:
            return tensors[skeleton[_MARK]]
        return {k: join(v, tensors) for k, v in skeleton.items()}
    if isinstance(skeleton, list | tuple):
        return type(skeleton)(join(v, tensors) for v in skeleton)
    return skeleton


def copied(state: Any) -> Any:
    """The state with tensors of its own, on the host."""
    skeleton, tensors = split(state)
    return join(skeleton, [tensor.detach().to("cpu", copy=True) for tensor in tensors])


def _slots(skeleton: Any, found: dict[int, Tensor]) -> dict[int, Tensor]:
    """An empty tensor for each place of the skeleton."""
    if isinstance(skeleton, dict):
        if _MARK in skeleton:
            found[skeleton[_MARK]] = torch.empty(skeleton["shape"], dtype=getattr(torch, skeleton["dtype"]))
            return found
        values: Any = skeleton.values()
    else:
        values = skeleton if isinstance(skeleton, list | tuple) else ()
    for value in values:
        _slots(value, found)
    return found


def _bytes(tensor: Tensor) -> memoryview:
    array: Any = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return memoryview(array)


class Donor:
    """Serves this group's state to joiners, from a listening socket of its own."""

    def __init__(self, bind: str, token: str) -> None:
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self._listener = socket.socket(family)
        self._listener.bind((bind, 0))
        self._listener.listen(64)
        self.address = wire.Address(*self._listener.getsockname()[:2])
        self._token = token
        self._lock = threading.Lock()
        self._given = threading.Event()
        self._offer: Offer | None = None
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, name="spare-donor", daemon=True).start()

    def offer(self, offer: Offer) -> None:
        """From now on, joiners of this epoch get this."""
        with self._lock:
            self._offer = offer
            self._given.clear()

    def gave(self, deadline: float) -> bool:
        """Whether somebody has been given everything of the offer, waiting at most `deadline` seconds."""
        return self._given.wait(deadline)

    def withdraw(self) -> None:
        """Stop at once: no byte of the state leaves after this returns."""
        with self._lock:
            self._offer = None
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            while self._open:
                self._open.pop().close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:  # it left again, or there are no descriptors: a joiner asks again
                print(f"spare: a joiner could not be let in: {error}", file=sys.stderr, flush=True)  # noqa: T201
                time.sleep(_ASK_EVERY)
                continue
            threading.Thread(target=self._serve, args=(connection,), name="spare-give", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(_GREETING_DEADLINE)
            with connection.makefile("rb") as lines:
                hello = json.loads(lines.readline(4096))
            token_right = hmac.compare_digest(str(hello["token"]).encode(), self._token.encode())
            with self._lock:
                offer = self._offer
                if not token_right or offer is None or offer.epoch != hello["epoch"]:
                    raise ValueError("nothing is offered for this epoch")
                self._open.add(connection)
            self._send(connection, offer)
        except (OSError, ValueError, KeyError, TypeError) as error:
            with contextlib.suppress(OSError):
                connection.sendall(json.dumps({"refused": str(error)}).encode() + b"\n")
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def _send(self, connection: socket.socket, offer: Offer) -> None:
        connection.settimeout(None)  # withdraw() ends it
        skeleton, tensors = split(offer.state)
        packed = io.BytesIO()
        torch.save(skeleton, packed)
        data = packed.getbuffer()
        connection.sendall(json.dumps({"skeleton": len(data), "tensors": len(tensors)}).encode() + b"\n")
        connection.sendall(data)
        for tensor in tensors:
            whole = _bytes(tensor)
            for start in range(0, len(whole), _CHUNK):
                with self._lock:  # a withdrawal falls between two chunks
                    if connection not in self._open:
                        return
                connection.sendall(whole[start : start + _CHUNK])
        self._given.set()


class Transfer:
    """A joiner's side: loads on a thread of its own."""

    def __init__(self, address: wire.Address, token: str, epoch: int, deadline: float) -> None:
        """Begin. `deadline`: seconds without a byte after which it has failed."""
        self.error: str | None = None
        self.state: Any = None
        self.received = 0
        """Bytes so far."""
        self.seconds = 0.0
        """What it took, from the connection that brought it."""
        self._greeting = json.dumps({"token": token, "epoch": epoch}).encode() + b"\n"
        self._address, self._deadline = address, deadline
        self._socket: socket.socket | None = None
        self._ended, self._cancelled = threading.Event(), threading.Event()
        threading.Thread(target=self._run, name="spare-load", daemon=True).start()

    def wait(self, pause: float) -> bool:
        """Whether it has ended, waiting at most `pause` seconds."""
        return self._ended.wait(pause)

    def cancel(self) -> None:
        """Give up: what comes of it is not asked for any more."""
        self._cancelled.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        until = time.monotonic() + self._deadline
        try:
            while not self._cancelled.is_set():
                try:
                    self._once()
                    return
                except _NotOffered as error:  # the donor has not come so far yet
                    if time.monotonic() > until:
                        raise ValueError(f"{error}, for {self._deadline:.0f} s") from error
                    self._cancelled.wait(_ASK_EVERY)
        except Exception as error:  # noqa: BLE001  # told to the main thread: what came is not what a donor gives
            self.error = f"loading the state from {self._address}: {error}"
        finally:
            self._ended.set()

    def _once(self) -> None:
        began = time.monotonic()
        with socket.create_connection(self._address, timeout=self._deadline) as connection:
            self._socket = connection
            connection.sendall(self._greeting)
            with connection.makefile("rb") as stream:
                self.state = self._receive(stream.readline, stream.readinto)
        self.seconds = time.monotonic() - began

    def _receive(self, readline: Callable[[], bytes], readinto: Callable[[memoryview], int | None]) -> Any:
        line = readline()
        if not line:
            raise ValueError("the donor closed the connection")
        header: dict[str, Any] = json.loads(line)
        if "refused" in header:
            raise _NotOffered(header["refused"])
        packed = bytearray(header["skeleton"])
        self._fill(memoryview(packed), readinto)
        skeleton = torch.load(io.BytesIO(packed), weights_only=True)
        slots = _slots(skeleton, {})
        for number in range(header["tensors"]):
            self._fill(_bytes(slots[number]), readinto)
        return join(skeleton, [slots[n] for n in range(header["tensors"])])

    def _fill(self, place: memoryview, readinto: Callable[[memoryview], int | None]) -> None:
        done = 0
        while done < len(place):
            count = readinto(place[done : done + _CHUNK])
            if not count:
                raise ValueError(f"the connection ended after {self.received} bytes")
            done += count
            self.received += count
