"""Where each member's gloo listens is read from what it publishes, whatever else is in there."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed

from spare_runtime.introductions import Introductions, _sockaddr

dist: Any = torch.distributed  # its stubs know little of what its C++ part exports


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_member_is_known_by_where_it_listens(host: str) -> None:
    """Our own address is looked for in what gloo says; the others' stand at the same place."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    base = dist.HashStore()
    with socket.create_server((host, 0), family=family) as ours, socket.create_server((host, 0), family=family):
        port, store = ours.getsockname()[1], Introductions(base)
        store.set("name", b"says nothing of an address")
        assert store.own is None
        store.set("mine", b"layout 7" + _sockaddr(family, host, port) + bytes(100))
        base.set("theirs", b"layout 7" + _sockaddr(family, host, 4711) + bytes(100))
        base.set("short", b"layout 7" + b"\x02")
        base.set("other", b"layout 7" + b"\xff" * 100)

        assert store.own == (host, port)
        for key in ("mine", "theirs", "short", "other"):
            store.get(key)
        assert store.others == {(host, 4711)}


def test_everything_is_passed_on() -> None:
    """Gloo talks to the store behind."""
    base = dist.HashStore()
    store = Introductions(base)
    store.set("a", "text")

    assert base.get("a") == b"text" == store.get("a")
    assert store.check(["a"])
    assert not store.check(["b"])
    store.wait(["a"])
    with pytest.raises(dist.DistStoreError):
        store.wait(["b"], timedelta(milliseconds=10))
