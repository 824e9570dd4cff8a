"""`spare plan`: how much redundancy a job should have, what to expect of it, and who computes what after a loss."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table

from spare.api.job import SPAReJob
from spare.api.spec import MAX_MICRO_BATCHES
from spare.cli.curve import plot as text_plot
from spare.cli.job_file import read_job
from spare.cli.losses import explain_losses
from spare.cli.mistake import Mistake
from spare.cli.quantity import MOST_GROUPS, Duration, Groups, Size
from spare.cli.results import OutFile, json_text, written
from spare.planner import Placement, place, recommended_redundancy
from spare.sim.sizing import NEVER, Choice, Job, choices, recommended

_UNITS = {"PB": 1e15, "TB": 1e12, "GB": 1e9, "MB": 1e6, "KB": 1e3}

TIME = Duration()
LONG = Duration(above_zero=True)

FROM_THE_FILE: Final = {"groups": "spec.groups", "gpus_per_group": "spec.podsPerGroup times spec.procPerPod",
                        "micro_batches": "spec.microBatches"}  # fmt: skip
"""What a job file says itself, so that an option beside it would contradict it."""

EXPLAINED: Final = frozenset({"job_file", "explain", "lost", "redundancy", "output"})
"""What --explain heeds."""


@click.command(context_settings={"show_default": True})
@click.argument("job_file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--groups", type=click.IntRange(1, MOST_GROUPS), help="N, data-parallel groups. A job file says it itself."
)
@click.option("--gpus-per-group", type=click.IntRange(1, 1_000_000), default=8, help="M; a job file: pods x processes.")
@click.option("--step-time", "compute", type=LONG, default="60s", help="A healthy step without all-reduce.")
@click.option("--reduce-time", "reduction", type=TIME, default="0s", help="The all-reduce of a step.")
@click.option("--work", type=LONG, default="30d", help="Training to be done, as time without failures.")
@click.option("--mtbf-gpu", type=LONG, help="Mean time between failures of one GPU, such as 2000d.")
@click.option("--mtbf-node", type=LONG, help="The same of a node.")
@click.option("--gpus-per-node", type=click.IntRange(1, 1024), default=8, help="For --mtbf-node.")
@click.option("--mtbf", type=LONG, help="The same of the whole job.")
@click.option("--save-time", "save", type=TIME, default="60s", help="Everybody waits for a checkpoint.")
@click.option("--restart-time", "restart", type=TIME, default="10m", help="Of the whole job.")
@click.option("--replacement", type=TIME, help="From a loss to the new group's start. Default: never.")
@click.option("--join-time", "join", type=TIME, default="5s", help="Everybody waits for a group that joins.")
@click.option(
    "--micro-batches",
    type=click.IntRange(1, MAX_MICRO_BATCHES),
    default=8,
    help="Per shard. A job file says it itself.",
)
@click.option("--shard-size", "shard_bytes", type=Size(), default="0B", help="Data of one shard.")
@click.option("--gradient-size", "gradient_bytes", type=Size(), default="0B", help="Gradients of one group.")
@click.option("--redundancy", type=click.IntRange(1), help="Show this r in place of the recommended one.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
@click.option("--plot", type=OutFile(".png", dash=True),
              help="Expected time against r, into a PNG (needs matplotlib), or `-` as text.")  # fmt: skip
@click.option("--explain", is_flag=True, help="Say what each group of JOB_FILE computes once --lost are gone, and why.")
@click.option("--lost", type=Groups(), metavar="G,G", help="Groups, for --explain.")
@click.pass_context
def plan(
    context: click.Context, /, job_file: Path | None, explain: bool, lost: tuple[int, ...] | None, output: str,
    plot: Path | None, redundancy: int | None, **numbers: Any,
) -> None:  # fmt: skip
    """Size a job from its numbers, or from JOB_FILE and what that does not say.

    Durations are written like 1h30m or 90d. By formulas, not by simulation (`spare simulate run` does that). Exactly
    one of --mtbf-gpu, --mtbf-node and --mtbf is needed. With --explain, no sizes: who computes what after a loss.
    """
    given = {name for name in context.params if context.get_parameter_source(name) is not ParameterSource.DEFAULT}
    spelled = {parameter.name: parameter.opts[-1] for parameter in context.command.params}
    document = read_job(job_file) if job_file else None
    if explain or lost:
        if document is None or not (explain and lost):
            raise click.UsageError("--explain needs a JOB_FILE and --lost, such as --explain job.yaml --lost 3,7")
        _refuse((spelled[name] for name in sorted(given - EXPLAINED)), "has no effect beside --explain")
        click.echo(explain_losses(document, lost, redundancy, as_json=output == "json"))
        return
    if document is not None:
        for name in sorted(given & FROM_THE_FILE.keys()):
            raise click.UsageError(f"{spelled[name]} and a JOB_FILE: the file says {FROM_THE_FILE[name]} itself")
    if "mtbf_node" not in given:
        _refuse({"--gpus-per-node"} if "gpus_per_node" in given else (), "has no effect without --mtbf-node")
    if output == "json":
        _refuse({"--plot -"} if str(plot) == "-" else (), "would not be JSON")
    job = job_of(document, numbers)
    for note in _notes(document, job, numbers["gpus_per_node"] if "mtbf_node" in given else 0):
        click.echo(note, err=True)
    wanted = redundancy or _fixed(document)
    if wanted and wanted > job.groups:
        raise click.UsageError(f"redundancy is {wanted}; allowed is 1 to groups, {job.groups}")
    found = choices(job, wanted)
    chosen = _chosen(found, wanted)
    placement = place(job.groups, chosen.redundancy, document.spec.placement.strategy.value if document else "Golomb")
    if output == "json":
        best = recommended(found)
        result = {"job": asdict(job), "recommended": asdict(best) if math.isfinite(best.ratio) else None,
                  "shown": asdict(chosen), "placement": placement.strategy, "offsets": placement.offsets,
                  "choices": [asdict(c) for c in found]}  # fmt: skip
        click.echo(json_text(result, 2))
    else:
        _show(job, found, chosen, placement)
    if plot:
        _plot(found, plot)


def _refuse(options: Iterable[str], why: str) -> None:
    for option in options:
        raise click.UsageError(f"{option} {why}")


def job_of(document: SPAReJob | None, numbers: dict[str, Any]) -> Job:
    """The job, from a file and options. Raises UsageError or Mistake for what is missing, doubled or out of range."""
    given = dict(numbers)
    if document is not None:
        spec = document.spec
        period = spec.checkpoint.period.total_seconds() if isinstance(spec.checkpoint.period, timedelta) else None
        if period is not None and not period > given["save"]:
            raise Mistake(f"spec.checkpoint.period is {period:g} s; allowed is more than --save-time,"
                                   f" {given['save']:g} s")  # fmt: skip
        given |= {"groups": spec.groups, "gpus_per_group": spec.pods_per_group * spec.proc_per_pod,
                  "micro_batches": spec.parts, "period": period}  # fmt: skip
    if given["groups"] is None:
        raise click.UsageError("--groups or a JOB_FILE is needed")
    gpus = given["groups"] * given["gpus_per_group"]
    rates = {"--mtbf-gpu": (given.pop("mtbf_gpu"), gpus), "--mtbf": (given.pop("mtbf"), 1),
             "--mtbf-node": (given.pop("mtbf_node"), max(1.0, gpus / given.pop("gpus_per_node")))}  # fmt: skip
    said = {name: mean / parts for name, (mean, parts) in rates.items() if mean is not None}
    if len(said) != 1:
        raise click.UsageError(f"exactly one of {', '.join(rates)} is needed; {len(said)} are given")
    return Job(**given, between_failures=next(iter(said.values())))


def _notes(document: SPAReJob | None, job: Job, gpus_per_node: int) -> Iterable[str]:
    """What the numbers do not say; a node of 0 GPUs is one that was not asked for."""
    shared = min(gpus_per_node // job.gpus_per_group, job.groups)
    if shared > 1:
        yield (f"A node holds {shared} groups, which go with it; these formulas take one group for each failure."
               f" `spare simulate run --domain node {shared} 1` takes them all.")  # fmt: skip
    if document is not None and document.spec.redundancy == "auto":
        number = recommended_redundancy(job.groups, job.micro_batches)
        yield (f"spec.redundancy: auto means {number} when the job runs, without these numbers; to have the recommended"
               " one, write it into the file.")  # fmt: skip


def _fixed(document: SPAReJob | None) -> int | None:
    redundancy = document.spec.redundancy if document else None
    return redundancy if isinstance(redundancy, int) else None


def _chosen(found: list[Choice], redundancy: int | None) -> Choice:
    """Ours with that many hosts of each shard; with one, checkpoints are all there is."""
    ours = (choice for choice in found if choice.strategy in ("micro-batches", "checkpoint only"))
    return recommended(found) if redundancy is None else next(c for c in ours if c.redundancy == redundancy)


def _show(job: Job, found: Sequence[Choice], chosen: Choice, placement: Placement) -> None:
    console = Console(width=110)
    best = recommended(list(found))
    finishes = math.isfinite(chosen.ratio)
    facts = {
        "recommended redundancy": f"{best.redundancy}" if math.isfinite(best.ratio) else "none: see expected time",
        "shown": f"redundancy {chosen.redundancy}",
        "placement": f"{placement.strategy}, offsets {', '.join(map(str, placement.offsets))}",
        "a failure every": duration(job.between_failures),
        "failures masked before a wipe-out": count(chosen.masked),
        "a wipe-out every": duration(chosen.wipe_out),
        "checkpoint every": duration(chosen.period),
        "expected depth": f"{chosen.depth:.3f} shards a step",
        "expected time": f"{duration(chosen.time)}, {chosen.ratio:.3f} of {duration(job.work)} without failures"
        if finishes
        else "never done: failures come too fast for these durations",
        "expected cost": f"{number(chosen.gpu_hours)} GPU hours",
        "data per group": size(chosen.shard_bytes),
        "gradient buffers per group": size(chosen.gradient_bytes),
    }
    table = Table(show_header=False, box=None)
    for name, text in facts.items():
        table.add_row(name, text)
    console.print(table)
    if placement.strategy != "Golomb":
        console.print("Depth and time below are for the Golomb placement; Consecutive stacks are deeper.")
    compared = Table("strategy", "r", "depth", "masked", "checkpoint every", "time / T0", "time", "GPU hours", "data")
    for choice in found:
        style = "bold" if choice == best else None
        compared.add_row(choice.strategy, str(choice.redundancy), f"{choice.depth:.3f}", count(choice.masked),
                         duration(choice.period), _ratio(choice.ratio), duration(choice.time),
                         number(choice.gpu_hours), size(choice.shard_bytes), style=style)  # fmt: skip
    console.print(compared)


def _plot(found: Sequence[Choice], path: Path) -> None:
    ours = [choice for choice in found if choice.strategy == "micro-batches"]
    points = [(choice.redundancy, choice.ratio) for choice in ours if math.isfinite(choice.ratio)]
    rest = {choice.strategy: choice for choice in found if choice.strategy != "micro-batches"}
    if str(path) == "-":
        click.echo("\nexpected time / T0 against r")
        click.echo(text_plot({"micro-batches": points}))
        return
    if not points:
        raise Mistake("--plot: nothing to draw, for no redundancy of micro-batches gets the job done")
    try:
        from spare.sim import picture
    except ImportError as error:
        raise click.ClickException(
            f"a picture needs matplotlib (pip install 'spare-training[simulator]'): {error}"
        ) from error
    with written(path):
        picture.sizes(points, {name: (c.redundancy, c.ratio) for name, c in rest.items()}, path)


def _ratio(value: float) -> str:
    return f"{value:.3f}" if value < 10 else number(value)


def duration(seconds: float) -> str:
    """Three digits that matter, in the unit that fits."""
    if seconds > NEVER:
        return "never"
    for unit, length in (("years", 365 * 86400.0), ("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{number(seconds / length)} {unit}"
    return f"{number(seconds)} s"


def number(value: float) -> str:
    """Three digits that matter; a dash for what has no end."""
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if 1000 <= value < 1e9 else f"{value:.3g}"


def count(value: float) -> str:
    """Failures; a dash for more than will ever come."""
    return number(value) if value <= 1e9 else "-"


def size(octets: float) -> str:
    """Bytes in the unit that fits; a dash for nothing known."""
    for unit in ("PB", "TB", "GB", "MB", "KB"):
        if octets >= _UNITS[unit]:
            return f"{octets / _UNITS[unit]:.4g} {unit}"
    return f"{octets:.0f} B" if octets else "-"
