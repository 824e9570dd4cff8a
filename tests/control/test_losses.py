"""Members that die: what counts as a loss, and the one plan that answers it."""

from __future__ import annotations

import pytest

from spare.api import wire
from spare.api.exit_codes import ExitCode
from spare.control.action import Announce, Connect, DeleteGroup, ProbeAll, PushPlan
from spare.control.signal import AgentGone, AgentUp, LinkDown, Report, Signal, Tick
from spare.control.state import GroupState, JobState
from tests.control.drive import CONFIG, Drive, started


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ({"signal": 9}, "worker killed by signal 9"),
        ({"signal": 11}, "worker killed by signal 11"),
        ({"signal": 9, "tail": wire.OUT_OF_MEMORY}, "worker killed by signal 9 (out of memory)"),
        ({"code": 137}, "worker exited with code 137"),
        ({"code": 143}, "worker exited with code 143"),
    ],
)
def test_an_infrastructure_exit_is_masked(how: dict[str, object], cause: str) -> None:
    """One urgent plan without the group, pushed before the group is deleted; the reason says what happened."""
    drive = started()
    decision = drive.do(drive.exited(2, **how))

    assert (drive.plan.epoch, drive.plan.base, drive.plan.groups) == (2, 2, (0, 1, 3))
    assert drive.plan.reason.startswith(f"group 2 lost ({cause}): 8 micro-batches given to")  # once, and why
    assert drive.state.masked == 1
    assert drive.state.job is JobState.DEGRADED
    kinds = [type(action) for action in decision.actions]
    assert kinds.index(PushPlan) < kinds.index(DeleteGroup)
    assert [a.reason for a in decision.actions if isinstance(a, Announce)] == ["GroupLost", "Reordered"]


def test_the_removed_group_is_told_that_it_must_stop() -> None:
    """Its part of the plan has no admission; it is fenced even if it should live."""
    drive = started()
    drive.do(AgentGone(1, "u1", "node lost"))
    push = drive.all(PushPlan)[-1]

    assert (1, "u1") in push.to
    assert drive.plan.part_for(1, "u1").admission is None
    assert drive.plan.part_for(0, "u0").admission == 1


def test_losses_known_at_one_moment_make_one_plan() -> None:
    """Epoch +1, masked +3, one event for all (F05)."""
    drive = started(groups=8, redundancy=4)
    drive.do(drive.exited(1), AgentGone(3, "u3", "node n7 lost"), AgentGone(6, "u6", "node n7 lost"))

    assert [plan.epoch for plan in drive.plans] == [1, 2]
    assert drive.plan.groups == (0, 2, 4, 5, 7)
    assert drive.state.masked == 3
    assert "groups 3,6 lost (node n7 lost)" in drive.plan.reason
    assert [e.groups for e in drive.all(Announce) if e.reason == "GroupLost"] == [(1, 3, 6)]


def test_a_loss_told_twice_counts_once() -> None:
    """The exit of the worker, the end of its agent and the end of the pod are one loss."""
    drive = started()
    drive.do(drive.exited(2))
    drive.do(AgentGone(2, "u2", "pod deleted"), drive.exited(2), LinkDown(2, "u2", "reset"), Tick())

    assert drive.plan.epoch == 2
    assert drive.state.masked == 1


def test_late_signals_of_a_replaced_incarnation_change_nothing() -> None:
    """Epoch and masked stay, also when all is told again (F24)."""
    drive = started()
    drive.do(AgentGone(2, "u2", "pod deleted"))
    drive.uids[2] = "u2b"
    drive.ready(2)
    before = drive.plan.digest
    for _ in range(3):
        drive.do(AgentGone(2, "u2", "pod deleted"), AgentUp(2, "u2", "10.0.0.3:7000"), LinkDown(2, "u2", "reset"))

    assert drive.plan.digest == before
    assert drive.state.masked == 1
    assert drive.state.groups[2].uid == "u2b"
    assert drive.state.groups[2].state is GroupState.READY


