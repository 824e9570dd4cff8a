"""The agent's line to the coordinator: who is let in, what passes, what is said again."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spare.api import wire
from tests.runtime.agent.stage import Stage, acting, until
from tests.runtime.plans import JOB, UID, plan

ME: dict[str, Any] = {"job": JOB, "uid": UID, "epoch": 0}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """An agent whose worker listens."""
    with acting(tmp_path) as there:
        yield there


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The same for scenes that must leave no trace."""
    with acting(tmp_path_factory.mktemp("shared")) as there:
        yield there


def test_the_agent_says_hello_and_again_when_its_worker_is_ready(stage: Stage) -> None:
    """First who it is, then the worker's process and store; so the coordinator waits for nobody."""
    line = stage.attached()
    first = line.next(wire.Hello)
    ready = first if first.pid else line.next(wire.Hello)

    assert (first.job, first.uid, first.group) == (JOB, UID, 0)
    assert (ready.pid, ready.store) == (stage.worker(), "127.0.0.1:29500")
    assert line.next(wire.Alive, lambda a: a.worker == "running").group == 0


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"token": "guess"}, "without this job's token"),
        ({"token": "gu\u00e9ss"}, "without this job's token"),
        ({"token": ""}, "without this job's token"),
        ({"uid": "other"}, "'other'"),
        ({"job": "other/job"}, "'other/job'"),
    ],
)
def test_a_stranger_is_refused_and_told_why(shared: Stage, changed: dict[str, str], named: str) -> None:
    """The connection is closed, the worker notices nothing, and the right coordinator still gets in."""
    stranger = shared.line()
    stranger.attach(**changed)
    answers = stranger.rest()

    assert [type(a) for a in answers] == [wire.Refusal]
    assert named in answers[0].reason  # type: ignore[union-attr]
    assert shared.ready().seen
    assert shared.told("^(?!env )") == [f"pid {shared.worker()}"]


@pytest.mark.parametrize(
    "raw", [b"\n", b"GET / HTTP/1.1\r\n\r\n", b"[" * 50_000 + b"\n", wire.Probe(**ME, nonce=1).line()]
)
def test_noise_is_refused(shared: Stage, raw: bytes) -> None:
    """Anything but `attach`; the worker notices nothing."""
    stranger = shared.line()
    stranger.send(raw)

    assert [type(a) for a in stranger.rest()] == [wire.Refusal]
    assert shared.ready().seen


def test_a_plan_passes_down_as_it_came(stage: Stage) -> None:
    """Byte for byte: the worker reads what the coordinator wrote, and a known plan once only."""
    line = stage.ready()
    told = json.dumps({**json.loads(plan(3).line()), "reason": "spaces  and \u00fcmlauts"}, ensure_ascii=False)
    line.send(told.encode() + b"\n")
    line.send(told.encode() + b"\n")
    line.send(plan(4))
    until(lambda: stage.told('"epoch":4'), "the second plan arrived")

    assert [text for text in stage.told() if "plan" in text] == [told, plan(4).line().decode().strip()]


def test_an_older_plan_is_refused_naming_both_epochs(stage: Stage) -> None:
    """A coordinator that was away too long; its plan does not reach the worker."""
    line = stage.ready()
    line.send(plan(5))
    line.send(plan(4))
    refusal = line.next(wire.Refusal)

    assert refusal.what == "plan"
    assert "epoch 4" in refusal.reason
    assert "epoch 5" in refusal.reason
    assert refusal.epoch == 5
    assert not stage.told('"epoch":4')


def test_another_plan_of_the_same_epoch_is_refused(stage: Stage) -> None:
    """Two coordinators at once: the digest tells, and the first plan stays."""
    line = stage.ready()
    line.send(plan(5, digest="a" * 64))
    line.send(plan(5, digest="b" * 64))
    refusal = line.next(wire.Refusal)

    assert "plan 5 with digest bbbbbbbbbbbb; mine has aaaaaaaaaaaa" in refusal.reason
    assert not stage.told("b" * 64)


@pytest.mark.parametrize("raw", [b'{"kind":"explode"}\n', b"noise\n", wire.Probe(**ME | {"job": "x"}, nonce=1).line()])
def test_a_message_that_makes_no_sense_is_refused_and_the_line_stays(shared: Stage, raw: bytes) -> None:
    """By name, and the next message is read as ever."""
    line = shared.ready()
    line.send(raw)

    assert line.next(wire.Refusal).reason
    line.send(wire.Probe(**ME, nonce=7))
    assert line.next(wire.Alive, lambda a: a.nonce == 7)


def test_a_probe_is_answered_at_once(stage: Stage) -> None:
    """With its number, long before the next heartbeat, and with the worker's state in the kernel."""
    line = stage.ready()
    began = time.monotonic()
    line.send(wire.Probe(**ME, nonce=42))
    answer = line.next(wire.Alive, lambda a: a.nonce == 42)

    assert answer.worker == "running"
    assert time.monotonic() - began < 0.15
    os.kill(stage.worker(), signal.SIGKILL)
    until(lambda: not Path(f"/proc/{stage.worker()}/cmdline").exists(), "the worker is gone")
    line.send(wire.Probe(**ME, nonce=43))
    assert line.next(wire.Alive, lambda a: a.nonce == 43).worker == "exited"


