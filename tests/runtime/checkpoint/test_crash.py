"""Complete or absent: a kill at any event of a save, or a full disk, never loses the last good checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.runtime.checkpoint import crash_script


def lines_of(mode: str, folder: Path) -> list[dict[str, Any]]:
    """What the script found, one dict for each child and recovery."""
    command = [sys.executable, crash_script.__file__, mode, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_a_kill_at_each_event_leaves_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    """Each open, write-through, rename and removal is hit once; the next save works whatever was left behind."""
    found = lines_of("kill", tmp_path)

    kills = [each for each in found if "count" in each]
    points = [each["newest"] for each in kills]
    assert len(kills) > 30
    assert kills[-1]["code"] == 0
    assert points == sorted(points), "complete from one event on, absent before it"
    assert set(points) == {20, 30}
    assert all(each == {"after": 40, "kept": crash_script.KEEP} for each in found if "after" in each)


def test_a_full_disk_leaves_the_old_one(tmp_path: Path) -> None:
    """Whatever file it is that cannot grow any more: an error is told, the draft is removed, the last one stays."""
    found = lines_of("limit", tmp_path)

    limits = [each for each in found if "limit" in each]
    assert [each["code"] for each in limits] == [2] * 6 + [0]
    assert [each["newest"] for each in limits] == [20] * 6 + [30]
    assert all(each["left"] == [] for each in limits), limits
    assert len([each for each in found if "cannot be written" in each.get("error", "")]) >= 5, found
