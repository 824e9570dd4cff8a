"""What broke in other systems, with real processes (the field cases' numbers are in the docstrings)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.runs import Run, check_survived, job_file, run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("timeout", ["600s", "10s"])
def test_f06_a_dead_peer_is_noticed_long_before_the_collective_times_out(tmp_path: Path, timeout: str) -> None:
    """F06: the survivors commit the same step in less than 2 s, whatever the timeout, and compute nothing again."""
    job = job_file(tmp_path, reduction={"collectiveTimeout": timeout, "rendezvousTimeout": "300s"})

    done = run(job, "--kill", "2@5:reduce")

    check_survived(done, steps=12, masked=1)
    [recovery] = done.summary["recoveries"]
    assert recovery["step"] == 5, done.told()
    assert recovery["total"] < 2.0, done.told()


def test_f01_f17_the_global_batch_stays_whole(tmp_path: Path) -> None:
    """F01, F17: 8 groups of 8 micro-batches; with one group lost the depth is 1.25, with two 1.375, and each step's
    gradient holds all 64 micro-batches, each once."""
    job = job_file(tmp_path, groups=8, micro_batches=8, env={"STEPS": "60", "MICRO_SECONDS": "0.001"})

    done = run(job, "--kill", "2@20:reduce", "--kill", "5@40:barrier")

    check_survived(done, steps=60, groups=8, micro_batches=8, masked=2)
    depths = {p["live"]: p["depth"] for p in done.events if p.get("type") == "progress" and p["epoch"]}
    assert depths == {8: 1.0, 7: 1.25, 6: 1.375}, done.told()


def weights_of(done: Run) -> dict[str, dict[str, torch.Tensor]]:
    """What each surviving group saved after training."""
    return {p.name: torch.load(p) for p in sorted(done.folder.glob("weights-*.pt"))}


def test_f19_float32_weights_stay_within_rounding(tmp_path: Path) -> None:
    """F19: ordinary float32 with dropout and Adam: the same on all groups, and within 1e-5 of an undisturbed run."""
    results: list[dict[str, Any]] = []
    for name, arguments in (("calm", []), ("killed", ["--kill", "0@6:reduce", "--kill", "2@13:compute"])):
        (tmp_path / name).mkdir()
        job = job_file(tmp_path / name, script="floats.py", env={"STEPS": "20"})
        done = run(job, *arguments)
        assert (done.code, done.summary["lost"], done.summary["repeated"]) == (0, 0, 0), done.told()
        saved = list(weights_of(done).values())
        assert len(saved) == 4 - done.summary["masked"], done.told()
        for other in saved[1:]:
            assert all(torch.equal(saved[0][k], other[k]) for k in other), done.told()
        results.append(saved[0])

    for key, calm in results[0].items():
        error = (results[1][key] - calm).norm() / calm.norm()
        assert error < 1e-5, f"{key}: {error}"
