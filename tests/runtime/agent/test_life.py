"""Ends of agents and workers: each is told, and none leaves a process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from spare.api import wire
from tests.runtime.agent.stage import AGENT, acting, lives, until
from tests.runtime.plans import JOB, UID, plan

ME: dict[str, Any] = {"job": JOB, "uid": UID, "epoch": 0}


def test_a_killed_worker_is_told_at_once(tmp_path: Path) -> None:
    """The first of all ways to notice a loss: the agent sees its own child end."""
    with acting(tmp_path) as stage:
        line = stage.ready()
        began = time.monotonic()
        os.kill(stage.worker(), signal.SIGKILL)
        exited = line.next(wire.Exited)

        assert (exited.code, exited.signal) == (None, 9)
        assert time.monotonic() - began < 0.5
        line.send(wire.Stop(**ME, reason="noted"))
        assert stage.ends() == 128 + 9


def test_an_error_s_last_words_are_told(tmp_path: Path) -> None:
    """The exit code, and the end of what it wrote on stderr; the agent ends with the same code."""
    with acting(tmp_path, "exit:3") as stage:
        line = stage.attached()
        exited = line.next(wire.Exited)

        assert (exited.code, exited.signal) == (3, None)
        assert exited.tail.endswith("first line\nthe reason why")
        assert "the reason why" in stage.stderr()
        line.send(wire.Stop(**ME, reason="noted"))
        assert stage.ends() == 3


def test_a_worker_that_ends_well_has_no_last_words(tmp_path: Path) -> None:
    """Warnings on stderr are no reason for anything."""
    with acting(tmp_path, "exit:0") as stage:
        line = stage.attached()

        assert line.next(wire.Exited).tail == ""
        line.send(wire.Stop(**ME, reason="noted"))
        assert stage.ends() == 0


def test_an_exit_is_told_to_who_attaches_later(tmp_path: Path) -> None:
    """The operator was away when it happened."""
    with acting(tmp_path, "exit:3") as stage:
        until(lambda: "the reason why" in stage.stderr(), "the worker has ended")
        line = stage.attached()

        assert line.next(wire.Exited).code == 3
        assert line.next(wire.Alive).worker == "exited"


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Exit code 127, as of a shell, and the name in the text."""
    with acting(tmp_path, command=["no-such-command", "x"]) as stage:
        line = stage.attached()
        exited = line.next(wire.Exited)

        assert exited.code == 127
        assert "no-such-command" in exited.tail
        line.send(wire.Probe(**ME, nonce=3))
        assert line.next(wire.Alive, lambda a: a.nonce == 3).worker == "exited"
        line.send(wire.Stop(**ME, reason="noted"))
        assert stage.ends() == 127


def test_a_killed_agent_takes_its_worker_along(tmp_path: Path) -> None:
    """A worker without an agent is no member of any plan."""
    with acting(tmp_path) as stage:
        stage.ready()
        worker = stage.worker()
        stage.process.kill()

        until(lambda: not lives(worker), "the worker is gone")
        assert stage.ends() == -9


def test_a_killed_agent_takes_a_stopped_worker_along(tmp_path: Path) -> None:
    """SIGKILL reaches what is frozen as well."""
    with acting(tmp_path) as stage:
        stage.ready()
        worker = stage.worker()
        os.kill(worker, signal.SIGSTOP)
        stage.process.kill()

        until(lambda: not lives(worker), "the worker is gone")


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
def test_children_of_a_worker_end_with_it(tmp_path: Path, sig: signal.Signals) -> None:
    """Data loaders hold memory, ports and devices that the next worker needs."""
    with acting(tmp_path, "fork") as stage:
        line = stage.ready()
        until(lambda: len(stage.family()) == 3, "agent, worker and child are there")
        os.kill(stage.worker(), sig)
        line.next(wire.Exited)
        line.send(wire.Stop(**ME, reason="noted"))
        stage.ends()

        until(lambda: not stage.family(), "nothing is left")


@pytest.mark.parametrize("orders", [(), ("fork",), ("deaf",), ("deaf", "silent"), ("fork", "silent")])
def test_stop_ends_everything(tmp_path: Path, orders: tuple[str, ...]) -> None:
    """Also a worker that ignores SIGTERM, or has not said hello yet."""
    with acting(tmp_path, *orders) as stage:
        line = stage.attached() if "silent" in orders else stage.ready()
        stage.worker()
        line.send(wire.Stop(**ME, reason="the job is over"))

        assert stage.ends() == 143
        until(lambda: not stage.family(), "nothing is left")
        assert "stopping: the job is over" in stage.stderr()


