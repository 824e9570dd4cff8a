"""Checkpoints with real processes: going on from them, and beginning again after a wipe-out (F20 to F22)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from spare.api.checkpoint import Manifest, Name
from spare_runtime.checkpoint.folder import Folder
from tests.training.processes import commits, pid_of, processes_of, wait_for
from tests.training.runs import Run, check_survived, job_file, result, run, start
from tests.training.scripts.counting import digest_after

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

DETECTION = {"heartbeat": "200ms", "deadAfter": "2s", "hangAfter": "60s"}
SLOWLY = {"MICRO_SECONDS": "0.02"}


def job(folder: Path, steps: int, **more: Any) -> Path:
    """A job file with a checkpoint every second, beside it."""
    env = {"STEPS": str(steps), **SLOWLY, **more.pop("env", {})}
    keep = {"path": "saved", "period": "1s", **more.pop("checkpoint", {})}
    return job_file(folder, env=env, checkpoint=keep, detection=DETECTION, **more)


def told(done: Run, reason: str) -> list[str]:
    """The texts of the events of a kind."""
    return [e["text"] for e in done.events if e.get("reason") == reason]


def ledger(done: Run) -> list[dict[str, Any]]:
    """All entries of a run."""
    return [json.loads(line) for book in done.folder.glob("ledger/*") for line in book.read_text().splitlines()]


def test_f22_a_new_job_goes_on_from_the_newest_complete_one(tmp_path: Path) -> None:
    """An event names the step; steps before it are not computed again; the weights are those of one single run."""
    first = run(job(tmp_path, 15))
    check_survived(first, steps=15, masked=0)
    assert first.summary["checkpoint"].endswith("step-0000000015")
    saved = Folder(tmp_path / "saved")
    damaged, newest = saved.complete()[:2]
    (tmp_path / "saved" / str(damaged) / "manifest.json").write_text("{")

    second = run(job(tmp_path, 40), "--kill", "1@30:reduce")

    check_survived(second, steps=40, masked=1)
    assert str(damaged) in told(second, "CheckpointUnreadable")[0]
    goes_on = [f"goes on from step {name.step}, checkpoint {name}" for name in (damaged, newest)]
    assert told(second, "Continued") == goes_on
    steps = {e["step"] for e in ledger(second) if "commits" in e}
    assert steps == set(range(newest.step, 40))
    assert all(Name.parse(str(name)).origin > 1 for name in saved.complete()[:2])

    third = run(job(tmp_path, 40))  # there is nothing left to do, and nothing is done
    assert (third.code, third.summary["steps"], third.summary["digest"]) == (0, 40, second.summary["digest"])


def test_f22_other_parameters_fail_the_job_and_are_named(tmp_path: Path) -> None:
    """Never step 0 over them: the folder is as before."""
    check_survived_counting(run(job(tmp_path, 4, script="counting.py", env={"SAMPLES": "64"})), 4)
    before = Folder(tmp_path / "saved").complete()

    done = run(job(tmp_path, 8, script="counting.py", env={"SAMPLES": "80"}))

    assert done.code == 1, done.told()
    assert "weight is [80, 1] of float64, and the checkpoint's is [64, 1] of float64" in done.summary["verdict"]
    assert Folder(tmp_path / "saved").complete() == before


def check_survived_counting(done: Run, steps: int) -> None:
    """Complete, and its ledger adds up."""
    assert done.code == 0, done.told()
    assert (done.summary["result"], done.summary["steps"], done.summary["lost"]) == ("complete", steps, 0), done.told()


def test_another_division_goes_on_with_the_next_sample(tmp_path: Path) -> None:
    """32 samples a step by 4 groups, then 60 a step by 3: after one pass each sample was trained on exactly once."""
    env = {"SAMPLES": str(32 * 10 + 60 * 5)}
    check_survived_counting(run(job(tmp_path, 10, script="counting.py", env=env | {"SIZE": "2"})), 10)

    more = {"groups": 3, "redundancy": 2, "micro_batches": 5}
    done = run(job(tmp_path, 15, script="counting.py", env=env | {"SIZE": "4"}, **more), "--kill", "1@12:reduce")

    check_survived_counting(done, 15)
    assert done.summary["digest"] == digest_after(1, 620), done.told()
    manifest = Folder(tmp_path / "saved").manifest(Name.parse(done.summary["checkpoint"]))
    assert (manifest.samples, manifest.terms.groups) == (620, 3)


@pytest.mark.parametrize(
    ("change", "values"),
    [
        ({"micro_batches": 2}, "spec.microBatches is 2, and the checkpoint's is 4"),
        ({"seed": 5}, "spec.seed is 5, and the checkpoint's is 0"),
    ],
)
def test_a_change_that_cannot_be_exact_is_refused_before_the_first_step(
    tmp_path: Path, change: dict[str, int], values: str
) -> None:
    """With both values: this script finds its data by step, shard and index."""
    check_survived(run(job(tmp_path, 4)), steps=4)

    done = run(job(tmp_path, 8, **change))

    assert done.code == 1, done.told()
    assert values in done.summary["verdict"], done.told()
    assert not [e for e in ledger(done) if "step" in e], done.told()


def test_other_data_are_refused(tmp_path: Path) -> None:
    """By name and length."""
    check_survived_counting(run(job(tmp_path, 4, script="counting.py")), 4)

    done = run(job(tmp_path, 8, script="counting.py", env={"DATA": "letters"}))

    assert done.code == 1, done.told()
    assert "letters with 100 samples, and the checkpoint's are numbers with 100 samples" in done.summary["verdict"]


def test_a_writer_that_dies_while_it_writes_is_followed_by_another(tmp_path: Path) -> None:
    """What it had begun is no checkpoint; the next one comes from another group."""
    file = job(tmp_path, 60)
    kills = [a for step in range(10, 40) for a in ("--kill", f"3@{step}:save")]

    done = run(file, *kills, "--no-replacements")

    check_survived(done, steps=60, masked=1)
    writers = [e["groups"] for e in done.events if e.get("reason") == "Checkpointed"]
    assert writers[0] == [3]
    assert writers[-1] == [2], done.told()
    folder = Folder(tmp_path / "saved")
    for name in folder.complete():
        folder.verify(name)
    assert folder.complete()[0].step == 60


def test_a_path_that_cannot_be_written_does_not_end_the_job(tmp_path: Path) -> None:
    """It was a folder when the job began. Each failure is told; training goes on to its end."""
    saved = tmp_path / "saved"
    saved.mkdir()

    def spoil() -> None:
        until = time.monotonic() + 120
        while not any(tmp_path.rglob("ledger/*")) and time.monotonic() < until:
            time.sleep(0.02)
        shutil.rmtree(saved, ignore_errors=True)
        saved.write_text("a file")

    threading.Thread(target=spoil, daemon=True).start()

    done = run(job(tmp_path, 20))

    check_survived(done, steps=20, masked=0)
    assert "Not a directory" in told(done, "CheckpointFailed")[0]
    assert told(done, "Checkpointed") == []


def test_a_wipe_out_begins_again_from_the_checkpoint(tmp_path: Path) -> None:
    """Bit for bit the weights of a run without failures; what was given up is told; nothing is lost or twice."""
    file = job(tmp_path, 60, redundancy=2, onWipeOut="Restart")

    done = run(file, "--kill", "0@30:compute", "--kill", "1@30:reduce")

    check_survived(done, steps=60)
    assert done.summary["restarts"] == 1, done.told()
    assert len(told(done, "Restarted")) == 1, done.told()
    first = int(told(done, "Restarted")[0].split("step-")[1][:10])
    assert done.summary["abandoned"] == 30 - first, done.told()
    pids = [e["pids"] for e in done.events if e.get("type") == "progress" and all(e["pids"])]
    assert all(a != b for a, b in zip(pids[0], pids[-1], strict=True)), "every worker is a new process"
    origins = {e["origin"]: e["from"] for e in ledger(done) if "origin" in e}
    assert len(origins) == 1, origins


def test_the_code_around_the_loop_is_run_once_for_each_step(tmp_path: Path) -> None:
    """Also across a restart: the script itself asserts it, and its registered counter goes back with the rest."""
    file = job(tmp_path, 50, script="counting.py", redundancy=2, onWipeOut="Restart", env={"SAMPLES": "400"})

    done = run(file, "--kill", "0@25:compute", "--kill", "1@25:reduce")

    check_survived_counting(done, 50)
    assert done.summary["restarts"] == 1, done.told()
    assert done.summary["digest"] == digest_after(2, 400), done.told()


def test_f21_the_restart_limit_has_an_effect(tmp_path: Path) -> None:
    """backoffLimit 1: the second wipe-out ends the job, with its reason; masked losses use none of it."""
    file = job(tmp_path, 100_000, redundancy=2, onWipeOut="Restart", runPolicy={"backoffLimit": 1})
    process = start(file, "--kill", "2@10:reduce")
    assert process.stdout is not None
    lines: list[str] = []
    reader = threading.Thread(target=lines.extend, args=(process.stdout,))  # a full pipe would stop the coordinator
    reader.start()
    wait_for("a rejoin after the masked loss", lambda: _whole(tmp_path, {2: 2}), 120.0)
    for round_, alive in enumerate(({0: 1, 1: 1}, {0: 2, 1: 2})):
        wait_for("all groups", lambda alive=alive: _whole(tmp_path, alive), 120.0)  # type: ignore[misc]
        for group in (0, 1):
            pid = pid_of(tmp_path, group)
            assert pid is not None, round_
            os.kill(pid, signal.SIGKILL)
    process.wait(timeout=200)
    reader.join()
    process.stdout.close()
    entries = [json.loads(line) for line in lines if line.startswith("{")]
    [folder] = (tmp_path / "runs").glob("*")
    done = Run(process.returncode, entries[-1], entries, "".join(lines), folder)

    assert done.code == 3, done.told()
    assert (done.summary["restarts"], done.summary["result"]) == (1, "failed"), done.told()
    assert "backoffLimit (1)" in done.summary["verdict"]
    assert told(done, "BackoffLimitExceeded")
    assert (done.summary["lost"], done.summary["repeated"]) == (0, 0), done.told()


def _whole(folder: Path, books: dict[int, int]) -> bool:
    """Whether these groups have had so many processes, the newest of which has committed a few steps."""
    for group, count in books.items():
        found = sorted(folder.glob(f"runs/*/ledger/group-{group}-*"), key=lambda p: p.stat().st_mtime)
        if len(found) < count or found[-1].read_text().count('"commits"') < 3:
            return False
    return True


def test_fetching_survives_until_one_group_is_left(tmp_path: Path) -> None:
    """No wipe-out while anybody lives; the weights are the same."""
    file = job(tmp_path, 30, redundancy=2, onWipeOut="Fetch")

    kills = ("--kill", "0@8:compute", "--kill", "1@8:reduce", "--kill", "2@20:barrier")
    done = run(file, *kills, "--no-replacements")

    check_survived(done, steps=30, masked=3)
    assert any("fetched by groups that do not host" in text for text in told(done, "Reordered")), done.told()


def test_below_min_groups_the_job_waits_for_the_replacement(tmp_path: Path) -> None:
    """Nothing is committed in between; then all go on."""
    done = run(job(tmp_path, 40, minGroups=4), "--kill", "1@10:reduce")

    check_survived(done, steps=40, masked=1)
    [text] = told(done, "BelowMinGroups")
    assert text.endswith("3 groups are left, and minGroups is 4; waiting for 1 more")
    states = [e["state"] for e in done.events if e.get("type") == "progress"]
    assert "waiting" in states
    assert states[-1] == "complete", states


def test_a_manifest_says_what_the_job_was(tmp_path: Path) -> None:
    """For people as well: it is JSON, and torch's own tools read the rest."""
    check_survived_counting(run(job(tmp_path, 4, script="counting.py", env={"SIZE": "2"})), 4)
    folder = Folder(tmp_path / "saved")

    manifest: Manifest = folder.manifest(folder.complete()[0])

    assert (manifest.step, manifest.samples, manifest.begun_from) == (4, 128, None)
    assert manifest.model == {"weight": ((100, 1), "float64")}
    assert [str(each) for each in manifest.terms.data] == ["numbers with 100 samples"]


def test_a_run_folder_that_is_removed_stops_the_job_after_a_step_that_is_saved(tmp_path: Path) -> None:
    """All that was in it is lost, and nothing else: the next run goes on where this one stopped, as if it had not."""
    file = job(tmp_path, 400)
    process = start(file)
    wait_for("commits", lambda: commits(tmp_path) > 40)
    shutil.rmtree(tmp_path / "runs")
    done = result(process, file)

    assert done.code == 1, done.told()
    assert "was removed while the job ran" in done.output
    assert not processes_of(tmp_path / "runs")
    newest = Folder(tmp_path / "saved").complete()[0]
    shutil.rmtree(tmp_path / "runs")
    again = run(job(tmp_path, newest.step + 10))
    check_survived(again, steps=newest.step + 10, masked=0)
    assert min(e["step"] for e in ledger(again) if "commits" in e) == newest.step
    assert f"It ended after step {newest.step}" in done.output