def test_delete_and_recreate_at_once_is_one_loss() -> None:
    """The replacement is up before the death is told: uids are compared (F25)."""
    drive = started()
    drive.uids[2] = "u2b"
    decision = drive.do(drive.up(2), AgentGone(2, "u2", "pod deleted"))

    assert drive.plan.groups == (0, 1, 3)
    assert drive.state.masked == 1
    assert Connect(2, "u2b", "10.0.0.3:7000") in decision.actions


def test_a_hello_of_a_new_incarnation_replaces_a_member_at_once() -> None:
    """Not after deadAfter: the old one is lost now, the new one waits as a non-member (F13)."""
    drive = started()
    drive.uids[0] = "u0b"
    drive.do(drive.hello(0))

    assert drive.plan.epoch == 2
    assert drive.plan.groups == (1, 2, 3)
    assert drive.plan.leader == 1
    assert drive.state.groups[0].state is GroupState.READY
    assert drive.state.masked == 1


def test_what_a_lost_group_still_says_is_no_event() -> None:
    """Its pod was deleted by force, and its processes go on for a moment: counted, and nobody is told (F54)."""
    drive = started()
    old = [drive.committed(2, 5), drive.running(2), drive.alive(2)]
    drive.do(AgentGone(2, "u2", "pod deleted"))
    drive.do(*old)

    assert drive.state.refused == 3
    assert [e for e in drive.all(Announce) if e.reason == "Refused"] == []


def test_a_returning_old_incarnation_cannot_take_the_number_back() -> None:
    """Its hello is refused by name, once in the events, each time in the count."""
    drive = started()
    drive.uids[0] = "u0b"
    drive.do(drive.hello(0))
    drive.uids[0] = "u0"
    for _ in range(3):
        drive.do(drive.hello(0))

    assert drive.state.groups[0].uid == "u0b"
    assert drive.state.refused == 3
    [event] = [e for e in drive.all(Announce) if e.reason == "Refused"]
    assert "'u0'" in event.text
    assert "'u0b'" in event.text


def test_a_silent_agent_is_lost_after_dead_after() -> None:
    """Not before, and timed from when it was last heard."""
    drive = started()
    for _ in range(5):
        drive.now += 1
        drive.hear(0, 1, 2)
        assert drive.plan.epoch == 1
    drive.now += 1
    drive.hear(0, 1, 2)

    assert drive.plan.groups == (0, 1, 2)
    assert "group 3 lost (its agent was silent for 6.0 s)" in drive.plan.reason
    assert drive.state.recovering is not None
    assert drive.state.recovering.sign == pytest.approx(100.0)


def test_lost_heartbeats_are_no_failure_while_steps_are_committed() -> None:
    """A commit of the present epoch proves every member alive, the one that only we cannot hear included."""
    drive = started()
    for step in range(1, 30):
        drive.do(*(drive.committed(g, step) for g in (0, 1, 2)), Tick(), after=1)

    assert drive.plan.epoch == 1

    for _ in range(6):
        drive.now += 1
        drive.hear(0, 1, 2)

    assert drive.plan.groups == (0, 1, 2)


def test_a_broken_line_alone_is_no_loss() -> None:
    """The line is dialled again; only silence for deadAfter decides."""
    drive = started()
    drive.do(LinkDown(1, "u1", "reset by peer"))
    drive.now += 4
    drive.hear(0, 2, 3)

    assert drive.plan.epoch == 1
    drive.do(drive.hello(1, epoch=1))
    drive.now += 4
    drive.hear(0, 2, 3)
    assert drive.plan.epoch == 1


def test_most_agents_silent_at_once_is_our_own_network() -> None:
    """Nobody is lost, one event says so, and everybody gets a whole deadAfter once they are heard again."""
    drive = started()
    for _ in range(8):
        drive.do(Tick(), after=1)
    unheard = [e for e in drive.all(Announce) if e.reason == "Unheard"]

    assert drive.plan.epoch == 1
    assert len(unheard) == 1
    drive.hear(0)
    drive.do(Tick(), after=1)
    drive.hear(0, 1, 2, 3)
    for _ in range(3):
        drive.now += 1
        drive.hear()
    assert drive.plan.epoch == 1
    assert drive.state.blind == frozenset()


