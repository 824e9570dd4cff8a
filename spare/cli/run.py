"""`spare run`: the options, and what must be right before anything is started."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from spare.api.document import Path as Place
from spare.api.job import SPAReJob
from spare.api.spec import Spec
from spare.cli.conduct import Order, conduct, prepare
from spare.cli.job_file import overrides_of, read_job
from spare.cli.json_lines import JsonLines, dropped
from spare.cli.lenient import forgive, told_in_words
from spare.cli.lines import Lines
from spare.cli.mistake import Mistake
from spare.cli.script import Scripted, by_group, reader
from spare.cli.view import View
from spare.local.launch import RESERVED

MOMENT = "G[.R]@S[:POINT]"


def _environment(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        if name in RESERVED:
            raise click.BadParameter(f"{name} is set by this program for each group")
        found[name] = value
    return found


def _loopback(context: click.Context, option: click.Parameter, text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
        with socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET) as trial:
            trial.bind((text, 0))
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not an IP address such as 127.0.0.1 or ::1") from error
    except OSError as error:
        raise click.BadParameter(f"nothing can listen on {text}: {error.strerror}") from error
    return str(address)


@click.command()
@click.argument("job_file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--kill", multiple=True, metavar=MOMENT, callback=reader("kill"), help="SIGKILL a group's worker.")
@click.option(
    "--kill-group", multiple=True, metavar=MOMENT, callback=reader("kill-group"), help="SIGKILL its agent as well."
)
@click.option("--freeze", multiple=True, metavar=MOMENT, callback=reader("freeze"), help="SIGSTOP it for good.")
@click.option(
    "--pause",
    multiple=True,
    metavar=f"{MOMENT}[=SECONDS]",
    callback=reader("pause", timed=True),
    help="SIGSTOP it, and SIGCONT after SECONDS (2).",
)
@click.option(
    "--drain", multiple=True, metavar=MOMENT, callback=reader("drain"), help="SIGTERM to its agent: let it go."
)
@click.option("--no-replacements", is_flag=True, help="Do not start lost groups again, and no spares.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line; the last is the summary.")
@click.option("--plain", is_flag=True, help="Plain lines, also on a terminal.")
@click.option(
    "--env", multiple=True, metavar="NAME=VALUE", callback=_environment, help="Set a variable for the workers."
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    callback=overrides_of,
    help="Override a field of the job file, such as spec.redundancy=2.",
)
@click.option(
    "--bind", default="127.0.0.1", show_default=True, metavar="ADDRESS", callback=_loopback, help="Where to listen."
)
@click.option(
    "--runs",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".runs"),
    show_default=True,
    help="Folder that the run's own folder (logs, ledgers, plan) is made in.",
)
def run(
    job_file: Path,
    kill: tuple[Scripted, ...],
    kill_group: tuple[Scripted, ...],
    freeze: tuple[Scripted, ...],
    pause: tuple[Scripted, ...],
    drain: tuple[Scripted, ...],
    no_replacements: bool,
    as_json: bool,
    plain: bool,
    env: dict[str, str],
    overrides: Sequence[tuple[Place, Any]],
    bind: str,
    runs: Path,
) -> None:
    """Run the job of JOB_FILE on this machine, each group as a local process.

    Failures can be scripted, as often as you like: G@S hits group G in step S, where S is the number of the step in
    flight, counted from 0 (the step that would be committed as number S + 1). Where a group has several ranks, G.R@S
    hits its rank R, and G@S its rank 0. POINT says where in the step:

    \b
    compute   half of the group's micro-batches are computed (the default)
    reduce    its part of the all-reduce is under way
    barrier   it holds the whole sum, and the commit barrier is under way
    step      the barrier has passed, the optimizer has not stepped
    regroup   it takes part in a regroup, which another failure in step S has caused
    give      it has begun to give its state to a group that joins in step S
    save      it has begun to write a checkpoint of S steps

    Real failures work as well: `kill -9` a worker or an agent from another shell; the view shows the process numbers,
    those of spares (spec.spares) included: they wait warm, and take the places of lost groups.

    Ctrl-C ends the job and leaves no process; pressed again, it kills at once. SIGTERM lets all groups finish the step
    in flight, saves it where spec.checkpoint.path is set, and says from where the job goes on. A relative workingDir in
    the job file, and by default the command itself, start at the job file's folder; `python` is the one that runs this
    program.
    """
    forgive(dropped if as_json else told_in_words)
    job = read_job(job_file, overrides)
    _fits_this_machine(job, env)
    script = kill + kill_group + freeze + pause + drain
    order = Order(
        job=job,
        base=job_file.resolve().parent,
        runs=runs,
        bind=bind,
        env=env,
        faults=by_group(script, job.spec.groups, job.spec.procs_per_group),
        replace=not no_replacements,
        script=tuple(f"group {failure.group}: {failure}" for failure in script),
    )
    launch = prepare(order)
    outcome = asyncio.run(conduct(order, launch, _view(as_json, plain)))
    sys.exit(outcome.exit_code)


def _fits_this_machine(job: SPAReJob, env: dict[str, str]) -> None:
    """Refuse what a local run would otherwise quietly leave out."""
    unheeded = [f"this version of a local run would not heed {line}" for line in _unheeded(job.spec)]
    missing = [name for name in job.spec.trainer.from_cluster if name not in env]
    if missing:
        unheeded.append(f"only a cluster can fill {', '.join(missing)} (valueFrom); give --env NAME=VALUE for each")
    if unheeded:
        raise Mistake("\n".join(unheeded))


def _unheeded(spec: Spec) -> Iterator[str]:
    """Settings that ask for what a local run cannot do yet: each with its value and what may stand there today."""
    policy = spec.run_policy
    today = (("spec.runPolicy.suspend", policy.suspend, False),)
    for path, value, allowed in today:
        if value != allowed:
            yield f"{path}: {value} (allowed today: {'not set' if allowed is None else allowed})"


def _view(as_json: bool, plain: bool) -> View:
    if as_json:
        return JsonLines()
    if plain or not sys.stdout.isatty():
        return Lines()
    from spare.cli.live import Terminal  # rich takes a while to import, and only this needs it

    return Terminal()
