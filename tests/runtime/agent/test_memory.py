"""A worker that the kernel killed for want of memory is told as that."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from spare.api import wire
from spare_runtime.agent import worker as module
from spare_runtime.agent.memory import oom_kills
from spare_runtime.agent.worker import Worker
from tests.runtime.plans import JOB, UID


def test_the_kernel_s_count_is_read_in_both_versions(tmp_path: Path) -> None:
    """Version 2 says `oom` for each limit that was hit, too; where there is neither file nobody counts."""
    two, one = tmp_path / "memory.events", tmp_path / "memory.oom_control"
    assert oom_kills((two, one)) == 0
    one.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert oom_kills((two, one)) == 2
    two.write_text("low 0\nhigh 0\nmax 7\noom 5\noom_kill 3\noom_group_kill 0\n")
    assert oom_kills((two, one)) == 3


@pytest.mark.parametrize(("killed", "tail"), [(1, wire.OUT_OF_MEMORY), (0, "last words")])
def test_a_sigkill_is_told_with_its_cause(killed: int, tail: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where the count has grown since the worker's start: somebody else may have sent it."""
    counts = iter([4, 4 + killed])
    monkeypatch.setattr(module, "oom_kills", lambda: next(counts))

    async def main() -> wire.Exited:
        worker = Worker()
        await worker.start(["sh", "-c", "echo last words >&2; kill -9 $$"], dict(os.environ))
        await worker.ended()
        assert worker._pump is not None
        await worker._pump
        return worker.exited({"job": JOB, "uid": UID, "epoch": 0, "group": 0, "pod": 0, "rank": 0})

    exited = asyncio.run(main())
    assert (exited.signal, exited.tail) == (9, tail)
