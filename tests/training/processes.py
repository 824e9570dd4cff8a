"""The processes of a run, as another shell would find them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_LISTEN = "0A"
_LOOPBACK = ("0100007F", "00000000000000000000000001000000")


def environments(folder: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """(pid, environment) of every process whose environment names the run folder, other than this one."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            raw = (entry / "environ").read_bytes()
        except OSError:  # gone meanwhile, or not ours to read
            continue
        if str(folder).encode() in raw:
            yield int(entry.name), dict(v.split("=", 1) for v in raw.decode(errors="replace").split("\0") if "=" in v)


def processes_of(folder: Path) -> list[int]:
    """Every process of a run."""
    return [pid for pid, _ in environments(folder)]


def pid_of(folder: Path, group: int, *, agent: bool = False) -> int | None:
    """The worker (or agent) of a group: a worker knows its agent's socket, and leads a session of its own."""
    for pid, env in environments(folder):
        if env.get("SPARE_GROUP") == str(group) and ("SPARE_AGENT" in env) is not agent and os.getsid(pid) == pid:
            return pid
    return None


def wait_for(what: str, condition: Callable[[], T | None], deadline: float = 90.0) -> T:
    """The condition's first true value."""
    until = time.monotonic() + deadline
    while time.monotonic() < until:
        if value := condition():
            return value
        time.sleep(0.005)  # a look at another process, not a wait for time to pass
    raise AssertionError(f"waited {deadline} s for {what}")


def commits(folder: Path) -> int:
    """Commits in all ledgers of the runs in `folder`."""
    return sum(p.read_text().count('"commits"') for p in folder.glob("runs/*/ledger/*.jsonl"))


def listeners(pids: list[int]) -> list[str]:
    """Addresses, as the kernel writes them, on which any of the processes listens over TCP."""
    inodes = set()
    for pid in pids:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            target = os.readlink(fd)
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in Path(table).read_text().splitlines()[1:]:
            fields = row.split()
            if fields[3] == _LISTEN and fields[9] in inodes:
                found.append(fields[1])
    return found


def is_loopback(address: str) -> bool:
    """Whether an address from `listeners` is a loopback address."""
    return address.split(":")[0] in _LOOPBACK
