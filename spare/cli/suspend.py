"""`spare suspend` and `spare resume`: runPolicy.suspend of a job on a cluster, set and taken back."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

import click

from spare.api.exit_codes import ExitCode
from spare.api.reasons import ConditionType
from spare.api.spec import MAX_SECONDS
from spare.api.status import Status
from spare.cli.access import Access, on_a_cluster
from spare.cli.cluster import Place, on
from spare.cli.quantity import Number
from spare_operator.cluster import JOBS, Conflict

LOOK: Final = 1.0


@click.command()
@click.argument("job")
@click.option("--wait", type=Number(0, MAX_SECONDS), metavar="SECONDS", help="Wait until no pod of it is left.")
@on_a_cluster
def suspend(job: str, wait: float | None, access: Access) -> None:
    """Stop JOB after the step in flight, and let its pods go. With checkpoints it goes on from there when resumed."""
    sys.exit(on(access, job, lambda place: _set(place, True, wait)))


@click.command()
@click.argument("job")
@click.option("--wait", type=Number(0, MAX_SECONDS), metavar="SECONDS", help="Wait until it trains.")
@on_a_cluster
def resume(job: str, wait: float | None, access: Access) -> None:
    """Let JOB go on that was suspended."""
    sys.exit(on(access, job, lambda place: _set(place, False, wait)))


async def _set(place: Place, value: bool, wait: float | None) -> int:
    while True:
        body = await place.read()
        status = Status.model_validate(body.get("status") or {})
        if status.final:
            raise click.ClickException(f"{place.job} has ended ({status.state}): nothing starts or stops it any more")
        policy = body["spec"].get("runPolicy") or {}
        if bool(policy.get("suspend", False)) == value:
            break
        changed = {**body, "spec": {**body["spec"], "runPolicy": {**policy, "suspend": value}}}
        try:
            await place.cluster.replace(JOBS, changed)
            break
        except Conflict:
            continue  # the operator writes its status all the time
    suspended = status.state is ConditionType.SUSPENDED
    if suspended == value and (suspended or _trains(status)):
        click.echo(f"{place.job} is {status.state} already")
    else:
        click.echo(f"{place.job} is to {'stop after its step' if value else 'go on'}")
    if value and not (body["spec"].get("checkpoint") or {}).get("path"):
        click.echo("it has no spec.checkpoint.path: nothing is saved, and it begins with step 0 when resumed", err=True)
    return 0 if wait is None else await _until(place, value, wait)


async def _until(place: Place, suspended: bool, seconds: float) -> int:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        job = await place.read()
        status = Status.model_validate(job.get("status") or {})
        left = len(await place.pods(job["metadata"]["uid"])) if suspended else 0
        there = status.state is ConditionType.SUSPENDED and not left if suspended else _trains(status)
        if status.final or there:
            click.echo(f"{place.job} is {status.state}, step {status.step or 0}")
            return 0 if not status.final or status.state is ConditionType.COMPLETE else int(ExitCode.USER_ERROR)
        if loop.time() > deadline:
            text = "; ".join(f"{c.type}={c.status} {c.reason}: {c.message}" for c in status.conditions)
            text += f"; pods left: {left}" if left else ""
            raise click.ClickException(f"{place.job} is not there after {seconds:g} s: {text or 'no status'}")
        await asyncio.sleep(LOOK)


def _trains(status: Status) -> bool:
    return status.state in (ConditionType.RUNNING, ConditionType.DEGRADED)
