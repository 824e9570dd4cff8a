"""`spare drain`: let a group of a running job leave at the end of a step."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from spare.api.exit_codes import ExitCode
from spare.local.door import SOCKET, NoRun, ask


@click.command()
@click.argument("group", type=click.IntRange(0))
@click.option("--run", metavar="RUN", help="The run's folder, or its name under --runs. Default: the only one running.")
@click.option(
    "--runs",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".runs"),
    show_default=True,
    help="Folder with the runs' folders.",
)
@click.option("--grace", type=click.FloatRange(0), metavar="SECONDS", help="Until it must be gone. Default: the job's.")
@click.option("--no-replacement", is_flag=True, help="Do not start the group again.")
def drain(group: int, run: str | None, runs: Path, grace: float | None, no_replacement: bool) -> None:
    """Let GROUP of a running `spare run` leave at the end of a step: nothing is lost, nothing is computed again.

    It stays while the job needs it: two other groups must have the training state, and each shard another host. A
    replacement is started and joins later. Exits with 0 once the group has left, with 1 when it was lost instead, with
    2 when there is no such run or group.
    """
    request = {"drain": group, "grace": grace, "again": not no_replacement}
    try:
        for answer in ask(_folder(run, runs), request):
            code = answer.get("code")
            click.echo(answer["text"], err=code not in (None, 0))
            if code is not None:
                sys.exit(code)
    except NoRun as error:
        raise click.UsageError(str(error)) from error
    click.echo("the run has ended without a word", err=True)
    sys.exit(ExitCode.USER_ERROR)


def _folder(run: str | None, runs: Path) -> Path:
    """The run that is meant.

    Raises:
        click.UsageError: there is none, or it is not clear which.
    """
    if run is not None:
        found = next((each for each in (Path(run), runs / run) if each.is_dir()), None)
        if found is None:
            raise click.UsageError(f"--run {run}: neither {run} nor {runs / run} is a run's folder")
        return found
    running = sorted(path.parent for path in runs.glob(f"*/{SOCKET}"))
    if len(running) != 1:
        what = "no job is running" if not running else f"{len(running)} jobs are running; name one with --run"
        names = "".join(f"\n  {each.name}" for each in running)
        raise click.UsageError(f"{what} (looked in {runs}){names}")
    return running[0]
