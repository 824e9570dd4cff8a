"""`spare simulate`: one setting many times, the paper's table and figures, and what our departures from it bring."""

from __future__ import annotations

import cProfile
import os
import pstats
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import process_time
from typing import Any, Final, get_args

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from spare.api.spec import MAX_MICRO_BATCHES
from spare.cli.failure_trace import read_trace
from spare.cli.mistake import Mistake
from spare.cli.quantity import MOST_GROUPS, Duration, Number
from spare.cli.results import OutFile, folder, read_results, write_csv, write_json, write_whole, written
from spare.sim import Level, Setting
from spare.sim.campaign import Case, Kind, Outcome, Plan, repeat
from spare.sim.departures import ladder, racks
from spare.sim.paper_page import page
from spare.sim.published import MU_UP_TO, depth_table, mu_errors, mu_table, row_of, sweep, table
from spare.sim.setting import MOST_JITTER, SHAPES

FOLDER = Path("docs/simulation")

WIDTH = 100
"""Columns, at least: numbers are not broken over two lines."""

TIME = Duration(bare=True)

HEEDED: Final[dict[str, tuple[Kind, ...]]] = {
    "redundancy": ("replication", "whole", "micro"),
    "placement": ("whole", "micro"),
    "aware": ("whole", "micro"),
    "micro_batches": ("micro",),
    "fetch": ("micro",),
    "fetch_seconds": ("micro",),
    "redo": ("replication",),
    "each": ("replication",),
}
"""Options that only some strategies heed."""

NEEDED: Final = {"fetch_seconds": "fetch", "each": "redo", "scattered": "domains", "aware": "domains",
                 "join": "replacement"}  # fmt: skip
"""Options that change nothing without another."""


@click.group(context_settings={"show_default": True})
def simulate() -> None:
    """Simulate training under failures: a job of your own, or the paper's."""


def _shared(command: Callable[..., None]) -> Callable[..., None]:
    """The options of all that simulates."""
    for option in (
        click.option("--workers", type=click.IntRange(1, 1024), default=os.cpu_count() or 1, help="Processes."),
        click.option("--seed", type=click.IntRange(0), default=1, help="Seed of the first run; run j has seed + j."),
        click.option("--runs", type=click.IntRange(1, 10_000), default=3, help="Runs of each case."),
        click.option("--steps", type=click.IntRange(1, 10_000_000), default=10_000, help="Steps of each run."),
    ):
        command = option(command)
    return command


@simulate.command()
@_shared
@click.option("--groups", type=click.IntRange(1, MOST_GROUPS), default=200, help="N.")
@click.option("-r", "--redundancy", type=click.IntRange(1), default=5, help="Shards per group.")
@click.option("--strategy", type=click.Choice(get_args(Kind)), default="micro")
@click.option("--placement", type=click.Choice(["Golomb", "Consecutive"]), help="Default: the strategy's own.")
@click.option("--micro-batches", type=click.IntRange(1, MAX_MICRO_BATCHES), default=32, help="Per shard (micro).")
@click.option("--fetch", is_flag=True, help="Fetch a shard that has no host left instead of restarting (micro).")
@click.option("--fetch-time", "fetch_seconds", type=TIME, default="30s", help="Of a fetch; for --fetch.")
@click.option("--redo", type=Number(0, 100), default=0.0, help="Layers computed again after a failure (replication).")
@click.option("--each", is_flag=True, help="--redo for each lost group, not once for all of a step (replication).")
@click.option("--step-time", "--compute", "compute", type=TIME, default="64s", help="Of one shard, no all-reduce.")
@click.option("--reduce-time", "--reduction", "reduction", type=TIME, default="2s", help="Of an all-reduce.")
@click.option("--save-time", "--save", "save", type=TIME, default="60s", help="Everybody waits for a save.")
@click.option("--restart-time", "--restart", "restart", type=TIME, default="1h", help="Of the whole job.")
@click.option("--period", type=TIME, help="Between the starts of two saves. Default: the best, Tc*.")
@click.option("--mtbf", type=Duration(above_zero=True, bare=True), default="300s",
              help="Mean time between failures in the whole job, while all groups live.")  # fmt: skip
@click.option("--process", type=click.Choice(["exponential", "weibull"]), default="weibull")
@click.option("--shape", type=Number(*SHAPES), default=0.78, help="Of the Weibull distribution.")
@click.option("--constant-rate", is_flag=True, help="Failures do not become rarer as groups go.")
@click.option("--jitter", type=Number(0, MOST_JITTER), default=0.05, help="Durations are times Normal(1, jitter).")
@click.option("--replacement", type=TIME, help="To a replacement. Default: only a restart brings groups back.")
@click.option("--join-time", "join", type=TIME, default="5s", help="Everybody waits for a group that joins.")
@click.option("--announced", type=Number(0, 1), default=0.0, help="Share of the losses with a drain notice.")
@click.option(
    "--domain",
    "domains",
    type=(str, click.IntRange(1), Number(0, 1)),
    metavar="NAME SIZE SHARE",
    multiple=True,
    help="Groups that fail as one: `rack 20 0.05`, or node, zone; SHARE of the failures take a whole one.",
)
@click.option("--scattered", is_flag=True, help="Groups lie in their domains in random order; for --domain.")
@click.option("--aware", is_flag=True, help="The placement follows the domains (whole, micro); for --domain.")
@click.option("--trace", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="CSV with the columns seconds and group (empty: any) in place of a random process; --mtbf then"
              " sets the period of the saves only. Default: the trace's own mean.")  # fmt: skip
