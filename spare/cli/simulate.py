"""`spare simulate`: one setting many times, the paper's table and figures, and what our departures from it bring."""

from __future__ import annotations

import cProfile
import csv
import json
import os
import pstats
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import process_time
from typing import Any, Literal, get_args

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from spare.sim import Level, Setting
from spare.sim.campaign import Case, Kind, Outcome, Plan, repeat
from spare.sim.departures import ladder, racks
from spare.sim.paper_page import page
from spare.sim.published import MU_UP_TO, depth_table, mu_errors, mu_table, row_of, sweep, table

FOLDER = Path("docs/simulation")


@click.group(context_settings={"show_default": True})
def simulate() -> None:
    """Simulate training under failures: a job of your own, or the paper's."""


def _shared(command: Callable[..., None]) -> Callable[..., None]:
    """The options of all that simulates."""
    for option in (
        click.option("--workers", type=click.IntRange(1), default=os.cpu_count() or 1, help="Processes."),
        click.option("--seed", type=int, default=1, help="Seed of the first run; run j has seed + j."),
        click.option("--runs", type=click.IntRange(1), default=3, help="Runs of each case."),
        click.option("--steps", type=click.IntRange(1), default=10_000, help="Steps of each run."),
    ):
        command = option(command)
    return command


@simulate.command()
@_shared
@click.option("--groups", type=click.IntRange(1), default=200, help="N.")
@click.option("-r", "--redundancy", type=click.IntRange(1), default=5, help="Shards per group.")
@click.option("--strategy", type=click.Choice(get_args(Kind)), default="micro")
@click.option("--placement", type=click.Choice(["Golomb", "Consecutive"]), help="Default: the strategy's own.")
@click.option("--fetch", is_flag=True, help="Fetch a shard that has no host left instead of restarting (micro).")
@click.option("--compute", type=float, default=64.0, help="Seconds of one shard.")
@click.option("--reduction", type=float, default=2.0, help="Seconds of an all-reduce.")
@click.option("--save", type=float, default=60.0, help="Seconds of a save.")
@click.option("--restart", type=float, default=3600.0, help="Seconds of a restart.")
@click.option("--mtbf", type=float, default=300.0, help="Mean seconds between failures in the whole job.")
@click.option("--process", type=click.Choice(["exponential", "weibull"]), default="weibull")
@click.option("--shape", type=float, default=0.78, help="Shape of the Weibull distribution.")
@click.option("--replacement", type=float, help="Seconds to a replacement. Default: only a restart brings groups back.")
@click.option("--announced", type=float, default=0.0, help="Share of the losses that a drain notice announces.")
@click.option(
    "--domain",
    "domains",
    type=(str, int, float),
    metavar="NAME SIZE SHARE",
    multiple=True,
    help="Groups that fail as one: `rack 20 0.05`, or node, zone; SHARE of the failures take a whole one.",
)
@click.option("--scattered", is_flag=True, help="Groups lie in their domains in random order.")
@click.option("--aware", is_flag=True, help="The placement follows the domains (whole, micro).")
@click.option("--trace", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="CSV with the columns seconds and group (empty: any) in place of a random process.")  # fmt: skip
@click.option("--profile", is_flag=True, help="Say where the processor's time goes; once more, profiled.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the runs as JSON.")
@click.option("--csv", "csv_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the runs as CSV.")
def run(
    groups: int, redundancy: int, strategy: Kind, placement: str | None, fetch: bool, mtbf: float,
    domains: tuple[tuple[str, int, float], ...], aware: bool, trace: Path | None,
    json_file: Path | None, csv_file: Path | None,
    steps: int, runs: int, seed: int, workers: int, profile: bool, process: Literal["exponential", "weibull"],
    **durations: Any,
) -> None:  # fmt: skip
    """Simulate one setting and strategy."""
    options: dict[str, Any] = {"placement": placement} if placement and strategy in ("whole", "micro") else {}
    options |= {name: True for name, wanted in (("fetch", fetch), ("aware", aware)) if wanted}
    try:
        setting = Setting(
            groups, steps=steps, between_failures=mtbf, process="trace" if trace else process,
            levels=tuple(Level(*domain) for domain in domains), trace=read_trace(trace) if trace else (), **durations,
        )  # fmt: skip
        plan = Plan(strategy, redundancy, options)
        plan.build(setting)
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from error
    case = Case(strategy, setting, plan, runs)
    started = process_time()
    with _bar() as advance:
        (outcome,) = repeat([case], seed, 1 if profile else workers, advance("runs"))
    took = process_time() - started
    _show([outcome], f"{outcome.results[0].strategy}, N = {groups}")
    if profile:
        click.echo(f"{took:8.2f} s of the processor")
        with cProfile.Profile(process_time) as profiler:
            repeat([case], seed)
        click.echo(profile_text(profiler))
    if json_file:
        document = {"setting": asdict(setting), "plan": asdict(plan), "runs": outcome.to_json()}
        json_file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if csv_file:
        write_csv(csv_file, outcome.to_json())


