"""How long a job stands still when a group dies: `make bench-recovery`.

Real processes, killed with SIGKILL from outside at random moments of a step. 4 groups of a 50 ms step by default; a
micro-batch is a sleep, as a step on an accelerator is for the CPU, so that what is measured is the recovery and not the
contention of the workers for two cores; for the same reason lost groups are not started again. Each run takes two kills
(three hosts a shard), worker and whole group in turn.

Per kill, in milliseconds: notice (SIGKILL until the coordinator's first sign of it), detect (until the loss was
decided), plan (until the new plan was pushed), regroup (until every survivor runs under it), patch (until the first
commit), total (SIGKILL until the first commit by anybody). The last line is one JSON object of all figures.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run from a checkout, installed or not

from benchmarks.victims import processes_of

SCRIPT = """
import os, time
import torch
from spare_runtime import Session
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear({width}, {width}) for _ in range({layers})])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
with Session(model, optimizer) as session:
    pause = {step} / session.micro_batches  # a healthy group computes one shard's worth
    for step in session.steps(until={steps}):
        for micro in step:
            began = time.monotonic()
            session.backward(model(torch.ones(1, {width})).square().mean())
            time.sleep(max(0.0, pause - (time.monotonic() - began)))
"""
PARTS = ("notice", "detect", "plan", "regroup", "patch", "total")
GOAL = {4: 0.5, 8: 1.0}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--groups", default=4, show_default=True, type=click.IntRange(3, 64))
@click.option("--kills", default=20, show_default=True, type=click.IntRange(2), help="Kills in all, two a run.")
@click.option("--step", "step_seconds", default=0.05, show_default=True, help="Seconds of a healthy step.")
@click.option("--micro-batches", default=4, show_default=True, type=click.IntRange(1))
@click.option("--width", default=256, show_default=True, help="Of the model's layers.")
@click.option("--layers", default=8, show_default=True, help="8 layers of 256: 0.5 M parameters.")
@click.option("--seed", default=0, show_default=True)
def main(groups: int, kills: int, step_seconds: float, micro_batches: int, width: int, layers: int, seed: int) -> None:
    """Measure recoveries from SIGKILL."""
    chance = random.Random(seed)
    found: list[dict[str, float]] = []
    while len(found) < kills:
        with tempfile.TemporaryDirectory() as folder:
            script = SCRIPT.format(width=width, layers=layers, step=step_seconds, steps=80)
            job = _job(Path(folder), script, groups, micro_batches)
            found += _run(job, chance, groups, step_seconds)
        click.echo(f"{len(found)} of {kills} kills", err=True)
    _report(found, groups, step_seconds, width * (width + 1) * layers)


def _job(folder: Path, script: str, groups: int, micro_batches: int) -> Path:
    (folder / "train.py").write_text(script)
    trainer = {"name": "trainer", "command": [sys.executable, str(folder / "train.py")]}
    spec = {
        "groups": groups,
        "redundancy": 3,
        "microBatches": micro_batches,
        "template": {"spec": {"containers": [trainer]}},
    }
    job = {"apiVersion": "spare.training/v1alpha1", "kind": "SPAReJob", "metadata": {"name": "recovery"}, "spec": spec}
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def _run(job: Path, chance: random.Random, groups: int, step_seconds: float) -> list[dict[str, float]]:
    spare = Path(sysconfig.get_path("scripts")) / "spare"
    command = [str(spare), "run", str(job), "--json", "--no-replacements", "--runs", str(job.parent / "runs")]
    victims = chance.sample(range(groups), 2)
    killed: dict[int, float] = {}
    # The coordinator tells the wall clock as it was at its start, plus a clock that nobody sets: so do we.
    offset = time.time() - time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line: dict[str, Any] = {}
        for text in process.stdout:
            line = json.loads(text)
            due = 15 if not killed else 45
            if line.get("type") == "progress" and len(killed) < 2 and line["step"] >= due:
                victim = victims[len(killed)]
                time.sleep(chance.uniform(0, step_seconds))  # any moment of a step
                killed[victim] = _kill(job.parent, victim, whole=len(killed) == 1) + offset
    if line.get("result") != "complete" or (line["lost"], line["repeated"]) != (0, 0):
        raise click.ClickException(f"the run did not survive: {line}")
    return [_figures(recovery, killed) for recovery in line["recoveries"]]


def _kill(folder: Path, group: int, whole: bool) -> float:
    """SIGKILL to the worker of a group, and to its agent if `whole`; returns when (monotonic clock)."""
    victims = processes_of(folder, group)
    began = time.monotonic()
    if whole:
        os.kill(victims.agent, signal.SIGKILL)
    os.kill(victims.worker, signal.SIGKILL)
    return began


def _figures(recovery: dict[str, Any], killed: dict[int, float]) -> dict[str, float]:
    [group] = recovery["groups"]
    decided = recovery["decided_at"]
    before = decided - recovery["detect"] - killed[group]
    parts = {name: float(recovery[name]) for name in PARTS[1:-1]}
    return {"notice": before, **parts, "total": before + recovery["total"]}


def _report(found: list[dict[str, float]], groups: int, step_seconds: float, parameters: int) -> None:
    click.echo(
        f"{len(found)} kills, {groups} groups, step {1000 * step_seconds:.0f} ms, "
        f"{parameters / 1e6:.2f} M parameters; milliseconds"
    )
    click.echo(f"{'':8} {'median':>8} {'min':>8} {'max':>8}")
    figures: dict[str, Any] = {"kills": len(found), "groups": groups, "step": step_seconds, "parameters": parameters}
    for part in PARTS:
        values = sorted(f[part] for f in found)
        median = statistics.median(values)
        figures[part] = {"median": round(median, 4), "min": round(values[0], 4), "max": round(values[-1], 4)}
        click.echo(f"{part:8} {1000 * median:8.1f} {1000 * values[0]:8.1f} {1000 * values[-1]:8.1f}")
    ratio = figures["total"]["median"] / step_seconds
    click.echo(f"a loss costs {ratio:.1f} healthy steps (median)")
    figures["steps_lost"] = round(ratio, 2)
    if groups in GOAL:
        figures["goal"] = GOAL[groups]
        verdict = "met" if ratio * step_seconds <= GOAL[groups] else "MISSED"
        click.echo(f"goal: at most {GOAL[groups]} s in the median: {verdict}")
    click.echo(json.dumps(figures))


if __name__ == "__main__":
    main()
