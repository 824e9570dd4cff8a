"""`spare status` and `spare events`: how a job on a cluster is, for people and for programs."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import click
import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spare.cli.access import Access, on_a_cluster
from spare.cli.cluster import Place, on
from spare.cli.live import BAR, COLOURS
from spare.cli.report import EventReport, GroupReport, JobReport, event_report, report

EVENTS = 8
"""So many of the newest are shown with the status."""
LOOK = 2.0
"""Seconds between two looks for new events."""
UNBOUNDED = 1000
INDENT = 4
"""Of JSON, as kubectl has it."""
NARROW = 100
"""Below so many columns there are no bars, so that names keep their room."""
STATES = {"Running": "green", "Complete": "green", "Degraded": "yellow", "Failed": "red"}


@click.command()
@click.argument("job")
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", help="Form of the answer.")
@on_a_cluster
def status(job: str, output: str, access: Access) -> None:
    """Show how JOB is: its state, its groups with what they host, steps, losses, checkpoint, the newest events."""

    async def work(place: Place) -> int:
        found = await look(place)
        if output == "text":
            show(found, _console(), datetime.now(UTC))
        else:
            plain = found.plain()
            click.echo(
                json.dumps(plain, indent=INDENT) if output == "json" else yaml.safe_dump(_lists(plain), sort_keys=False)
            )
        return 0

    sys.exit(on(access, job, work))


@click.command()
@click.argument("job")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="json: a list; with --watch one object a line.",
)
@click.option("-w", "--watch", is_flag=True, help="Go on until the job has ended.")
@on_a_cluster
def events(job: str, output: str, watch: bool, access: Access) -> None:
    """Show what happened to JOB, oldest first. The API server keeps events for an hour."""

    async def work(place: Place) -> int:
        told: set[str] = set()
        while True:
            body = await place.read()
            new = [each for each in await place.events(body["metadata"]["uid"]) if each["metadata"]["uid"] not in told]
            told |= {each["metadata"]["uid"] for each in new}
            _tell([event_report(each) for each in new], output, whole=not watch)
            if not watch or report(body, None, (), ()).state in ("Complete", "Failed"):
                return 0
            await asyncio.sleep(LOOK)

    sys.exit(on(access, job, work))


async def look(place: Place) -> JobReport:
    """Read all that is to be shown of a job."""
    job = await place.read()
    uid = job["metadata"]["uid"]
    return report(job, await place.plan(uid), await place.pods(uid), await place.events(uid))


def _console() -> Console:
    """What is piped or kept in a file has no edge: nothing is cut or wrapped there."""
    console = Console()
    return console if console.is_terminal else Console(width=UNBOUNDED)


def show(job: JobReport, console: Console, now: datetime) -> None:
    """Print a job for people. `now` is UTC."""
    head = Text(f"{job.name}  ", style="bold")
    head.append(job.state, style=STATES.get(job.state, "yellow"))
    head.append(f"  {job.reason}: {job.message}" if job.reason else f"  {job.message}", style="not bold")
    depth = "-" if job.depth is None else f"{job.depth:.3g}"
    hosts = "-" if job.hosts_left is None else str(job.hosts_left)
    counts = f"step {job.step}  epoch {job.epoch}  depth {depth}  hosts left {hosts}"
    console.print(head, soft_wrap=True)
    line = f"{counts}  masked {job.masked}  drained {job.drained}  restarts {job.restarts}"
    console.print(line, highlight=False)
    if job.checkpoint is not None:
        age = f" ({_age(job.checkpoint_time, now)} ago)" if job.checkpoint_time else ""
        console.print(f"checkpoint {job.checkpoint}{age}", highlight=False, soft_wrap=True)
    limits = "  ".join(f"{name} {value}" for name, value in job.effective["detection"].items())
    console.print(f"redundancy {job.effective['redundancy']}  {limits}", style="dim", highlight=False, soft_wrap=True)
    console.print(_groups(job.groups, bar=0 if console.width < NARROW else BAR))
    if job.spares:
        console.print(f"spares: {' '.join(job.spares)}", highlight=False, soft_wrap=True)
    for event in job.events[-EVENTS:]:
        style = "yellow" if event.warning else "dim"
        line = f"{_age(event.time, now):>4} {event.reason:<14} {event.message}"
        console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)


def _groups(groups: tuple[GroupReport, ...], bar: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("group", "state", "stack", "load", "pods", "nodes", ""):
        table.add_column(heading, justify="right" if heading == "group" else "left", no_wrap=heading != "")
    most = max((each.load for each in groups), default=0)
    for each in groups:
        load = f"{'█' * round(bar * each.load / most):<{bar}} {each.load}".strip() if most else ""
        remark = Text(each.remark, style="red" if each.state == "lost" else "yellow")
        state = Text(each.state, style=COLOURS.get(each.state, ""))
        stack, pods, nodes = " ".join(map(str, each.stack)), "\n".join(each.pods), "\n".join(each.nodes)
        table.add_row(str(each.group), state, stack, load, pods, nodes, remark)
    return table


def _tell(events: Sequence[EventReport], output: str, *, whole: bool) -> None:
    """`whole`: there will be no more."""
    if output == "text":
        for each in events:
            click.echo(f"{each.time} {each.reason}: {each.message}")
        return
    plain = [{"time": e.time, "reason": e.reason, "message": e.message, "warning": e.warning} for e in events]
    if whole:
        click.echo(json.dumps(plain, indent=INDENT))
    else:
        for fields in plain:
            click.echo(json.dumps(fields))


def _age(time: str, now: datetime) -> str:
    """As kubectl shows it: 5s, 3m, 2h, 4d."""
    try:
        seconds = max(0, int((now - datetime.fromisoformat(time.replace("Z", "+00:00"))).total_seconds()))
    except ValueError:
        return "?"
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _lists(value: object) -> object:
    """YAML has no tuples."""
    if isinstance(value, dict):
        return {key: _lists(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_lists(each) for each in value]
    return value
