"""The same model, data and machine under plain DDP, torchrun elastic, torchft and ours: `make bench-peers`.

4 groups of one process. In each run one process is killed with SIGKILL, in the middle of a step or between two steps,
by itself, so that the moment is the same for all; the run ends some steps after the process that replaces it has
committed. The systems take turns, so that what else the machine does hits all alike. What became of each micro-batch is
read from the reduced gradients themselves (workload.py). Writes a table, JSON, a picture, and docs/benchmarks.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import click
from audit import Event, audit, read
from report import write
from systems import PLAIN, SETTINGS, STARTS, Running

POINTS = ("mid", "between")
KILL_AT, AFTER = 25, 10
"""Step of the kill; steps that are waited for after the lost group is back."""
VICTIM = 2
START_DEADLINE, DEADLINE = 120.0, 120.0


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--peers", required=True, type=click.Path(exists=True, path_type=Path), help="The Python with torchft.")
@click.option("--repeats", default=7, show_default=True, type=click.IntRange(1))
@click.option("--system", "systems", multiple=True, type=click.Choice(tuple(STARTS)), help="Default: all.")
@click.option("--point", "points", multiple=True, default=POINTS, show_default=True, type=click.Choice(POINTS))
@click.option("--docs", type=click.Path(file_okay=False, path_type=Path), help="Write the page, JSON and picture here.")
def main(peers: Path, repeats: int, systems: tuple[str, ...], points: tuple[str, ...], docs: Path | None) -> None:
    """Measure them all."""
    began, rows = time.monotonic(), []
    for number in range(repeats):
        for point in points:
            for system in systems or tuple(STARTS):
                rows.append({"system": system, "point": point, "run": number, **one(system, point, peers)})
                click.echo(json.dumps(rows[-1]), err=True)
    found = {
        "benchmark": "peers",
        "versions": versions(peers),
        "seconds": round(time.monotonic() - began),
        "rows": rows,
    }
    write(found, SETTINGS, docs)
    click.echo(json.dumps(found))


def one(system: str, point: str, peers: Path) -> dict[str, object]:
    """One run. A system that does not recover in time has None where the others have times."""
    kill = "" if system == PLAIN else f"{VICTIM}:{KILL_AT}:{point}"
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        with Running(system, Path(folder), peers, kill) as run:
            try:
                wait(run, START_DEADLINE, lambda found: steps(found) >= KILL_AT - 1)
                if kill:
                    wait(run, DEADLINE, back_for_long)
                else:
                    wait(run, DEADLINE, lambda found: steps(found) >= KILL_AT + AFTER)
                error = None
            except TimeoutError as late:
                error = f"{late}: {run.told()[-2000:]}"
            found = journals(run)
        result = asdict(audit(found)) if steps(found) > 10 else {}
    return result | ({"error": error} if error else {})


def journals(run: Running) -> dict[str, list[Event]]:
    """As far as they go now."""
    return {p.stem: read(p.read_text().splitlines()) for p in run.journals.glob("*.jsonl")}


def steps(found: dict[str, list[Event]]) -> int:
    """The newest step that anybody committed."""
    return max((e["step"] for own in found.values() for e in own if e["event"] == "committed"), default=-1)


def back_for_long(found: dict[str, list[Event]]) -> bool:
    """Whether the lost group's next process has committed some steps, beyond the one that was in flight."""
    own = [events for events in found.values() if events and events[0]["group"] == VICTIM]
    newest = max(own, key=lambda events: events[0]["at"])
    commits = [e for e in newest if e["event"] == "committed" and e["step"] > KILL_AT]
    return len(own) > 1 and len(commits) >= AFTER


def wait(run: Running, deadline: float, ready: object) -> None:
    """Look at the journals until they are as wanted."""
    until = time.monotonic() + deadline
    while not ready(journals(run)):  # type: ignore[operator]
        if time.monotonic() > until:
            raise TimeoutError(f"{run.system} was not there after {deadline:.0f} s")
        time.sleep(0.25)


def versions(peers: Path) -> dict[str, str]:
    """Of what was measured, and the machine."""
    look = "import torch, importlib.metadata as m; print(torch.__version__, m.version('torchft'))"
    theirs = subprocess.run([str(peers), "-c", look], capture_output=True, text=True, check=True).stdout.split()
    ours = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True
    )
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    load = Path("/proc/loadavg").read_text().split()[0]
    return {
        "torch (peers)": theirs[0],
        "torchft": theirs[1],
        "torch (ours)": ours.stdout.strip(),
        "python": sys.version.split()[0],
        "machine": f"{len(model)} x {model[0].partition(':')[2].strip()}",
        "load at the end": load,
        "date": time.strftime("%Y-%m-%d"),
    }


if __name__ == "__main__":
    main()