def test_stop_ends_a_frozen_worker(tmp_path: Path) -> None:
    """It is woken, so that it can end, or killed."""
    with acting(tmp_path) as stage:
        line = stage.ready()
        os.kill(stage.worker(), signal.SIGSTOP)
        line.send(wire.Stop(**ME, reason="the job is over"))

        assert stage.ends() == 143
        assert not lives(stage.worker())


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_agent_and_worker(tmp_path: Path, sig: signal.Signals) -> None:
    """As a kubelet, or a person, asks for it."""
    with acting(tmp_path, "fork") as stage:
        stage.ready()
        stage.process.send_signal(sig)

        assert stage.ends() == 143
        until(lambda: not stage.family(), "nothing is left")
        assert f"stopping: {sig.name} received" in stage.stderr()


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_signals_that_come_again_do_not_stop_the_clean_up(tmp_path: Path, sig: signal.Signals) -> None:
    """Until its very end the agent is ending what it left behind."""
    with acting(tmp_path, "fork") as stage:
        stage.ready()
        while stage.process.poll() is None:
            stage.process.send_signal(sig)
            time.sleep(0.00001)  # the moments between two handlers are short

        assert stage.ends() == 143
        until(lambda: not stage.family(), "nothing is left")
        assert "Traceback" not in stage.stderr()


def test_the_worker_may_not_come_with_another_token(tmp_path: Path) -> None:
    """Whoever finds the agent's socket cannot speak for the group."""
    command = "SPARE_TOKEN=guess exec python {} $0".format(Path(__file__).parent / "worker_script.py")
    with acting(tmp_path, command=["bash", "-c", command, str(tmp_path / "heard")]) as stage:
        line = stage.attached()
        until(lambda: "worker refused" in stage.stderr(), "the agent refuses it")

        assert line.next(wire.Exited)
        assert not any(isinstance(m, wire.Hello) and m.pid for m in line.seen)


@pytest.mark.parametrize(
    ("arguments", "env", "named"),
    [
        ([], {}, "no command to run"),
        (["--"], {}, "no command to run"),
        (["--verbose", "x"], {}, "no command to run"),
        (["--", "true"], {"SPARE_GROUP": "x"}, "SPARE_GROUP='x'"),
        (["--", "true"], {}, "SPARE_JOB is not set"),
    ],
)
def test_misuse_is_named(arguments: list[str], env: dict[str, str], named: str) -> None:
    """With exit code 2, and no traceback."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SPARE_")}
    known = {"SPARE_JOB": "j", "SPARE_UID": "u", "SPARE_TOKEN": "t"} if env else {}
    ran = subprocess.run([str(AGENT), *arguments], env=clean | known | env, capture_output=True, text=True)

    assert ran.returncode == 2
    assert named in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_agent_needs_no_torch() -> None:
    """It starts in a moment, and runs where torch cannot."""
    code = "import sys, spare_runtime.agent.main; print([m for m in sys.modules if m.partition('.')[0] == 'torch'])"

    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout.strip() == b"[]"


def environment_of(pid: int) -> dict[str, str]:
    """As the process was started with it."""
    pairs = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if pair)


def test_a_worker_keeps_the_memory_that_it_frees_unless_told_otherwise(tmp_path: Path) -> None:
    """By glibc's own variables; what the job file sets stands."""
    with acting(tmp_path, "silent", MALLOC_TRIM_THRESHOLD_="5000") as stage:
        env = environment_of(stage.worker())

    assert env["MALLOC_TRIM_THRESHOLD_"] == "5000"
    assert env["MALLOC_MMAP_THRESHOLD_"] == str(32 << 20)


def test_a_worker_is_started_again_on_demand(tmp_path: Path) -> None:
    """All groups go back to a checkpoint: the worker and its children are new, the agent and its line stay. Its end is
    not told, its hello is; the plan of before is forgotten, and an order that comes twice is obeyed once."""
    with acting(tmp_path, "fork") as stage:
        line = stage.ready()
        line.send(plan(3))
        until(lambda: stage.told('"kind":"plan"'), "the plan")
        first, family = stage.worker(), stage.family()

        for _ in range(2):
            line.send(wire.Renew(**ME | {"epoch": 3}, reason="wipe-out"))
        hello = line.next(wire.Hello, lambda hello: hello.pid not in (0, first))

        assert hello.epoch == 0
        until(lambda: not any(lives(pid) for pid in family if pid != stage.process.pid), "the end of the first")
        line.send(wire.Probe(**ME, nonce=7))
        alive = line.next(wire.Alive, lambda alive: alive.nonce == 7)
        assert (alive.worker, alive.epoch) == ("running", 0)
        line.send(plan(4))
        until(lambda: len(stage.told('"kind":"plan"')) == 2, "the next plan")
        assert lives(hello.pid)
        assert not [m for m in line.seen if isinstance(m, wire.Exited)]


def test_a_signal_does_not_cut_off_who_was_let_go(tmp_path: Path) -> None:
    """A pod's deletion is known to the operator before its kubelet asks the agent to go: by then the plan may have let
    the group go, and its worker still has a step to end."""
    with acting(tmp_path, SPARE_GRACE="30") as stage:
        line = stage.ready()
        line.send(plan(2))
        line.send(wire.Drain(**ME | {"epoch": 2}, grace=20.0))
        line.next(wire.Leave)
        line.send(plan(3, base=2, admission=None, drained=True))
        until(lambda: stage.told('"epoch":3'), "the plan without it arrived")
        stage.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)

        assert lives(stage.worker())
        assert stage.process.poll() is None
