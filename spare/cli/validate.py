"""`spare validate`: the problems of a job file, or every value that holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from spare.api.document import Path as Place
from spare.cli.job_file import overrides_of, read_job
from spare.planner import recommended_redundancy
from spare.planner.words import counted


@click.command()
@click.argument("job_file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--set",
    "overrides",
    metavar="PATH=VALUE",
    callback=overrides_of,
    multiple=True,
    help="Override a field, as `spare run` does.",
)
def validate(job_file: Path, overrides: Sequence[tuple[Place, Any]]) -> None:
    """Check JOB_FILE, and print what holds: the file with every default filled in.

    All problems are printed at once, each with its place, what stands there and what may; the exit code is then 2.
    """
    job = read_job(job_file, overrides)
    click.echo(yaml.safe_dump(job.effective(), sort_keys=False, allow_unicode=True), nl=False)
    if job.spec.redundancy == "auto":
        number = recommended_redundancy(job.spec.groups, job.spec.parts)
        click.echo(f"# redundancy auto: {number} for {counted(job.spec.groups, 'group')}", err=True)
