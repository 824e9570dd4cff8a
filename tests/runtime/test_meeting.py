"""Members meet, reduce and part: real stores and gloo between real processes, over loopback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.peers import Peers, until

SOON = 1.0
"""Seconds within which an interrupted member is free; milliseconds on an idle machine."""

Make = Callable[[int, str], Peers]


def listening(pid: int) -> list[str]:
    """Local addresses of the listening TCP sockets of a process, in the kernel's hexadecimal form."""
    inodes = set()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(entry.path)))
    found = []
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = row.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.append(fields[1].rpartition(":")[0])
    return found


@pytest.mark.parametrize("bind", ["127.0.0.1", "::1"])
def test_members_exchange_reduce_and_pass_the_barrier(make: Make, bind: str) -> None:
    """Over either loopback: addresses are taken as they are, and no name is looked up."""
    them = make(3, bind)
    them.begin()
    them.all("enter")
    for peer in them:
        peer.ask("exchange", f"facts of {peer.group}")

    assert all(p.answer().result == {g: f"facts of {g}" for g in range(3)} for p in them)
    assert them.all("reduce", 2.5) == [7.5, 7.5, 7.5]
    them.all("barrier")
    for peer in them:
        peer.ask("broadcast", 10.0 + peer.group)
    assert [p.answer().result for p in them] == [10.0, 10.0, 10.0]


@pytest.mark.parametrize(("bind", "loopback"), [("127.0.0.1", "0100007F"), ("::1", "0" * 24 + "01000000")])
def test_everything_that_listens_is_on_loopback(make: Make, bind: str, loopback: str) -> None:
    """Torch's own store listens on every address, even when told otherwise; ours does not, and gloo does not."""
    them = make(2, bind)
    them.met()

    for peer in them:
        found = listening(peer.pid)
        assert len(found) >= 2, "a store and a process group"
        assert set(found) == {loopback}


def test_the_exchange_waits_for_everybody(three: Peers) -> None:
    """Two have spoken and wait; with the third all hear the same."""
    three.begin()
    three.all("enter")
    first, second, third = three
    first.ask("exchange", "a")
    second.ask("exchange", "b")
    for peer in (first, second):
        peer.blocked()
        assert peer.busy(0.05)
    third.ask("exchange", "c")

    assert [p.answer().result for p in three] == [{0: "a", 1: "b", 2: "c"}] * 3


def test_members_of_different_epochs_do_not_meet(two: Peers) -> None:
    """The keys hold epoch and digest: who still is in another plan is not heard."""
    first, second = two
    first.call("meet", two.plan(0, epoch=1), 30.0, 30.0)
    second.call("meet", two.plan(1, epoch=2), 30.0, 30.0)
    two.all("enter")
    second.ask("exchange", "from the other epoch")
    first.ask("exchange", "mine")
    first.blocked()

    assert first.busy(0.05)
    first.ask("interrupt")
    second.ask("interrupt")
    assert {first.answer().failed, second.answer().failed} == {"Superseded"}


# --- what frees a member that waits ---------------------------------------------------------------------------------


def test_a_member_is_freed_from_a_reduction_whose_peer_is_silent(two: Peers) -> None:
    """The peer is there and connected, and never enters; gloo itself would wait for its timeout."""
    two.met()
    waits = two.members[1]
    waits.ask("reduce", 1.0)
    waits.blocked()
    assert waits.busy(0.05)
    waits.ask("interrupt")

    answer = waits.answer(SOON)
    assert answer.failed == "Superseded"


def test_a_member_is_freed_though_its_peer_is_stopped(two: Peers) -> None:
    """A frozen process answers nothing, not even the end of a connection."""
    two.met()
    frozen, waits = two
    frozen.signal(signal.SIGSTOP)
    waits.ask("barrier")
    waits.blocked()
    waits.ask("interrupt")

    assert waits.answer(SOON).failed == "Superseded"
    frozen.signal(signal.SIGKILL)