def test_most_agents_silent_for_long_while_others_are_heard_are_lost_after_all() -> None:
    """Three of four frozen: the second deadline running takes them, for the fourth is heard all the while."""
    drive = started(redundancy=4)
    for _ in range(12):
        drive.now += 1
        drive.hear(0)

    assert drive.plan.groups == (0,)
    assert drive.state.masked == 3


def test_a_silent_worker_is_lost_though_its_agent_answers() -> None:
    """SIGSTOP of the worker alone."""
    drive = started()
    drive.hear(0, 1, 2, 3)
    drive.do(drive.alive(2, worker="silent", silent_for=4.9))
    assert drive.plan.epoch == 1
    drive.do(drive.alive(2, worker="silent", silent_for=5.2), after=5.2)

    assert drive.plan.groups == (0, 1, 3)
    assert "its worker was silent for 5.2 s" in drive.plan.reason


def test_a_worker_that_exited_is_lost_even_if_nobody_says_how() -> None:
    """The agent says that it is gone; the report of how gets a second to come."""
    drive = started()
    drive.do(drive.alive(2, worker="exited"))
    assert drive.plan.epoch == 1
    drive.do(Tick(), after=1.1)

    assert drive.plan.groups == (0, 1, 3)


@pytest.mark.parametrize("phase", ["compute", "load"])
@pytest.mark.parametrize("waiting", ["reduce", "barrier", "rendezvous"])
def test_a_worker_without_progress_for_which_another_waits_is_lost(phase: str, waiting: str) -> None:
    """Phase compute or load, still for longer than hangAfter, somebody waits for the same step."""
    drive = started()
    drive.do(*(drive.alive(g, phase=waiting, still=310.0, step=4) for g in (0, 1, 3)))
    drive.do(drive.alive(2, phase=phase, still=299.0, step=4), Tick())
    assert drive.plan.epoch == 1
    drive.do(drive.alive(2, phase=phase, still=301.0, step=4), Tick())

    assert drive.plan.groups == (0, 1, 3)


def test_a_slow_worker_for_which_nobody_waits_is_not_lost() -> None:
    """The others wait for another step, or compute as well."""
    drive = started()
    drive.do(drive.alive(0, phase="reduce", step=3), drive.alive(1, phase="compute", still=400.0, step=4))
    drive.do(Tick())

    assert drive.plan.epoch == 1


def test_all_equally_stuck_is_a_stall_and_nobody_is_lost() -> None:
    """Said once, taken back when something moves."""
    drive = started()
    for _ in range(3):
        drive.hear(phase="reduce", still=301.0)

    assert drive.plan.epoch == 1
    assert drive.state.stalled
    assert [e.reason for e in drive.all(Announce)].count("Stalled") == 1
    drive.do(drive.committed(0, 1))
    assert not drive.state.stalled


def test_who_waits_for_replacements_or_for_the_first_commit_without_a_lost_group_is_no_stall() -> None:
    """Somebody is lost, and it is known who; a plan that is followed by nothing is a stall after a while."""
    drive = started(min_groups=4, replace=True)
    drive.do(drive.exited(2))
    drive.hear(0, 1, 3, phase="failed", still=301.0, after=301.0)
    assert not drive.state.stalled
    drive.do(Tick(), after=1.0)
    drive.uids[2] = "again2"
    drive.ready(2)
    assert drive.plan.epoch == 2
    drive.hear(0, 1, 3, phase="failed", still=302.0, after=1.0)
    assert not drive.state.stalled
    drive.hear(0, 1, 3, phase="reduce", still=602.0, after=300.0)

    assert drive.state.stalled


def test_a_lost_groups_reports_do_not_count() -> None:
    """A fenced group may only say hello: its suspect, done or error changes nothing, the refusal names both (F08)."""
    drive = started()
    drive.do(drive.exited(2))
    digest = drive.plan.digest
    signals: list[Signal] = [drive.suspect(2, 0), drive.done(2), drive.errored(2), drive.exited(2, code=1)]
    drive.do(*signals)

    assert drive.plan.digest == digest
    assert drive.state.suspicions == ()
    assert drive.end is None
    assert drive.all(ProbeAll) == []
    assert all("'u2'" in e.text for e in drive.all(Announce) if e.reason == "Refused")


