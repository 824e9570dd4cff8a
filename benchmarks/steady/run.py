"""What a step costs while nothing fails, against plain DDP: `make bench-steady`.

For each model size and number of micro-batches a job of 4 groups trains the same model under DistributedDataParallel
(gloo) and under a session, in blocks of steps that alternate within the same processes. The ratio of a pair is that of
the neighbouring blocks' median step times. Reported are the median over the pairs, the bounds between which the true
one lies with 95 % confidence, and the same ratio of processor time, which a busy machine disturbs less. The last line
is one JSON object.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import click
import table
import yaml

GRID = {"0.1M": (1, 2, 8), "1M": (1, 2, 8), "10M": (1, 2, 8)}
SECONDS = {"0.1M": (0.01, 0.007), "1M": (0.015, 0.025), "10M": (0.04, 0.23)}
"""About what a step takes beside its micro-batches, and what one of them does, for choosing the number of steps."""
FEWEST = 3
"""Steps of a block."""
ACCOUNTS = (("0.1M", 1), ("0.1M", 8), ("1M", 1), ("10M", 1))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--size", "sizes", multiple=True, type=click.Choice(tuple(GRID)), help="Default: all.")
@click.option("--micro-batches", "micros", multiple=True, type=int, help="Default: 1, 2 and 8.")
@click.option("--reduction", "reductions", multiple=True, default=("float",), show_default=True)
@click.option("--pairs", default=10, show_default=True, type=click.IntRange(2))
@click.option("--seconds", default=0.8, show_default=True, help="About how long a block is.")
@click.option("--groups", default=4, show_default=True, type=click.IntRange(2))
@click.option("--account/--no-account", default=True, show_default=True, help="Show where the time of some steps goes.")
def main(
    sizes: tuple[str, ...],
    micros: tuple[int, ...],
    reductions: tuple[str, ...],
    pairs: int,
    seconds: float,
    groups: int,
    account: bool,
) -> None:
    """Measure steps without failures."""
    rows, accounts = [], []
    chosen = [(size, m) for size in sizes or tuple(GRID) for m in micros or GRID[size]]
    click.echo(f"{groups} groups; plain: DistributedDataParallel over gloo; medians of {pairs} pairs of blocks")
    click.echo(table.HEADS)
    for size, m in chosen:
        for reduction in reductions:
            rows.append(measure(size, m, reduction, pairs, seconds, groups))
            click.echo(table.line(rows[-1]))
    for size, m in (each for each in ACCOUNTS if account and each in chosen):
        accounts.append(measure(size, m, reductions[0], max(2, pairs // 5), seconds, groups, account=True))
        click.echo(table.account(accounts[-1]))
    found = {"benchmark": "steady", "groups": groups, "goal": table.GOAL, "rows": rows, "accounts": accounts}
    click.echo(json.dumps(found))


def measure(
    size: str, m: int, reduction: str, pairs: int, seconds: float, groups: int, account: bool = False
) -> dict[str, Any]:
    """One job."""
    beside, each = SECONDS[size]
    steps = max(FEWEST, round(seconds / (beside + each * m)))
    with tempfile.TemporaryDirectory() as folder:
        env = {"SIZE": size, "BLOCKS": pairs, "STEPS": steps, "REDUCTION": reduction, "OUT": folder}
        env["ACCOUNT"] = int(account)
        found = run_job(Path(folder), groups, m, {k: str(v) for k, v in env.items()})
    plain, ours = ([statistics.median(block["steps"]) for block in found[name]] for name in ("plain", "ours"))
    ratios = [b / a for a, b in zip(plain, ours, strict=True)]
    low, high = table.bounds(ratios)
    processor = [b["processor"] / a["processor"] for a, b in zip(found["plain"], found["ours"], strict=True)]
    return {
        "size": size,
        "parameters": found["parameters"],
        "micro_batches": m,
        "reduction": reduction,
        "plain_ms": round(1000 * statistics.median(plain), 3),
        "ours_ms": round(1000 * statistics.median(ours), 3),
        "ratio": round(statistics.median(ratios), 4),
        "bounds": [round(low, 4), round(high, 4)],
        "processor_ratio": round(statistics.median(processor), 4),
        "pairs": pairs,
        "steps": steps,
        "accounts": found["accounts"],
    }


def run_job(folder: Path, groups: int, micro_batches: int, env: dict[str, str]) -> dict[str, Any]:
    """What the job's group 0 wrote."""
    trainer = {
        "name": "trainer",
        "command": [sys.executable, str(Path(__file__).with_name("worker.py"))],
        "env": [{"name": k, "value": v} for k, v in env.items()],
    }
    spec = {
        "groups": groups,
        "redundancy": min(3, groups),
        "microBatches": micro_batches,
        "detection": {"deadAfter": "60s", "hangAfter": "600s"},
        "template": {"spec": {"containers": [trainer]}},
    }
    job = {"apiVersion": "spare.training/v1alpha1", "kind": "SPAReJob", "metadata": {"name": "steady"}, "spec": spec}
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    spare = Path(sysconfig.get_path("scripts")) / "spare"
    command = [str(spare), "run", str(folder / "job.yaml"), "--json", "--runs", str(folder / "runs")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        logs = "\n".join(p.read_text()[-2000:] for p in folder.glob("runs/**/*.log"))
        raise click.ClickException(f"the job failed: {done.stdout[-2000:]}{done.stderr[-2000:]}{logs}")
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return found


if __name__ == "__main__":
    main()
