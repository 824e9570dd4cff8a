"""`spare plan`: how much redundancy a job should have, what to expect of it, and who computes what after a loss."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from spare.api.duration import parse_duration
from spare.api.job import SPAReJob
from spare.cli.curve import plot as text_plot
from spare.cli.job_file import read_job
from spare.cli.losses import explain_losses
from spare.planner import Placement, place
from spare.sim.sizing import Choice, Job, choices, recommended

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30,
          "TIB": 2**40}  # fmt: skip


def seconds_of(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """A duration such as 1h30m, also in days (`90d`), in seconds."""
    if text is None:
        return None
    try:
        if text.endswith("d"):
            return float(text[:-1]) * 86400
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}; days are written like 90d") from error


def bytes_of(context: click.Context, option: click.Parameter, text: str) -> float:
    """A size such as 20GB or 16GiB, in bytes."""
    number = text.rstrip("BKMGTIbkmgti")
    unit = text[len(number) :].upper() or "B"
    try:
        return float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        raise click.BadParameter(f"{text!r} is not a size such as 20GB or 16GiB") from None


def groups_of(context: click.Context, option: click.Parameter, text: str | None) -> tuple[int, ...]:
    """`3,7` as numbers."""
    try:
        return tuple(sorted({int(part) for part in text.split(",")})) if text else ()
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of groups such as 3,7") from None


@click.command(context_settings={"show_default": True})
@click.argument("job_file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--groups", type=click.IntRange(1), help="N, data-parallel groups. A job file says it itself.")
@click.option("--gpus-per-group", type=click.IntRange(1), default=8, help="M; a job file: pods x processes.")
@click.option("--step-time", "compute", callback=seconds_of, default="60s", help="A healthy step without all-reduce.")
@click.option("--reduce-time", "reduction", callback=seconds_of, default="0s", help="The all-reduce of a step.")
@click.option("--work", callback=seconds_of, default="30d", help="Training to be done, as time without failures.")
@click.option("--mtbf-gpu", callback=seconds_of, help="Mean time between failures of one GPU, such as 2000d.")
@click.option("--mtbf-node", callback=seconds_of, help="The same of a node.")
@click.option("--gpus-per-node", type=click.IntRange(1), default=8, help="For --mtbf-node.")
@click.option("--mtbf", callback=seconds_of, help="The same of the whole job.")
@click.option("--save-time", "save", callback=seconds_of, default="60s", help="Everybody waits for a checkpoint.")
@click.option("--restart-time", "restart", callback=seconds_of, default="10m", help="Of the whole job.")
@click.option("--replacement", callback=seconds_of, help="From a loss to the new group's start. Default: never.")
@click.option("--join-time", "join", callback=seconds_of, default="5s", help="Everybody waits for a group that joins.")
@click.option("--micro-batches", type=click.IntRange(1), default=8, help="Per shard. A job file says it itself.")
@click.option("--shard-size", "shard_bytes", callback=bytes_of, default="0B", help="Data of one shard.")
@click.option("--gradient-size", "gradient_bytes", callback=bytes_of, default="0B", help="Gradients of one group.")
@click.option("--redundancy", type=click.IntRange(1), help="Show this r in place of the recommended one.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
@click.option("--plot", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
              help="Expected time against r, into a PNG (needs matplotlib), or `-` as text.")  # fmt: skip
@click.option("--explain", is_flag=True, help="Say what each group of JOB_FILE computes once --lost are gone, and why.")
@click.option("--lost", callback=groups_of, metavar="G,G", help="Groups, for --explain.")
def plan(
    job_file: Path | None, explain: bool, lost: tuple[int, ...], output: str, plot: Path | None,
    redundancy: int | None, **numbers: Any,
) -> None:  # fmt: skip
    """Size a job from its numbers, or from JOB_FILE and what that does not say.

    By formulas, not by simulation (`spare simulate run` does that). With --explain, no sizes: who computes what after
    a loss.
    """
    job_document = read_job(job_file) if job_file else None
    if explain or lost:
        if job_document is None or not (explain and lost):
            raise click.UsageError("--explain needs a JOB_FILE and --lost, such as --explain job.yaml --lost 3,7")
        click.echo(explain_losses(job_document, lost, redundancy, as_json=output == "json"))
        return
    job = job_of(job_document, numbers)
    found = choices(job)
    chosen = _chosen(found, redundancy or _fixed(job_document))
    placement = place(job.groups, chosen.redundancy)
    if output == "json":
        document = {"job": asdict(job), "recommended": asdict(recommended(found)), "shown": asdict(chosen),
                    "offsets": placement.offsets, "choices": [asdict(c) for c in found]}  # fmt: skip
        click.echo(json.dumps(_without_infinity(document), indent=2))
    else:
        _show(job, found, chosen, placement)
    if plot:
        _plot(found, plot)


def job_of(document: SPAReJob | None, numbers: dict[str, Any]) -> Job:
    """The job, from a file and options. Raises click.UsageError for what is missing, doubled or out of range."""
    given = dict(numbers)
    if document is not None:
        spec = document.spec
        if given["groups"] is not None:
            raise click.UsageError("--groups and a JOB_FILE: the file says spec.groups itself")
        period = spec.checkpoint.period
        given |= {"groups": spec.groups, "gpus_per_group": spec.pods_per_group * spec.proc_per_pod,
                  "micro_batches": spec.micro_batches,
                  "period": period.total_seconds() if isinstance(period, timedelta) else None}  # fmt: skip
    if given["groups"] is None:
        raise click.UsageError("--groups or a JOB_FILE is needed")
    gpus = given["groups"] * given["gpus_per_group"]
    rates = {"--mtbf-gpu": (given.pop("mtbf_gpu"), gpus), "--mtbf": (given.pop("mtbf"), 1),
             "--mtbf-node": (given.pop("mtbf_node"), max(1.0, gpus / given.pop("gpus_per_node")))}  # fmt: skip
    said = {name: mean / parts for name, (mean, parts) in rates.items() if mean is not None}
    if len(said) != 1:
        raise click.UsageError(f"exactly one of {', '.join(rates)} is needed; {len(said)} are given")
    try:
        return Job(**given, between_failures=next(iter(said.values())))
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _fixed(document: SPAReJob | None) -> int | None:
    redundancy = document.spec.redundancy if document else None
    return redundancy if isinstance(redundancy, int) else None


def _chosen(found: list[Choice], redundancy: int | None) -> Choice:
    if redundancy is None:
        return recommended(found)
    for choice in found:
        if choice.redundancy == redundancy and choice.strategy in ("micro-batches", "checkpoint only"):
            return choice
    tried = [choice.redundancy for choice in found if choice.strategy in ("micro-batches", "checkpoint only")]
    raise click.UsageError(f"redundancy {redundancy} is none of those worth a try, {tried[0]} to {tried[-1]}")


def _show(job: Job, found: Sequence[Choice], chosen: Choice, placement: Placement) -> None:
    console = Console(width=110)
    best = recommended(list(found))
    facts = {
        "recommended redundancy": f"{best.redundancy}",
        "shown": f"redundancy {chosen.redundancy}",
        "placement": f"Golomb, offsets {', '.join(map(str, placement.offsets))}",
        "a failure every": duration(job.between_failures),
        "failures masked before a wipe-out": number(chosen.masked),
        "a wipe-out every": duration(chosen.wipe_out),
        "checkpoint every": duration(chosen.period),
        "expected depth": f"{chosen.depth:.3f} shards a step",
        "expected time": f"{duration(chosen.time)}, {chosen.ratio:.3f} of {duration(job.work)} without failures",
        "expected cost": f"{number(chosen.gpu_hours)} GPU hours",
        "data per group": size(chosen.shard_bytes),
        "gradient buffers per group": size(chosen.gradient_bytes),
    }
    table = Table(show_header=False, box=None)
    for name, text in facts.items():
        table.add_row(name, text)
    console.print(table)
    compared = Table("strategy", "r", "depth", "masked", "checkpoint every", "time / T0", "time", "GPU hours", "data")
    for choice in found:
        style = "bold" if choice == best else None
        compared.add_row(choice.strategy, str(choice.redundancy), f"{choice.depth:.3f}", number(choice.masked),
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
    try:
        from spare.sim import picture
    except ImportError as error:
        raise click.UsageError(
            f"a picture needs matplotlib (pip install 'spare-training[simulator]'): {error}"
        ) from error
    picture.sizes(points, {name: (c.redundancy, c.ratio) for name, c in rest.items()}, path)


def _ratio(value: float) -> str:
    return f"{value:.3f}" if value < 10 else number(value)


def duration(seconds: float) -> str:
    """Two digits that matter, in the unit that fits."""
    for unit, length in (("years", 365 * 86400.0), ("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{number(seconds / length)} {unit}"
    return f"{number(seconds)} s"


def number(value: float) -> str:
    """Three digits that matter; a word for what is beyond counting."""
    if value > 1e9:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def size(count: float) -> str:
    """Bytes in the unit that fits; a dash for nothing known."""
    for unit in ("TB", "GB", "MB", "KB"):
        if count >= _UNITS[unit]:
            return f"{count / _UNITS[unit]:.3g} {unit}"
    return f"{count:.0f} B" if count else "-"


def _without_infinity(value: Any) -> Any:
    """JSON has no infinity: null."""
    if isinstance(value, dict):
        return {key: _without_infinity(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinity(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
