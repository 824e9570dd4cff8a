"""`spare drain`: let a group of a running job leave at the end of a step, of a local run or on a cluster."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from spare.api.exit_codes import ExitCode
from spare.api.template import MAX_GRACE
from spare.cli.access import Access, on_a_cluster
from spare.cli.mistake import Mistake
from spare.cli.quantity import Number
from spare.local.door import SOCKET, NoRun, ask, listens


@click.command()
@click.argument("target", nargs=-1, required=True, metavar="[JOB] GROUP")
@click.option("--run", metavar="RUN", help="The run's folder, or its name under --runs. Default: the only one running.")
@click.option(
    "--runs",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".runs"),
    show_default=True,
    help="Folder with the runs' folders.",
)
@click.option(
    "--grace", type=Number(0, MAX_GRACE), metavar="SECONDS", help="Until it must be gone. Default: the job's."
)
@click.option("--no-replacement", is_flag=True, help="Do not start the group again (a local run's only).")
@on_a_cluster
def drain(
    target: tuple[str, ...], run: str | None, runs: Path, grace: float | None, no_replacement: bool, access: Access
) -> None:
    """Let GROUP of a running `spare run`, or of JOB on a cluster, leave at the end of a step: nothing is lost, nothing
    is computed again.

    It stays while the job needs it: two other groups must have the training state, and each shard another host. In
    the last third of its grace (10 s at most) it hands on what it has computed and goes, if the others can go on.
    A replacement is started and joins later. On a cluster its pods are evicted, as `kubectl drain` would: disruption
    budgets are heeded, and when the pods' grace is over it is lost. Exits with 0 once the group has left, with 1 when
    it was lost instead or could not be asked, with 2 when there is no such run, job or group.
    """
    job, group = _target(target)
    if job is not None:
        if run is not None or no_replacement:
            raise click.UsageError("--run and --no-replacement are for local runs, which have no JOB")
        sys.exit(_on_a_cluster(access, job, group, grace))
    if access.given:
        raise click.UsageError("on a cluster the job is named: spare drain JOB GROUP")
    request = {"drain": group, "grace": grace, "again": not no_replacement}
    try:
        for answer in ask(_folder(run, runs), request):
            code = answer.get("code")
            click.echo(answer["text"], err=code not in (None, 0))
            if code is not None:
                sys.exit(code)
    except NoRun as error:
        raise Mistake(str(error)) from error
    click.echo("the run has ended without a word", err=True)
    sys.exit(ExitCode.USER_ERROR)


def _target(parts: tuple[str, ...]) -> tuple[str | None, int]:
    """The job, where one is named, and the group."""
    *job, group = parts
    if len(job) > 1:
        raise click.UsageError(f"{len(parts)} arguments: a group of a local run, or a job and a group")
    if not (group.isascii() and group.isdigit()):
        raise click.UsageError(f"the group {group!r} is no number from 0 on")
    return (job[0] if job else None), int(group)


def _on_a_cluster(access: Access, job: str, group: int, grace: float | None) -> int:
    try:
        from spare.cli.cluster import on
        from spare.cli.evict import evict
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"on a cluster {error.name} is needed: pip install 'spare-training[operator]'"
        ) from error
    return on(access, job, lambda place: evict(place, group, grace))


def _folder(run: str | None, runs: Path) -> Path:
    """The run that is meant.

    Raises:
        Mistake: there is none, or it is not clear which.
    """
    if run is not None:
        found = next((each for each in (Path(run), runs / run) if each.is_dir()), None)
        if found is None:
            raise Mistake(f"--run {run}: neither {run} nor {runs / run} is a run's folder")
        return found
    running = sorted(path.parent for path in runs.glob(f"*/{SOCKET}") if listens(path.parent))
    if len(running) != 1:
        what = "no job is running" if not running else f"{len(running)} jobs are running; name one with --run"
        names = "".join(f"\n  {each.name}" for each in running)
        raise Mistake(f"{what} (looked in {runs}){names}")
    return running[0]
