"""An agent with several workers, and agents of one group that are told by the coordinator where its ranks meet."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from spare.api import wire
from tests.runtime.agent.stage import Line, acting, until
from tests.runtime.plans import JOB, UID


def told(line: str) -> dict[str, str]:
    """What a worker says of its environment."""
    return dict(re.findall(r"(\w+)=(\S*)", line))


def of(rank: int) -> Callable[[wire.Alive], bool]:
    """A heartbeat of this rank."""
    return lambda alive: alive.rank == rank


def sorted_pids(line: Line, count: int) -> list[int]:
    """The workers' processes by rank, once all have said hello."""
    found: dict[int, int] = {}
    while len(found) < count:
        hello = line.next(wire.Hello, lambda hello: hello.pid > 0)
        found[hello.rank] = hello.pid
    return [found[rank] for rank in range(count)]


def test_each_worker_is_a_rank_of_its_own(tmp_path: Path) -> None:
    """Its hello, its heartbeats and torch's environment say which; the store where they meet is there already."""
    with acting(tmp_path, SPARE_PROCS="2") as stage:
        line = stage.attached()
        pids = sorted_pids(line, 2)
        beats = [line.next(wire.Alive, of(rank)) for rank in (0, 1)]
        until(lambda: len(stage.told("^env")) == 2, "both workers began")
        envs = sorted((told(each) for each in stage.told("^env")), key=lambda env: env["RANK"])

        assert pids[0] != pids[1]
        assert [beat.worker for beat in beats] == ["running", "running"]
        assert [(e["SPARE_RANK"], e["RANK"], e["LOCAL_RANK"], e["WORLD_SIZE"]) for e in envs] == [
            ("0", "0", "0", "2"),
            ("1", "1", "1", "2"),
        ]
        [home] = {env["SPARE_HOME"] for env in envs}
        socket.create_connection(wire.Address.parse(home), timeout=5).close()


def test_one_worker_s_death_is_told_at_once_and_its_siblings_go_on(tmp_path: Path) -> None:
    """What becomes of the group is decided elsewhere."""
    with acting(tmp_path, SPARE_PROCS="3") as stage:
        line = stage.attached()
        pids = sorted_pids(line, 3)
        os.kill(pids[1], signal.SIGKILL)
        exited = line.next(wire.Exited)

        assert (exited.rank, exited.signal) == (1, 9)
        assert line.next(wire.Alive, of(2)).worker == "running"


def test_a_second_pod_starts_its_workers_when_it_knows_where_the_ranks_meet(tmp_path: Path) -> None:
    """The coordinator tells it; before, the agent is there and no worker is."""
    with acting(tmp_path, SPARE_POD="1", SPARE_PODS="2", SPARE_PROCS="2") as stage:
        line = stage.attached()
        assert line.next(wire.Alive).worker == "none"
        assert not stage.told("^pid")
        line.send(wire.Assemble(job=JOB, uid=UID, epoch=0, home="127.0.0.1:4000", master="127.0.0.1:4001"))
        until(lambda: len(stage.told("^env")) == 2, "both workers began")

        for env in map(told, stage.told("^env")):
            assert (env["SPARE_HOME"], env["MASTER_PORT"]) == ("127.0.0.1:4000", "4001")
            assert env["RANK"] in ("2", "3")


def test_the_first_pod_says_where_the_ranks_meet(tmp_path: Path) -> None:
    """In its hello, for the others; its own workers begin with them, when it is told that all are there."""
    with acting(tmp_path, SPARE_POD="0", SPARE_PODS="2") as stage:
        line = stage.attached()
        hello = line.next(wire.Hello)
        assert hello.home is not None
        assert hello.master is not None
        socket.create_connection(wire.Address.parse(hello.home), timeout=5).close()
        assert line.next(wire.Alive).worker == "none"
        assert not stage.told("^env")
        line.send(wire.Assemble(job=JOB, uid=UID, epoch=0, home=hello.home, master=hello.master))
        until(lambda: stage.told("^env"), "its worker began")

        assert told(stage.told("^env")[0])["SPARE_HOME"] == hello.home


def test_a_worker_of_another_pod_is_refused(tmp_path: Path) -> None:
    """It would speak for a rank that this agent does not have."""
    with acting(tmp_path, "silent", SPARE_PROCS="2") as stage:
        stage.worker()
        path = next(
            env.split(b"=", 1)[1]
            for env in Path(f"/proc/{stage.worker()}/environ").read_bytes().split(b"\0")
            if env.startswith(b"SPARE_AGENT=")
        )
        with socket.socket(socket.AF_UNIX) as line:
            line.connect("\0" + path.decode()[1:])
            hello = wire.Hello(job=JOB, uid=UID, epoch=0, group=0, rank=2, token="a secret", pid=1)
            line.sendall(hello.line())
            assert line.recv(10) == b""

        assert "not one of pod 0's workers" in stage.stderr()