@pytest.mark.parametrize("what", [("reduce", 1.0), ("barrier",), ("broadcast", 1.0)])
def test_a_member_is_freed_though_gloo_waits_on(two: Peers, what: tuple[Any, ...]) -> None:
    """A send that begins when its connection ends is lost inside gloo, which then waits for its timeout."""
    two.met(timeout=600.0)
    waits = two.members[1]
    waits.call("go_deaf")
    waits.ask(*what)
    waits.blocked()
    waits.ask("interrupt")

    assert waits.answer(SOON).failed == "Superseded"


def test_a_member_leaves_though_gloo_waits_on(two: Peers) -> None:
    """Nor does it wait for what was sent early in a step; and the next meeting is as good as any."""
    two.met(epoch=1, timeout=600.0)
    first = two.members[0]
    first.call("go_deaf")
    first.call("send", 1.0)
    first.ask("drop")

    assert first.answer(SOON).error is None
    two.members[1].call("drop")
    two.met(epoch=2)
    assert two.all("reduce", 1.0) == [2.0, 2.0]


def test_a_killed_peer_is_noticed_at_once(three: Peers) -> None:
    """Whatever the collective's timeout is: connections drop, and who notices and leaves tells the rest by it."""
    three.met(timeout=600.0)
    for peer in three.members[:2]:
        peer.ask("reduce", 1.0)
        peer.blocked()
    three.members[2].signal(signal.SIGKILL)

    waiting, noticed = set(three.members[:2]), []
    while waiting:
        until(lambda: any(not peer.busy() for peer in waiting), "another member notices", SOON)
        for peer in [p for p in waiting if not p.busy()]:
            noticed.append(peer.answer())
            peer.call("drop")
            waiting.remove(peer)
    assert [a.failed for a in noticed] == ["CollectiveFailed"] * 2
    assert all(a.text.startswith("the reduction: ") and "gloo/" not in a.text for a in noticed), noticed


def test_a_member_that_leaves_fails_the_others(two: Peers) -> None:
    """Its connections are cut, so nobody waits for it."""
    two.met(timeout=600.0)
    first, second = two
    first.ask("barrier")
    first.blocked()
    second.call("drop")

    assert first.answer(SOON).failed == "CollectiveFailed"


@pytest.mark.parametrize("who", [0, 1])
def test_a_member_is_freed_from_the_exchange(two: Peers, who: int) -> None:
    """The leader, who gathers, and another, who waits for what is gathered."""
    two.begin()
    two.all("enter")
    waits = two.members[who]
    waits.ask("exchange", "mine")
    waits.blocked()
    waits.ask("interrupt")

    assert waits.answer(SOON).failed == "Superseded"


def test_a_member_is_freed_from_an_exchange_whose_leader_is_stopped(two: Peers) -> None:
    """The store does not answer any more, and its client blocks in the kernel."""
    two.begin()
    two.all("enter")
    leader, waits = two
    leader.signal(signal.SIGSTOP)
    waits.ask("exchange", "mine")
    waits.blocked()
    assert waits.busy(0.05)
    waits.ask("interrupt")

    assert waits.answer(SOON).failed == "Superseded"
    leader.signal(signal.SIGKILL)


def test_a_member_is_freed_from_connecting_to_a_store_that_is_stopped(two: Peers) -> None:
    """The kernel accepts the connection, and nobody ever answers on it; torch's client retries before it gives up."""
    leader, waits = two
    leader.signal(signal.SIGSTOP)
    waits.call("meet", two.plan(1), 30.0, 30.0)
    waits.ask("enter")
    waits.blocked()
    assert waits.busy(0.05)
    waits.ask("interrupt")

    assert waits.answer(10 * SOON).failed == "Superseded"
    leader.signal(signal.SIGKILL)


def test_a_member_is_freed_from_connecting_to_a_peer_that_never_comes(two: Peers) -> None:
    """The process group needs all of them; the wait for it ends, and only a thread is left behind."""
    two.begin()
    waits = two.members[0]
    waits.call("enter")
    waits.ask("connect")
    waits.blocked()
    waits.ask("interrupt")

    assert waits.answer(SOON).failed == "Superseded"


