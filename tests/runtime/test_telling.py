"""Which commits are reported: the first of each epoch at once, then fewer and fewer."""

from __future__ import annotations

from typing import Any, cast

from spare.api import wire
from spare_runtime.line import Line
from spare_runtime.telling import Commits


class Sent:
    """A line that keeps what is sent."""

    def __init__(self) -> None:
        self.epoch = 1
        self.told: list[dict[str, Any]] = []

    def report(self, kind: type[wire.Up], **fields: Any) -> dict[str, Any]:
        """See Line."""
        assert kind is wire.Committed
        return fields | {"epoch": self.epoch}

    def send(self, message: dict[str, Any]) -> None:
        """See Line."""
        self.told.append(message)


def test_reports_become_rare_and_leave_nothing_out() -> None:
    """Steps of 10 ms: 20 reports a second at first, 4 in the long run; the micro-batches of all steps are in them."""
    line, now = Sent(), [100.0]
    commits = Commits(cast(Line, line), lambda: now[0])
    at = []
    for step in range(3000):
        before = len(line.told)
        commits.tell(step, 1.0, computed=2, seconds=0.5, ranks=4)
        if len(line.told) > before:
            at.append(now[0] - 100.0)
        now[0] += 0.01

    assert at[0] == 0.0
    assert 17 <= sum(moment < 1.0 for moment in at) <= 20
    assert 38 <= sum(moment >= 20.0 for moment in at) <= 42
    reported = sum(each["computed"] for each in line.told)
    assert reported == 2 * (line.told[-1]["step"] + 1)
    assert sum(each["seconds"] for each in line.told) == 0.25 * reported


def test_a_thousand_ranks_do_not_flood_the_coordinator() -> None:
    """Heartbeats tell the step; of commits 400 a second come, of all ranks together, and the first of each at once."""
    line, now = Sent(), [0.0]
    commits = Commits(cast(Line, line), lambda: now[0])
    for step in range(3000):
        commits.tell(step, None, computed=1, seconds=0.125, ranks=1000)
        now[0] += 0.125

    assert [each["step"] for each in line.told] == list(range(0, 3000, 20))


def test_the_first_commit_of_an_epoch_is_told_at_once() -> None:
    """It ends a recovery; from there on reports are as frequent as at first."""
    line, now = Sent(), [0.0]
    commits = Commits(cast(Line, line), lambda: now[0])
    for step in range(2000):
        commits.tell(step, None, 1, 0.0, 4)
        now[0] += 0.01
    line.epoch, count = 2, len(line.told)
    for step in range(2000, 2100):
        commits.tell(step, None, 1, 0.0, 4)
        now[0] += 0.01

    assert line.told[count]["step"] == 2000
    assert 17 <= len(line.told) - count <= 20
