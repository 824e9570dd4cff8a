"""Writes checkpoints in forked children that die at a chosen point, or whose disk is full; prints what is left.

Usage: crash_script.py kill | limit FOLDER. A line of JSON for each child: where it ended, and the newest complete
checkpoint, which is read back as a whole. Points are the calls by which a file or folder comes, goes, is written or is
flushed.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import torch

from spare.api.checkpoint import Manifest, Name, Terms, tag_of
from spare_runtime.checkpoint import tensors
from spare_runtime.checkpoint.folder import Folder
from spare_runtime.checkpoint.writer import Failed, Saved, Writer

EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree", "os.truncate")
KEEP = 2
SIZE = 50_000


def tell(what: dict[str, Any]) -> None:
    """One line of what was found."""
    os.write(1, json.dumps(what).encode() + b"\n")


def state_at(step: int) -> dict[str, Any]:
    """A training state that tells its step in every number."""
    return {"committed": step, "model": {"weight": torch.full((SIZE,), float(step))}, "random": torch.arange(8)}


def manifest_at(step: int) -> Manifest:
    """The manifest of that state."""
    terms = Terms(groups=4, micro_batches=4, micro_batch_size=None, seed=0)
    return Manifest(str(Name(1, step, tag_of("job"))), "job", 1, None, terms, 16 * step, {})


def save(folder: Folder, step: int) -> Saved | Failed | None:
    """Write one in the way of a run: a copy, then a thread."""
    return Writer(folder, KEEP, "uid", lambda _: None).save(state_at(step), manifest_at(step), 60.0)


def newest(folder: Folder) -> int:
    """The newest complete one, verified and read back whole."""
    name = folder.complete()[0]
    folder.verify(name)
    state = tensors.read(folder.path / str(name) / "rank-0")
    assert torch.equal(state["model"]["weight"], state_at(name.step)["model"]["weight"])
    assert state["committed"] == name.step
    return name.step


def die_at(count: int) -> None:
    """SIGKILL at the `count`-th event below; writes and flushes are counted as well."""
    left = [count]
    lock = threading.Lock()

    def passed(name: str) -> None:
        with lock:
            left[0] -= 1
            if left[0] == 0:
                os.write(1, f"{name}\n".encode())
                os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in EVENTS:
            passed(event)

    real = os.fsync

    def fsync(fd: int) -> None:
        passed("before os.fsync")
        real(fd)
        passed("after os.fsync")

    os.fsync = fsync  # type: ignore[assignment]
    sys.addaudithook(hook)


def child(work: Any) -> int:
    """Run `work` in a forked process; its exit code, negative for a signal."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = work()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def begin(path: Path) -> Folder:
    """A folder with two complete checkpoints."""
    folder = Folder(path)
    for step in (10, 20):
        assert isinstance(save(folder, step), Saved)
    return folder


def kill(path: Path) -> None:
    """Each child dies one event later than the one before, until one gets through."""
    count = 0
    while True:
        count += 1
        folder = begin(path / str(count))

        def work(count: int = count, folder: Folder = folder) -> int:
            die_at(count)
            return 0 if isinstance(save(folder, 30), Saved) else 2

        code = child(work)
        tell({"count": count, "code": code, "newest": newest(folder)})
        if code == 0:
            return
        assert code == -signal.SIGKILL, code
        assert isinstance(save(folder, 40), Saved)  # who comes next is not held up by what was left
        tell({"after": newest(folder), "kept": len(folder.complete())})


def limit(path: Path) -> None:
    """No file may grow beyond a limit, from nothing to enough."""
    for count, most in enumerate((0, 100, 1000, 4096, 100_000, 199_000, 10_000_000)):
        folder = begin(path / str(count))

        def work(most: int = most, folder: Folder = folder) -> int:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            done = save(folder, 30)
            if isinstance(done, Failed):
                tell({"error": done.error})
            return 0 if isinstance(done, Saved) else 2

        code = child(work)
        left = [p.name for p in folder.path.glob("epoch-*/.*")]
        tell({"limit": most, "code": code, "newest": newest(folder), "left": left})


if __name__ == "__main__":
    torch.set_num_threads(1)
    tensors.library()
    {"kill": kill, "limit": limit}[sys.argv[1]](Path(sys.argv[2]))