def test_a_broken_line_costs_nothing(tmp_path: Path) -> None:
    """The next to attach hears who is there and what must not be lost; what the worker gets is the same as ever."""
    suspect = wire.Suspect(**ME, group=0, step=3, phase="reduce", error="peer gone", unreachable=(1,))
    done = wire.Done(**ME, group=0, step=9, digest="d")
    with acting(tmp_path, f"say:{suspect.line().decode().strip()}", f"say:{done.line().decode().strip()}") as stage:
        first = stage.ready()
        first.next(wire.Done)
        first.close()
        second = stage.attached()

        assert second.next(wire.Hello).pid == stage.worker()
        assert second.next(wire.Suspect) == suspect
        assert second.next(wire.Done) == done
        second.send(plan(2))
        until(lambda: stage.told('"plan"'), "the plan arrived")
        second.close()
        third = stage.attached()
        third.next(wire.Done)
        assert not any(isinstance(m, wire.Suspect) for m in third.seen), "the plan has answered it"


def test_the_newest_coordinator_wins(stage: Stage) -> None:
    """One line at a time: the one before is closed, and reports go to the new one only."""
    first = stage.ready()
    second = stage.ready()

    assert all(isinstance(m, wire.Alive | wire.Hello) for m in first.rest())
    second.send(wire.Probe(**ME, nonce=5))
    assert second.next(wire.Alive, lambda a: a.nonce == 5)


def test_what_a_former_coordinator_sent_late_is_no_order(stage: Stage) -> None:
    """F63: its stop lies in the agent's buffer when the newer one's attach is read; the agent goes on."""
    first, second = stage.ready(), stage.line()
    for nonce in (1, 2, 3):  # the agent has taken up the second line by then
        first.send(wire.Probe(**ME, nonce=nonce))
        first.next(wire.Alive, lambda a, nonce=nonce: a.nonce == nonce)  # type: ignore[misc]
    stage.process.send_signal(signal.SIGSTOP)
    try:
        second.attach()
        time.sleep(0.1)
        first.send(wire.Stop(**ME, reason="a former leader's"))
        time.sleep(0.1)
    finally:
        stage.process.send_signal(signal.SIGCONT)
    second.send(wire.Probe(**ME, nonce=7))

    assert second.next(wire.Alive, lambda a: a.nonce == 7)
    assert stage.process.poll() is None
    assert "a former leader's" not in stage.stderr()


def test_a_worker_that_comes_late_gets_the_plan_that_is_there(tmp_path: Path) -> None:
    """The plan was pushed before the worker had said hello."""
    gate = tmp_path / "gate"
    command = f"while ! test -e {gate}; do sleep 0.01; done; exec python {Path(__file__).parent}/worker_script.py $0"
    with acting(tmp_path, command=["bash", "-c", command, str(tmp_path / "heard")]) as stage:
        line = stage.attached()
        line.send(plan(2))
        line.send(wire.Probe(**ME, nonce=1))
        assert line.next(wire.Alive, lambda a: a.nonce == 1).worker == "none"
        gate.touch()
        until(lambda: stage.told('"plan"'), "the worker got the plan")

        assert stage.told('"plan"') == [plan(2).line().decode().strip()]


def test_an_agent_can_live_on_ipv6(tmp_path: Path) -> None:
    """Its address is announced in brackets, and a coordinator gets in there."""
    with acting(tmp_path, SPARE_BIND="::1") as stage:
        assert stage.address.host == "::1"
        assert stage.ready().seen


def test_a_suspicion_is_said_again_until_an_urgent_plan_answers_it(tmp_path: Path) -> None:
    """A boundary plan was under way when the reduction failed, and the coordinator died before it took note."""
    suspect = wire.Suspect(**ME | {"epoch": 1}, group=0, step=3, phase="reduce", error="peer gone", unreachable=(1,))
    with acting(tmp_path, f"say:{suspect.line().decode().strip()}") as stage:
        line = stage.ready()
        line.next(wire.Suspect)
        line.send(plan(2, base=1))
        until(lambda: stage.told('"epoch":2'), "the boundary plan arrived")

        assert stage.attached().next(wire.Suspect) == suspect


def test_that_a_checkpoint_cannot_be_read_is_said_again(tmp_path: Path) -> None:
    """Its worker waits for a plan with another one."""
    name = "epoch-00000001-abcdef01/step-0000000005"
    unreadable = wire.Unreadable(**ME, group=0, name=name, error="torn")
    with acting(tmp_path, f"say:{unreadable.line().decode().strip()}") as stage:
        stage.ready().next(wire.Unreadable)

        assert stage.attached().next(wire.Unreadable) == unreadable
