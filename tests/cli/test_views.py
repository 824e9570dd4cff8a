"""What a run shows: plain lines, JSON lines, and the picture on a terminal."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest
from rich.console import Console

from spare.cli.json_lines import JsonLines
from spare.cli.lines import Lines
from spare.cli.live import Terminal
from spare.cli.view import Pace, Run, View
from spare.coordinator.observe import Event, SpareSnapshot
from tests.cli.made import FOLDER, group, outcome, snapshot

RUN = Run("gpt/gpt-1", 2, 2, 8, FOLDER, ("group 1: kill@7:reduce",))
EVENT = Event(1_000_000.0, "GroupLost", "group 1 lost (worker killed by signal 9)", (1,))


def shown(view: View, capsys: pytest.CaptureFixture[str]) -> list[str]:
    view.begin(RUN)
    view.state(snapshot())
    view.event(EVENT)
    view.note("a note")
    view.state(snapshot(step=8, groups=(group(0, step=8), group(1, step=8)), loss=2.25, epoch=2, masked=1))
    view.end(outcome())
    captured = capsys.readouterr()
    assert captured.err == "a note\n"
    return captured.out.splitlines()


def test_plain_lines_tell_events_at_once_and_progress_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    """Two states in the same moment give one line of progress; both say where the logs are."""
    out = shown(Lines(), capsys)

    assert sum(line.startswith("step ") for line in out) == 1
    assert any("step 7, loss 2.5000" in line and "2 groups" in line for line in out)
    assert any("GroupLost: group 1 lost (worker killed by signal 9)" in line for line in out)
    assert any("group 1: kill@7:reduce" in line for line in out)
    assert f"logs: {FOLDER}/group-G.log" in out
    assert out[-1] == f"logs and ledgers: {FOLDER}"


def test_a_line_of_progress_comes_again_after_its_pause(capsys: pytest.CaptureFixture[str]) -> None:
    """Not before something was committed."""
    now = 100.0
    view = Lines(clock=lambda: now)
    view.state(snapshot())
    now = 101.5
    view.state(snapshot())
    view.state(snapshot(step=8))

    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()] == ["step 7", "step 8"]


def test_json_lines_are_objects_and_the_last_is_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    """Every line is one object; `type` tells them apart, and the summary has none."""
    out = [json.loads(line) for line in shown(JsonLines(), capsys)]

    assert [line.get("type") for line in out] == ["begin", "progress", "event", "progress", None]
    assert out[0]["folder"] == str(FOLDER)
    assert out[2]["reason"] == "GroupLost"
    assert [(line["step"], line["loss"]) for line in out if line.get("type") == "progress"] == [(7, 2.5), (8, 2.25)]
    assert out[1]["pids"] == [100, 101]
    assert out[-1]["result"] == "complete"


def test_json_does_not_repeat_what_has_not_changed(capsys: pytest.CaptureFixture[str]) -> None:
    """Heartbeats change a snapshot but tell nobody anything."""
    view = JsonLines()
    for still in (0.0, 1.0, 2.0):
        view.state(snapshot(groups=(group(0, still=still), group(1))))

    assert len(capsys.readouterr().out.splitlines()) == 1


def test_json_says_that_all_stand_still(capsys: pytest.CaptureFixture[str]) -> None:
    """When it begins and when it ends, though no step goes by."""
    view = JsonLines()
    for stalled in (False, True, True, False):
        view.state(snapshot(stalled=stalled))

    assert [json.loads(line)["stalled"] for line in capsys.readouterr().out.splitlines()] == [False, True, False]


def terminal(states: int, **console: Any) -> tuple[Terminal, io.StringIO]:
    out = io.StringIO()
    view = Terminal(Console(file=out, width=120, height=40, force_terminal=True, **console))

    async def scene() -> None:
        view.begin(RUN)
        view.event(EVENT)
        lost = group(1, state="lost", load=0, reason="worker killed by signal 9")
        for step in range(1, states + 1):
            here = (group(0, step=step, still=4.2), group(2, state="done", phase="compute", still=9.0), lost)
            view.state(snapshot(step=step, groups=here, loss=4.01 - step / 100))
        await asyncio.sleep(0)
        view.note("a note")
        view.end(outcome())

    asyncio.run(scene())
    return view, out


def test_the_terminal_shows_groups_loss_and_events() -> None:
    """And leaves the last picture and the summary behind."""
    _, out = terminal(3, no_color=True)
    text = out.getvalue()

    for expected in (
        *("gpt/gpt-1", "worker killed by signal 9", "0 1", "████", "GroupLost", "a note", "100", "compute (4 s)"),
        *("loss 4.0000", "3.9800", f"{FOLDER}/group-G.log", "complete: 7 steps", "seconds lost"),
        "waits for the others",
    ):
        assert expected in text


def test_every_view_says_which_spares_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    """How many are ready, and their processes; nothing where none are asked for."""
    spares = (SpareSnapshot(0, "ready", (300, 301)), SpareSnapshot(1, "lost", (0, 0), "not started yet"))
    seen = snapshot(spares=spares)
    Lines().state(seen)
    assert capsys.readouterr().out.rstrip().endswith("masked 0, 1 of 2 spares ready")
    Lines().state(snapshot())
    assert "spare" not in capsys.readouterr().out

    JsonLines().state(seen)
    line = json.loads(capsys.readouterr().out)
    assert line["spares"] == [{"state": "ready", "pids": [300, 301]}, {"state": "lost", "pids": [0, 0]}]

    out = io.StringIO()

    async def scene() -> None:
        view = Terminal(Console(file=out, width=120, height=40, no_color=True))
        view.begin(RUN)
        view.state(seen)
        view.broken()

    asyncio.run(scene())
    rows = [row.split() for row in out.getvalue().splitlines()]
    assert ["spare", "0", "ready", "300", "301"] in rows
    assert ["spare", "1", "lost", "not", "started", "yet"] in rows


def test_the_terminal_is_not_redrawn_at_every_change() -> None:
    """A thousand changes within a moment cost a few pictures: the cores are the workers'."""
    _, out = terminal(1000)

    assert out.getvalue().count("steps/s") <= 5


