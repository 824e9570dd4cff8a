"""What it costs the others when a group comes back, and when one leaves: `make bench-recovery`.

Real processes, at 4 and at 8 groups, each case several times. A micro-batch is a sleep, as in `recovery.py`.

rejoin  A group is killed and started again. Its admission is a boundary plan: the survivors meet it at a commit, and
        give it the training state while they compute. *stall* is the longest step of any survivor from that plan
        until some steps after the joiner's first commit, as a multiple of the median step before it; *transfer* is
        what the joiner took to load the state (seconds), *back* the time from the kill to its first commit.
drain   SIGTERM to an agent at a random moment. *stall* is the same for the steps around its leave; *patched* are the
        micro-batches that anybody computed beyond those of a run in which nobody leaves, *lost* and *repeated* those
        that the audit of the ledgers found. All three are to be 0.

The last line is one JSON object of all figures.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run from a checkout, installed or not

from benchmarks.victims import processes_of

SCRIPT = """
import json, os, time
import torch
from spare_runtime import Session
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear({width}, {width}) for _ in range({layers})])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
with Session(model, optimizer) as session, open(f"{folder}/steps-{{session.group}}-{{os.getpid()}}", "w", 1) as book:
    pause = {step} / session.micro_batches
    for step in session.steps(until={steps}):
        for micro in step:
            began = time.monotonic()
            session.backward(model(torch.ones(1, {width})).square().mean())
            time.sleep(max(0.0, pause - (time.monotonic() - began)))
        print(step.number, time.time(), file=book)
"""
AFTER = 3
"""Steps behind a joiner's first commit, or a leave, that are still looked at."""
_LOADED = re.compile(r"the training state, (\d+) bytes, was loaded from group \d+ in ([0-9.]+) s")


# --- bookkeeping ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stall:
    """Steps of those who stay, around something that happens. Seconds."""

    median: float
    """Of the steps before it."""
    longest: float
    """Of the steps around it."""

    @property
    def ratio(self) -> float:
        """1 where nothing is to be noticed."""
        return self.longest / self.median


def durations(commits: Sequence[tuple[int, float]], since: float, until: float) -> list[float]:
    """Seconds of each step that one group committed after `since` and not after `until`.

    Args:
        commits: (step, when) of that group, ascending; the first has no duration.
        since: Wall clock.
        until: Wall clock.
    """
    return [then - before for (_, before), (_, then) in itertools.pairwise(commits) if since < then <= until]


def stall(
    books: Iterable[Sequence[tuple[int, float]]], calm: tuple[float, float], around: tuple[float, float]
) -> Stall:
    """The stall of all who stay.

    Args:
        books: The commits of each.
        calm: From when to when nothing happened.
        around: From when to when it happened.

    Raises:
        ValueError: one of the two has no step in it.
    """
    books = list(books)
    before = [seconds for book in books for seconds in durations(book, *calm)]
    during = [seconds for book in books for seconds in durations(book, *around)]
    if not before or not during:
        raise ValueError(f"{len(before)} steps before and {len(during)} steps around it were seen")
    return Stall(statistics.median(before), max(during))


def patched(ledgers: Iterable[Iterable[str]], steps: int, micro_batches: int) -> int:
    """Micro-batches computed for committed steps beyond the `steps * micro_batches` that are needed."""
    entries = [json.loads(line) for lines in ledgers for line in lines]
    computed = sum(int(entry["computed"], 16).bit_count() for entry in entries if "commits" in entry)
    return computed - steps * micro_batches


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, quartiles and extremes."""
    ordered = sorted(values)
    first, _, third = statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else 3 * ordered
    found = {
        "median": statistics.median(ordered),
        "first": first,
        "third": third,
        "min": ordered[0],
        "max": ordered[-1],
    }
    return {name: round(value, 4) for name, value in found.items()}


def moment(events: Iterable[Mapping[str, Any]], reason: str, group: int, text: str = "") -> float:
    """When the first event of a kind about a group was told.

    Raises:
        LookupError: it was not.
    """
    for event in events:
        if event.get("reason") == reason and group in event["groups"] and text in event["text"]:
            return float(event["at"])
    raise LookupError(f"no event {reason} {text!r} of group {group}")


# --- runs ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Size:
    """A job."""

    groups: int
    steps: int
    step: float
    """Seconds of a healthy step."""
    micro_batches: int
    width: int
    layers: int


@dataclass(frozen=True)
class Run:
    """What a run left."""

    events: list[dict[str, Any]]
    summary: dict[str, Any]
    books: dict[int, list[list[tuple[int, float]]]]
    """By group: the commits of each of its processes."""
    folder: Path
    hit: float
    """Wall clock of what was done to it."""


def play(size: Size, number: signal.Signals, victim: int, at: int, chance: random.Random, folder: Path) -> Run:
    """Run a job; in step `at` a signal goes to a group: SIGKILL to agent and worker, SIGTERM to the agent."""
    script = SCRIPT.format(folder=folder, width=size.width, layers=size.layers, step=size.step, steps=size.steps)
    (folder / "train.py").write_text(script)
    trainer = {"name": "trainer", "command": [sys.executable, str(folder / "train.py")]}
    spec = {
        "groups": size.groups,
        "redundancy": 3,
        "microBatches": size.micro_batches,
        "template": {"spec": {"containers": [trainer]}},
    }
    job = {"apiVersion": "spare.training/v1alpha1", "kind": "SPAReJob", "metadata": {"name": "comings"}, "spec": spec}
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    command = [str(Path(sysconfig.get_path("scripts")) / "spare"), "run", str(folder / "job.yaml"), "--json"]
    command += ["--runs", str(folder / "runs"), *(["--no-replacements"] if number == signal.SIGTERM else [])]
    events: list[dict[str, Any]] = []
    hit = 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for text in process.stdout:
            events.append(json.loads(text))
            if not hit and events[-1].get("type") == "progress" and events[-1]["step"] >= at:
                time.sleep(chance.uniform(0, size.step))  # any moment of a step
                hit = _send(folder, victim, number)
    summary = events[-1]
    if summary.get("result") != "complete" or (summary["lost"], summary["repeated"]) != (0, 0):
        raise click.ClickException(f"the run did not survive: {summary}")
    books: dict[int, list[list[tuple[int, float]]]] = {}
    for path in sorted(folder.glob("steps-*")):
        commits = [(int(step), float(when)) for step, when in map(str.split, path.read_text().splitlines())]
        books.setdefault(int(path.name.split("-")[1]), []).append(commits)
    [run] = (folder / "runs").iterdir()
    return Run(events, summary, books, run, hit)


def _send(folder: Path, group: int, number: signal.Signals) -> float:
    """The signal to the group's agent, and to its worker where it is SIGKILL; returns when."""
    victims = processes_of(folder, group)
    began = time.time()
    os.kill(victims.agent, number)
    if number == signal.SIGKILL:
        os.kill(victims.worker, number)
    return began