def test_a_waiting_replacement_may_only_say_hello() -> None:
    """It is no member before a plan admits it: its error is no error of the job."""
    drive = started()
    drive.uids[2] = "u2b"
    drive.ready(2)
    drive.do(drive.errored(2), drive.suspect(2, 0), drive.done(2))

    assert drive.end is None
    assert drive.state.suspicions == ()
    assert drive.state.groups[2].state is GroupState.READY


def test_a_member_that_missed_the_plan_gets_it_at_its_hello() -> None:
    """Only that group is told, and the epoch does not move."""
    drive = started()
    drive.do(drive.exited(2))
    decision = drive.do(drive.hello(0, epoch=1))

    assert decision.actions == (PushPlan(drive.plan, ((0, "u0"),)),)
    assert drive.do(drive.hello(0, epoch=2)).actions == ()


def test_a_hundred_ticks_on_one_view_do_nothing() -> None:
    """No action, epoch and digest as before (F04)."""
    drive = started()
    drive.do(drive.exited(2))
    digest = drive.plan.digest
    before = len(drive.decisions)
    for _ in range(100):
        drive.now += 0.5
        drive.hear()
        drive.do(Tick())

    assert [d.actions for d in drive.decisions[before:] if d.actions] == []
    assert (drive.plan.epoch, drive.plan.digest) == (2, digest)


def test_wipe_out_names_shards_and_hosts() -> None:
    """All hosts of shard 0 gone: exit code, shards, hosts with their causes, the step, what this version lacks."""
    drive = started(redundancy=2)
    drive.do(drive.committed(0, 7))
    first, second = drive.plan.schedule.placement.hosts(0)
    drive.do(drive.exited(first))
    drive.do(AgentGone(second, f"u{second}", "node lost"))

    assert drive.end is not None
    assert drive.end.code == ExitCode.WIPE_OUT
    assert f"{first} (worker killed by signal 9)" in drive.end.verdict
    assert f"{second} (node lost)" in drive.end.verdict
    assert "Step 7 was the last to be committed" in drive.end.verdict
    assert drive.state.masked == 1
    assert len(drive.plans) == 2


def test_the_last_group_lost_is_a_wipe_out() -> None:
    """A job of one group cannot mask anything."""
    drive = started(groups=1, redundancy=1)
    drive.do(drive.exited(0))

    assert drive.end is not None
    assert drive.end.code == ExitCode.WIPE_OUT


def test_two_runs_make_the_same_plans_byte_for_byte() -> None:
    """Same input, same plan (docs/protocol.md, rule 6)."""
    texts = []
    for _ in range(2):
        drive = started()
        drive.do(drive.exited(2))
        texts.append([plan.to_json() for plan in drive.plans])

    assert texts[0] == texts[1]


def test_the_address_of_a_report_outside_the_job_is_refused() -> None:
    """A group number that the job does not have."""
    drive = started()
    message = wire.Alive(job="job/1", epoch=1, uid="x", group=99, worker="running")
    drive.do(Report(message))

    assert drive.state.refused == 1
    assert CONFIG.groups == Drive().config.groups


def test_whole_shards_are_moved_where_the_job_says_so() -> None:
    """As in the paper: one loss doubles the step, and the group that comes back brings it to 1 again."""
    drive = started(whole_shards=True, replace=True)
    assert all(sorted(row) == [0, 0, 8] for row in drive.plan.schedule.counts)

    drive.do(drive.exited(2, signal=9))
    assert drive.plan.schedule.depth == 2.0
    assert "1 shard given to 1 host" in drive.plan.reason
    drive.do(AgentGone(1, "u1", "node lost"))
    assert drive.plan.schedule.depth == 2.0
    assert all(sorted(row) == [0, 0, 8] for row in drive.plan.schedule.counts)