def test_a_broken_run_gives_the_terminal_back() -> None:
    """The cursor is shown again, whatever the run died of."""
    out = io.StringIO()

    async def scene() -> None:
        view = Terminal(Console(file=out, force_terminal=True))
        view.begin(RUN)
        view.broken()

    asyncio.run(scene())
    assert out.getvalue().endswith("\x1b[?25h")


def test_the_pace_falls_while_nothing_is_committed() -> None:
    """Steps per second over the last seconds, not since the beginning."""
    pace = Pace()
    for second in range(5):
        pace.see(float(second), snapshot(step=10 * second))

    assert pace.at(4.0) == pytest.approx(10.0)
    assert pace.at(8.0) == pytest.approx(5.0)
    pace.see(9.0, snapshot(step=3))
    assert pace.at(9.0) == 0.0  # all began again: steps that were taken back are no negative speed
    pace.see(10.0, snapshot(step=5))
    assert pace.at(10.0) == pytest.approx(2.0)
    assert Pace().at(1.0) == 0.0


@pytest.mark.parametrize(("before", "then"), [("pending", 400), ("waiting", 5)])
def test_the_pace_counts_from_the_beginning_of_the_training(before: str, then: int) -> None:
    """Neither the steps of the checkpoint that a job goes on from, nor the time in which its groups start, or wait."""
    pace = Pace()
    pace.see(0.0, snapshot(state=before, step=0 if before == "pending" else 5))
    pace.see(5.0, snapshot(state="running", step=then))
    assert pace.at(5.0) == 0.0

    pace.see(6.0, snapshot(state="degraded", step=then + 2))
    assert pace.at(6.0) == pytest.approx(2.0)