def test_a_connection_that_the_script_opens_meanwhile_is_left_alone(two: Peers) -> None:
    """It appears while the group connects, just as gloo's own do; the end of the meeting cuts those only."""
    two.begin()
    waits = two.members[0]
    waits.call("enter")
    waits.call("connect_of_its_own")
    two.members[1].call("enter")
    two.all("connect")
    waits.ask("barrier")
    waits.blocked()
    waits.ask("interrupt")
    assert waits.answer(SOON).failed == "Superseded"
    waits.call("drop")

    assert waits.call("own_connection_works").result


def test_who_was_interrupted_before_enters_nothing(two: Peers) -> None:
    """The plan that did it waits: no reduction is begun under the old one."""
    two.met()
    first = two.members[0]
    first.ask("interrupt")
    for name, arguments in (("reduce", (1.0,)), ("barrier", ()), ("exchange", ("x",))):
        first.ask(name, *arguments)
        assert first.answer(SOON).failed == "Superseded"


# --- the next meeting -----------------------------------------------------------------------------------------------


def test_the_next_meeting_works_after_each_kind_of_end(three: Peers) -> None:
    """Met, failed in a reduction, interrupted in the exchange, left at once: the store serves them all."""
    three.met(epoch=1)
    three.members[0].ask("reduce", 1.0)
    three.members[0].blocked()
    three.members[2].call("drop")
    three.members[0].ask("interrupt")
    assert three.members[0].answer(SOON).failed == "Superseded"
    three.begin(epoch=2)
    three.all("enter")
    three.members[1].ask("exchange", "")
    three.members[1].blocked()
    three.members[1].ask("interrupt")
    assert three.members[1].answer(SOON).failed == "Superseded"
    three.begin(epoch=3)
    three.all("enter")
    three.met(epoch=4)

    assert three.all("reduce", 1.0) == [3.0, 3.0, 3.0]


def test_a_late_connection_of_the_last_epoch_does_not_cut_the_next(three: Peers) -> None:
    """Two plans in quick succession: the first epoch's connections come up while the second's are made."""
    for epoch in range(1, 25, 2):
        three.begin(epoch)
        three.all("enter")
        three.begin(epoch + 1)
        three.all("enter")
        three.all("exchange", "mine")

        assert three.all("reduce", 1.0) == [3.0, 3.0, 3.0]
        three.all("barrier")


def test_a_leader_that_comes_late_does_not_cut_who_is_there_already(three: Peers) -> None:
    """The others have the new plan first and dial the leader's store, while the leader still is in the old one."""
    leader, *others = three.members
    for epoch in range(1, 13, 2):
        leader.call("meet", three.plan(0, epoch), 30.0, 30.0)
        leader.call("enter")
        three.begin(epoch + 1, who=others)
        for peer in others:
            peer.call("enter")
            peer.ask("exchange", "mine")
            peer.blocked()
        leader.call("meet", three.plan(0, epoch + 1), 30.0, 30.0)
        leader.call("enter")
        leader.ask("exchange", "mine")

        assert [p.answer().error for p in three.members] == [None] * 3
        assert three.all("reduce", 1.0) == [3.0, 3.0, 3.0]


@pytest.mark.parametrize("fail", [False, True])
def test_many_meetings_leave_nothing_behind(two: Peers, fail: bool) -> None:
    """Regroups with a process group that came up, and with one that was left while it did."""
    two.met(epoch=1)
    for peer in two:
        peer.call("drop")
        peer.ask("rounds", [two.plan(peer.group, epoch) for epoch in range(2, 14)], fail)
    for peer in two:
        answer = peer.answer(60.0)
        assert answer.error is None
        descriptors, threads = answer.result

        assert descriptors <= 4, "the clients of the last meetings, at most"
        assert threads <= 0, "that of the meeting before may have been alive at the start"


ENDS = """
import atexit, time
ended = []
atexit.register(lambda: print("ended" if ended else "Python ends, and the thread is still inside"))  # runs last
from spare_runtime import meeting
meeting._aside(lambda: (time.sleep(0.3), ended.append(True)), "spare-drop")
"""


def test_a_process_ends_after_what_it_has_in_gloo() -> None:
    """A thread that comes out of gloo's C++ while Python ends aborts it: `terminate called without an exception`."""
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=60)

    assert (done.stdout, done.returncode) == ("ended\n", 0), done.stderr