def rejoin(size: Size, chance: random.Random, folder: Path) -> dict[str, float]:
    """One group killed, and back. Figures of one run."""
    victim = chance.randrange(size.groups)
    run = play(size, signal.SIGKILL, victim, 15, chance, folder)
    admitted = moment(run.events, "Reordered", victim, "at the next commit")
    back = moment(run.events, "GroupRejoined", victim)
    stay = [books[0] for group, books in run.books.items() if group != victim]
    lost = moment(run.events, "GroupLost", victim)
    found = stall(stay, (lost + 2 * size.step, admitted), (admitted, back + AFTER * size.step))
    log = (run.folder / f"group-{victim}.log").read_text()
    loaded = _LOADED.search(log)
    if loaded is None:
        raise click.ClickException(f"group {victim} does not say how it loaded the state:\n{log[-2000:]}")
    size_of, seconds = int(loaded[1]), float(loaded[2])
    return {
        "stall": found.ratio,
        "longest": found.longest,
        "transfer": seconds,
        "bytes": size_of,
        "back": back - run.hit,
    }


def drain(size: Size, chance: random.Random, folder: Path) -> dict[str, float]:
    """One group asked to go. Figures of one run."""
    victim = chance.randrange(size.groups)
    run = play(size, signal.SIGTERM, victim, 20, chance, folder)
    left = moment(run.events, "Drained", victim)
    stay = [books[0] for group, books in run.books.items() if group != victim]
    begun = min(when for book in stay for _, when in book)
    found = stall(stay, (begun + 2 * size.step, run.hit), (run.hit, left + AFTER * size.step))
    ledgers = [path.read_text().splitlines() for path in (run.folder / "ledger").iterdir()]
    more = patched(ledgers, size.steps, size.groups * size.micro_batches)
    counts = {"patched": more, "lost": run.summary["lost"], "repeated": run.summary["repeated"]}
    return {"stall": found.ratio, "longest": found.longest, "leave": left - run.hit, **counts}


CASES = {"rejoin": (rejoin, 240), "drain": (drain, 60)}
"""What is measured, and in how many steps."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--groups", multiple=True, default=(4, 8), show_default=True, type=click.IntRange(4, 64))
@click.option("--runs", default=10, show_default=True, type=click.IntRange(1), help="Of each case.")
@click.option("--case", "cases", multiple=True, default=tuple(CASES), show_default=True, type=click.Choice(list(CASES)))
@click.option("--step", "seconds", default=0.05, show_default=True, help="Seconds of a healthy step.")
@click.option("--micro-batches", default=4, show_default=True, type=click.IntRange(1))
@click.option("--width", default=256, show_default=True, help="Of the model's layers.")
@click.option("--layers", default=8, show_default=True, help="8 layers of 256: 0.5 M parameters.")
@click.option("--seed", default=0, show_default=True)
def main(
    groups: tuple[int, ...],
    runs: int,
    cases: tuple[str, ...],
    seconds: float,
    micro_batches: int,
    width: int,
    layers: int,
    seed: int,
) -> None:
    """Measure what coming back and leaving cost the others."""
    chance = random.Random(seed)
    told: dict[str, Any] = {"runs": runs, "step": seconds, "parameters": width * (width + 1) * layers}
    for count in groups:
        for case in cases:
            measure, steps = CASES[case]
            size = Size(count, steps, seconds, micro_batches, width, layers)
            found = []
            for run in range(runs):
                with tempfile.TemporaryDirectory() as folder:
                    found.append(measure(size, chance, Path(folder)))
                click.echo(f"{case}, {count} groups: {run + 1} of {runs}", err=True)
            told[f"{case} {count}"] = report(case, count, found)
    click.echo(json.dumps(told))


def report(case: str, groups: int, found: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Print a table of all runs of one case; returns its figures."""
    click.echo(f"{case}, {groups} groups, {len(found)} runs")
    click.echo(f"  {'':10} {'median':>10} {'quartiles':>21} {'min':>10} {'max':>10}")
    figures = {name: spread([each[name] for each in found]) for name in found[0]}
    for name, value in figures.items():
        quartiles = f"{value['first']:.4g} to {value['third']:.4g}"
        click.echo(f"  {name:10} {value['median']:10.4g} {quartiles:>21} {value['min']:10.4g} {value['max']:10.4g}")
    return figures


if __name__ == "__main__":
    main()