@click.option("--profile", is_flag=True, help="Say where the processor's time goes; once more, profiled.")
@click.option("--json", "json_file", type=OutFile(), help="Write the runs as JSON.")
@click.option("--csv", "csv_file", type=OutFile(), help="Write the runs as CSV.")
@click.pass_context
def run(
    context: click.Context, /, groups: int, redundancy: int, strategy: Kind, mtbf: float,
    domains: tuple[tuple[str, int, float], ...], trace: Path | None, constant_rate: bool, fetch_seconds: float,
    json_file: Path | None, csv_file: Path | None, steps: int, runs: int, seed: int, workers: int, profile: bool,
    **more: Any,
) -> None:  # fmt: skip
    """Simulate one setting and strategy. Durations are written like 1h30m, 90d, or as seconds."""
    _refuse_unheeded(context)
    if json_file and csv_file and json_file.resolve() == csv_file.resolve():
        raise click.UsageError(f"--json and --csv name the same file, {json_file}")
    own = {name: more.pop(name) for name in ("placement", "micro_batches", "fetch", "aware", "redo", "each")}
    options = {name: value for name, value in own.items() if value and strategy in HEEDED[name]}
    events = read_trace(trace, groups) if trace else ()
    if events and context.get_parameter_source("mtbf") is ParameterSource.DEFAULT:
        mtbf = events[-1][0] / len(events) or mtbf
    try:
        setting = Setting(
            groups, steps=steps, between_failures=mtbf, process="trace" if trace else more.pop("process"),
            levels=tuple(Level(*domain) for domain in domains), trace=events,
            rate_falls=not constant_rate, fetch=fetch_seconds,
            **{name: value for name, value in more.items() if name != "process"},
        )  # fmt: skip
        plan = Plan(strategy, 1 if strategy == "checkpoint" else redundancy, options)
        plan.build(setting)
    except ValueError as error:
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
        write_json(json_file, {"setting": asdict(setting), "plan": asdict(plan), "runs": outcome.to_json()})
    if csv_file:
        write_csv(csv_file, outcome.to_json())


def _refuse_unheeded(context: click.Context) -> None:
    """Options that would change nothing: whoever gives one expects something of it."""
    given = {name for name in context.params if context.get_parameter_source(name) is not ParameterSource.DEFAULT}
    spelled = {parameter.name: parameter.opts[-1] for parameter in context.command.params}
    strategy, process = context.params["strategy"], context.params["process"]
    for name in sorted(given):
        if strategy not in HEEDED.get(name, (strategy,)):
            raise click.UsageError(
                f"{spelled[name]} has no effect on the strategy {strategy}; it is for {', '.join(HEEDED[name])}"
            )
        needed = NEEDED.get(name, "")
        if needed and needed not in given:
            raise click.UsageError(f"{spelled[name]} has no effect without {spelled[needed]}")
        if "trace" in given and name in ("process", "shape", "constant_rate"):
            raise click.UsageError(f"{spelled[name]} has no effect beside --trace, which says when failures come")
        if name == "shape" and process != "weibull":
            raise click.UsageError(f"--shape has no effect on the process {process}; it is for weibull")


@simulate.command()
@_shared
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=FOLDER, help="Folder of the results.")
@click.option("--trials", type=click.IntRange(2, 1_000_000), default=1000, help="Trials of the Monte-Carlo of mu.")
@click.option(
    "--depth-trials", type=click.IntRange(2, 10_000), default=8, help="Trials of the Monte-Carlo of the depth."
)
def paper(steps: int, runs: int, seed: int, workers: int, out: Path, trials: int, depth_trials: int) -> None:
    """The paper's table and figures, its numbers beside ours, and how far each assumption moves them."""
    folder(out)
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
    folder(out)
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
@click.option("--results", type=click.Path(exists=True, file_okay=False, path_type=Path), default=FOLDER,
              help="Folder with paper.json and beyond.json; the pictures go there.")  # fmt: skip
@click.option("--out", type=OutFile(), default=Path("docs/paper.md"), help="The page.")
def page_command(results: Path, out: Path) -> None:
    """The page and its pictures, from the results that `paper` and `beyond` wrote. Needs matplotlib."""
    try:
        from spare.sim import picture_of_paper  # matplotlib takes a second to import
    except ImportError as error:
        needed = "pictures need matplotlib (pip install 'spare-training[simulator]')"
        raise click.ClickException(f"{needed}: {error}") from error

    paper_results, beyond_results = (read_results(results / f"{name}.json") for name in ("paper", "beyond"))
    relative = os.path.relpath(results, out.parent)
    try:
        text = page(paper_results, beyond_results, relative)
        with written(results):
            picture_of_paper.draw(paper_results, beyond_results, results)
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise Mistake(
            f"{results}: paper.json or beyond.json is not what this version writes ({error!r} is missing or wrong);"
            " run `spare simulate paper` and `spare simulate beyond` again"
        ) from error
    write_whole(out, text)
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


def _write(out: Path, name: str, document: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
    write_json(out / f"{name}.json", document)
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
        if given_up := sum(not result.complete for result in outcome.results):
            ratio_text = f"{given_up} of {ratio.runs} given up"
        shown.add_row(case.label, str(case.setting.groups), str(case.plan.redundancy), str(ratio.runs), ratio_text,
                      f"{up.mean:.2%}", f"{outcome.depth.mean:.3f}")  # fmt: skip
    console = Console()
    Console(width=max(console.width, WIDTH)).print(shown)
    if not all(result.complete for outcome in outcomes for result in outcome.results):
        click.echo("A run is given up when it takes 200 times T0, or restarts 10,000 times without a save between.")
