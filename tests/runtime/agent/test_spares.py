"""The agent of a spare: its number is its own until a plan gives it a group's, and if none does nobody has failed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from spare.api import wire
from spare_runtime.agent.wanted import UNWANTED, Wanted
from spare_runtime.config import BadEnvironment, placed, read_environment
from tests.runtime.agent.stage import acting, until
from tests.runtime.plans import JOB, UID, plan

ME: dict[str, Any] = {"job": JOB, "uid": UID, "epoch": 0}
SPARE: dict[str, Any] = {"SPARE_GROUP": "2", "SPARE_SPARE": "0"}
HEARTBEAT = 0.2


def test_a_spare_learns_its_group_by_the_plan_that_admits_it(tmp_path: Path) -> None:
    """Its heartbeats carry the new number, and its worker gets the plan."""
    with acting(tmp_path, **SPARE) as stage:
        line = stage.ready()
        assert line.next(wire.Alive).group == 2

        line.send(plan(3, base=2, admission=3, group=1))
        assert line.next(wire.Alive, lambda alive: alive.group != 2).group == 1
        until(lambda: stage.told('"kind":"plan"'), "the worker has the plan")
        assert "[agent spare 0] spare 0 listens" in stage.stderr()

        again = stage.attached()
        assert again.next(wire.Hello).group == 1


def test_a_worker_that_is_started_again_begins_with_the_group_s_number(tmp_path: Path) -> None:
    """All groups go back to a checkpoint: what was a spare is one of them."""
    with acting(tmp_path, **SPARE) as stage:
        line = stage.ready()
        line.send(plan(3, base=2, admission=3, group=1))
        line.next(wire.Alive, lambda alive: alive.group == 1)
        line.send(wire.Renew(**ME | {"epoch": 4}, reason="wipe-out"))

        hello = line.next(wire.Hello, lambda hello: hello.pid > 0)
        assert hello.group == 1


@pytest.mark.parametrize("how", ["stop", "signal"])
def test_a_spare_that_nobody_needed_ends_well(tmp_path: Path, how: str) -> None:
    """The job is over: a pod that waited for nothing has not failed."""
    with acting(tmp_path, **SPARE) as stage:
        line = stage.ready()
        if how == "stop":
            line.send(wire.Stop(**ME, reason="complete"))
        else:
            os.kill(stage.process.pid, signal.SIGTERM)

        assert stage.ends() == 0


def test_who_has_no_plan_waits_while_it_may_be_wanted() -> None:
    """An hour without a coordinator, counted anew each time that one is there."""
    now, ends = 0.0, list[str]()
    wanted = Wanted(lambda: now, ends.append)
    for now in (UNWANTED - 1, UNWANTED + 1):
        wanted.look(now < UNWANTED)
    now = 2 * UNWANTED - 2
    wanted.look(False)
    assert ends == []

    now = 2 * UNWANTED
    wanted.look(False)
    assert ends == ["no coordinator has asked for it for 3600 s, and it has no plan"]


def test_what_a_spare_is_called() -> None:
    """By its own number until it has a place."""
    env = {"SPARE_JOB": "j", "SPARE_UID": "u", "SPARE_TOKEN": "t", **SPARE}
    waits = read_environment(env)
    assert (waits.name, waits.called) == ("spare 0", "spare 0")
    there = placed(waits, 1)
    assert (there.group, there.spare, there.called) == (1, None, "group 1")
    assert read_environment({**env, **there.place}) == there
    with pytest.raises(BadEnvironment, match="SPARE_SPARE='x'"):
        read_environment({**env, "SPARE_SPARE": "x"})