@simulate.command()
@_shared
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=FOLDER, help="Folder of the results.")
@click.option("--trials", type=click.IntRange(2), default=1000, help="Trials of the Monte-Carlo of mu.")
@click.option("--depth-trials", type=click.IntRange(2), default=8, help="Trials of the Monte-Carlo of the depth.")
def paper(steps: int, runs: int, seed: int, workers: int, out: Path, trials: int, depth_trials: int) -> None:
    """The paper's table and figures, its numbers beside ours, and how far each assumption moves them."""
    with _bar() as advance:
        outcomes = table(steps, runs, seed, workers, advance("table"))
        swept = sweep(steps, runs, seed, workers, advance("assumptions"))
        tick = _ticks(advance("mu"), 6)
        mu = mu_table(trials, seed, tick)
        errors = mu_errors(trials, seed, _ticks(advance("mu, every r"), len(MU_UP_TO)))
        depth = depth_table(depth_trials, seed, _ticks(advance("depth"), 6))
    _show(outcomes, "The paper's table")
    _show(swept, "One assumption changed at a time, N = 200")
    document = {
        "parameters": {"steps": steps, "runs": runs, "seed": seed, "trials": trials, "depth_trials": depth_trials},
        "table": [row_of(o) for o in outcomes],
        "sweep": [row_of(o) for o in swept],
        "mu": mu,
        "mu_errors": errors,
        "depth": depth,
    }
    _write(out, "paper", document, [*outcomes, *swept])


@simulate.command()
@_shared
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=FOLDER, help="Folder of the results.")
def beyond(steps: int, runs: int, seed: int, workers: int, out: Path) -> None:
    """The paper's setting with our departures from the paper switched on one by one; racks that fail as one."""
    with _bar() as advance:
        steps_up = ladder(steps, runs, seed, workers, advance("departures"))
        together = racks(steps, runs, seed, workers, advance("racks"))
    _show(steps_up, "From the paper to ours")
    _show(together, "Racks of 20 groups fail as one in a twentieth of the failures, N = 200")
    document = {
        "parameters": {"steps": steps, "runs": runs, "seed": seed},
        "ladder": [row_of(o) for o in steps_up],
        "racks": [row_of(o) for o in together],
    }
    _write(out, "beyond", document, [*steps_up, *together])


@simulate.command(name="page")
@click.option("--results", type=click.Path(exists=True, file_okay=False, path_type=Path), default=FOLDER)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=Path("docs/paper.md"))
def page_command(results: Path, out: Path) -> None:
    """The page and its pictures, from the results that `paper` and `beyond` wrote. Needs matplotlib."""
    try:
        from spare.sim import picture_of_paper  # matplotlib takes a second to import
    except ImportError as error:
        needed = "pictures need matplotlib (pip install 'spare-training[simulator]')"
        raise click.UsageError(f"{needed}: {error}") from error

    read = {name: json.loads((results / f"{name}.json").read_text(encoding="utf-8")) for name in ("paper", "beyond")}
    picture_of_paper.draw(read["paper"], read["beyond"], results)
    folder = os.path.relpath(results, out.parent)
    out.write_text(page(read["paper"], read["beyond"], folder), encoding="utf-8")
    click.echo(f"{out} and the pictures in {results} are written")


def profile_text(profiler: cProfile.Profile) -> str:
    """Seconds by module, own time only; a profiled run takes longer, and calls weigh more than loops."""
    spent: dict[str, float] = {}
    stats: dict[tuple[str, int, str], tuple[Any, ...]] = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    for (file, _, _), (_, _, own, *_) in stats.items():
        parts = Path(file).with_suffix("").parts
        name = ".".join(parts[-3:]) if "spare" in parts[-3:] else "Python's own"
        spent[name] = spent.get(name, 0.0) + own
    total = sum(spent.values())
    ordered = sorted(spent.items(), key=lambda item: -item[1])[:8]
    lines = [f"{own:8.2f} s  {own / total:4.0%}  {name}" for name, own in ordered]
    return "\n".join([f"{total:8.2f} s once more, profiled; of it", *lines])


def read_trace(path: Path) -> tuple[tuple[float, int], ...]:
    """(seconds, group or -1), ascending. Raises click.UsageError naming the line that is wrong."""
    found = []
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        if not {"seconds", "group"} <= set(rows.fieldnames or ()):
            raise click.UsageError(f"{path}: the columns are {rows.fieldnames}; needed are seconds and group")
        for row in rows:
            try:
                found.append((float(row["seconds"]), int(row["group"]) if row["group"] else -1))
            except ValueError as error:
                raise click.UsageError(f"{path}, line {rows.line_num}: {error}") from error
    return tuple(found)


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """One run a line."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _write(out: Path, name: str, document: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    write_csv(out / f"{name}.csv", [row for outcome in outcomes for row in outcome.to_json()])
    click.echo(f"{out / name}.json and .csv are written; `spare simulate page` makes the page of them")


@contextmanager
def _bar() -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Progress on stderr, one line per part; nothing where stderr is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:

        def part(name: str) -> Callable[[int, int], None]:
            task = bar.add_task(name, total=None)
            return lambda done, total: bar.update(task, completed=done, total=total)

        yield part


def _ticks(advance: Callable[[int, int], None], total: int) -> Callable[[], None]:
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        advance(done, total)

    return tick


def _show(outcomes: Sequence[Outcome], title: str) -> None:
    shown = Table("case", "N", "r", "runs", "TTT / T0", "availability", "depth with patch", title=title)
    for outcome in outcomes:
        case, ratio, up = outcome.case, outcome.ratio, outcome.availability
        ratio_text = f"{ratio.mean:.3f}" + (f" ± {ratio.half:.3f}" if ratio.runs > 1 else "")
        shown.add_row(case.label, str(case.setting.groups), str(case.plan.redundancy), str(ratio.runs), ratio_text,
                      f"{up.mean:.2%}", f"{outcome.depth.mean:.3f}")  # fmt: skip
    Console().print(shown)
