"""Trains the GPT twice, once undisturbed and once with two groups killed that come back, and compares the final losses.

Usage: demo.py [STEPS]. Exits with 0 when both runs completed, both groups came back and the work was shared out evenly
again, nothing was lost or computed again, and the losses agree. The runs come one after the other, for they would slow
each other down.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from spare.cli.curve import plot

HERE = Path(__file__).resolve().parent
SPARE = Path(sys.executable).parent / "spare"
TOLERANCE = 1e-3
"""Greatest relative difference of the final losses: float32 sums in another order are not the same to the last bit."""


@dataclass
class Training:
    """One run: its loss after each step, and its summary."""

    name: str
    curve: list[tuple[float, float]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    back: set[int] = field(default_factory=set)
    """Groups that came back."""
    depth: float = 1.0
    """Largest share of one group, in shards: 1 where all groups are at work."""

    def read(self, entry: dict[str, Any], every: int) -> None:
        """Take one line of `spare run --json`, and show what matters."""
        if entry.get("type") == "event":
            click.echo(f"  {entry['reason']}: {entry['text']}")
            if entry["reason"] == "GroupRejoined":
                self.back.update(entry["groups"])
        elif entry.get("type") == "progress":
            self.depth = entry["depth"]
            if entry["loss"] is not None and (not self.curve or entry["step"] > self.curve[-1][0]):
                self.curve.append((entry["step"], entry["loss"]))
                if entry["step"] % every == 0:
                    where = f"{entry['live']} groups, depth {entry['depth']:.3g}"
                    click.echo(f"  step {entry['step']}: loss {entry['loss']:.4f} on {where}")
        elif "result" in entry:
            self.summary = entry

    def conclude(self) -> None:
        """Print the summary."""
        s = self.summary
        click.echo(f"  {s['result']}: {s['steps']} steps, {s['masked']} failures masked, final loss {s['loss']:.6f}")
        for recovery in s["recoveries"]:
            parts = ", ".join(f"{part} {recovery[part]}" for part in ("detect", "plan", "regroup", "patch", "total"))
            click.echo(f"  group {recovery['groups']} lost in step {recovery['step']}; seconds: {parts}")
        click.echo(f"  micro-batches computed again by survivors: {s['repeated']}; lost: {s['lost']}")


def train(name: str, steps: int, *failures: str) -> Training:
    """Run the job to its end. Exits when it fails."""
    click.echo(f"{name}: spare run {' '.join(['examples/gpt/job.yaml', *failures])}")
    length = f'spec.template.spec.containers[0].args=["{steps}"]'
    command = [str(SPARE), "run", str(HERE / "job.yaml"), "--json", "--set", length, *failures]
    training = Training(name)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                training.read(json.loads(line), every=max(1, steps // 8))
        except KeyboardInterrupt:  # the run has had it too, and ends by itself
            sys.exit(process.wait())
    if process.returncode != 0:
        click.echo(f"the run failed with exit code {process.returncode}: {training.summary.get('verdict', '')}")
        sys.exit(process.returncode)
    training.conclude()
    return training


def main() -> None:
    """Run both, draw, compare."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 150
    calm = train("without failures", steps)
    failures = ("--kill", f"1@{steps // 10}:reduce", "--kill-group", f"2@{steps * 4 // 10}")
    rough = train("with two kills", steps, *failures)

    click.echo("\n" + plot({run.name: run.curve for run in (calm, rough)}) + "\n")
    one, two = calm.summary["loss"], rough.summary["loss"]
    difference = abs(one - two) / abs(one)
    click.echo(f"final loss {one:.6f} without failures, {two:.6f} with two kills: relative difference {difference:.1e}")
    click.echo(
        f"came back: groups {', '.join(map(str, sorted(rough.back))) or 'none'}; depth at the end {rough.depth:.3g}"
    )
    clean = all(run.summary["lost"] == run.summary["repeated"] == 0 for run in (calm, rough))
    if difference > TOLERANCE or not clean or rough.summary["masked"] != 2:
        sys.exit(f"NOT equal: at most {TOLERANCE:g}, nothing lost or repeated, and two masked failures were expected")
    if rough.back != {1, 2} or rough.depth != 1.0:
        sys.exit(
            "NOT whole again: both groups were expected to come back before the end; more STEPS give them more time"
        )
    click.echo(f"equal within {TOLERANCE:g}; whole again; no sample lost, nothing computed again")


if __name__ == "__main__":
    main()
