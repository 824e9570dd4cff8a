"""Runs jobs as a user does, through `spare run --json`, and computes what the weights must be without any of our code's
plans, reductions or regroups."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from spare_runtime.parameters import digest
from spare_runtime.randomness import seed_all, seed_of
from tests.training.scripts import integers

SCRIPTS = Path(integers.__file__).parent
SPARE = Path(sysconfig.get_path("scripts")) / "spare"
DEADLINE = 110.0
STARTED: list[subprocess.Popen[str]] = []
"""Every run of the test that is under way: `conftest` ends those that it left, as a test that fails does."""


@dataclass(frozen=True)
class Run:
    """What a finished `spare run` left behind."""

    code: int
    summary: dict[str, Any]
    events: list[dict[str, Any]]
    output: str
    folder: Path

    def told(self) -> str:
        """All there is to know of it, for a failing assertion."""
        logs = [f"--- {p.name}\n{p.read_text()[-3000:]}" for p in sorted(self.folder.glob("**/*.log"))]
        return "\n".join([f"exit {self.code}", self.output[-6000:], *logs])


def job_file(
    folder: Path,
    *,
    groups: int = 4,
    redundancy: int = 3,
    micro_batches: int = 4,
    script: str = "integers.py",
    **more: Any,
) -> Path:
    """A job file for one of the scripts beside this file; `env` and `spec` fields may be given."""
    env = {"STEPS": "12", **more.pop("env", {})}
    spec: dict[str, Any] = {
        "groups": groups,
        "redundancy": redundancy,
        "microBatches": micro_batches,
        "detection": {"heartbeat": "200ms", "deadAfter": "2s", "hangAfter": "4s"},
        **more,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "trainer",
                        "command": [sys.executable, str(SCRIPTS / script)],
                        "env": [{"name": k, "value": v} for k, v in env.items()],
                    }
                ]
            }
        },
    }
    job = {"apiVersion": "spare.training/v1alpha1", "kind": "SPAReJob", "metadata": {"name": "small"}, "spec": spec}
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def start(job: Path, *arguments: str, runs: Path | None = None, under: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Start `spare run` without waiting for it.

    `runs`: where its folder goes; default: beside the job file. `under`: a command that runs the one behind it.
    """
    command = [*under, str(SPARE), "run", str(job), "--json", "--runs", str(runs or job.parent / "runs"), *arguments]
    environment = {**os.environ, "SPARE_DIGESTS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    STARTED.append(process)
    return process


def result(process: subprocess.Popen[str], job: Path, already: str = "", deadline: float = DEADLINE) -> Run:
    """Wait for the end of a run that was started, so many seconds at most."""
    try:
        rest, _ = process.communicate(timeout=deadline)
    except subprocess.TimeoutExpired:
        process.terminate()
        rest, _ = process.communicate(timeout=30)
        rest += f"\n(did not end in {deadline} s and was terminated)"
    output = already + rest
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    folders = sorted((job.parent / "runs").glob("*"), key=lambda p: p.stat().st_mtime)
    summary = lines[-1] if lines and "result" in lines[-1] else {}
    return Run(process.returncode, summary, lines, output, folders[-1] if folders else job.parent)


def run(job: Path, *arguments: str) -> Run:
    """`spare run JOB --json ARGUMENTS...`, to its end."""
    return result(start(job, *arguments), job)


@functools.cache
def undisturbed_digest(
    steps: int, groups: int, micro_batches: int, seed: int = 0, skipped: frozenset[tuple[int, int, int]] = frozenset()
) -> str:
    """Of the parameters of `undisturbed`."""
    return digest(undisturbed(steps, groups, micro_batches, seed, skipped))


def undisturbed(
    steps: int, groups: int, micro_batches: int, seed: int = 0, skipped: frozenset[tuple[int, int, int]] = frozenset()
) -> torch.nn.Module:
    """The model after a plain loop over every micro-batch, in one process, with no SPARe session.

    Those `skipped`, as (step, shard, index), are in no sum, and each sum is divided by as many as are in it.
    """
    model = integers.make_model()
    optimizer = integers.Descent(model, integers.RATE)
    for step in range(steps):
        for shard in range(groups):
            for index in range(micro_batches):
                if (step, shard, index) in skipped:
                    continue
                seed_all(seed_of(seed, step, shard, index))
                integers.loss_of(model).backward()  # type: ignore[no-untyped-call]
        for p in model.parameters():
            assert p.grad is not None
            p.grad *= 1.0 / (groups * micro_batches - sum(micro[0] == step for micro in skipped))
        optimizer.step()
        model.zero_grad()
    return model


def check_survived(
    run: Run,
    *,
    steps: int,
    groups: int = 4,
    micro_batches: int = 4,
    masked: int | None = None,
    digest: str | None = None,
) -> None:
    """The whole promise: complete, nothing lost, nothing twice, weights as if nothing had happened.

    `digest`: over the weights; default: that of the script `integers`, one rank a group.
    """
    summary = run.summary
    assert run.code == 0, run.told()
    assert summary["result"] == "complete", run.told()
    assert summary["steps"] == steps, run.told()
    assert (summary["lost"], summary["repeated"]) == (0, 0), run.told()
    assert summary["digest"] == (digest or undisturbed_digest(steps, groups, micro_batches)), run.told()
    if masked is not None:
        assert summary["masked"] == masked, run.told()
