"""One job on a cluster, as the user's own rights show it, and how refusals are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import click

from spare.cli.access import Access
from spare.cli.kubeconfig import connect
from spare.cli.mistake import Mistake
from spare_operator import names
from spare_operator.cluster import CONFIG_MAPS, EVENTS, JOBS, PODS, ApiError, Body, Cluster, NotFound

PATIENCE: Final = 5.0
"""Seconds for which a call is tried again: somebody waits."""


@dataclass(frozen=True)
class Place:
    """One job on a cluster."""

    cluster: Cluster
    namespace: str
    job: str

    async def read(self) -> Body:
        """The job as it stands.

        Raises:
            Mistake: there is none of that name.
            click.ClickException: the cluster knows no jobs of this kind.
        """
        try:
            return await self.cluster.get(JOBS, self.namespace, self.job)
        except NotFound as error:
            if (
                f'"{self.job}" not found' not in error.text
            ):  # of a kind that it does not know, the server names no object
                raise click.ClickException(
                    f"this cluster has no kind SPAReJob ({names.PLURAL}.{names.GROUP}): install the operator first"
                ) from error
            raise Mistake(f"no SPAReJob {self.job!r} in namespace {self.namespace!r}") from error

    async def plan(self, uid: str) -> Body | None:
        """The ConfigMap with the newest plan of the job with this uid; None before the first."""
        try:
            found = await self.cluster.get(CONFIG_MAPS, self.namespace, names.plan_map(self.job))
        except NotFound:
            return None
        ours = (found["metadata"].get("labels") or {}).get(names.JOB_UID) == uid
        return found if ours else None  # of an earlier job of that name, on its way out

    async def pods(self, uid: str) -> list[Body]:
        """All pods of the job with this uid."""
        return await self.cluster.list(PODS, self.namespace, {names.JOB_UID: uid})

    async def events(self, uid: str) -> list[Body]:
        """Events about the job with this uid, oldest first."""
        found = await self.cluster.list(EVENTS, self.namespace)
        ours = [each for each in found if (each.get("involvedObject") or {}).get("uid") == uid]
        return sorted(ours, key=lambda each: (when(each), int(each["metadata"]["resourceVersion"])))


def when(event: Body) -> str:
    """When it happened, as the API server has it: UTC."""
    stamp = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    return str(stamp or "")


def on(access: Access, job: str, work: Callable[[Place], Coroutine[Any, Any, int]]) -> int:
    """Do something with one job; the command's exit code.

    Raises:
        Mistake: no cluster is named, or what is named is not there.
        click.ClickException: the cluster refused, does not answer, or has a job that cannot be read.
    """

    async def main() -> int:
        async with _connected(access) as (cluster, namespace):
            return await work(Place(cluster, access.namespace or namespace, job))

    try:
        return asyncio.run(main())
    except ValueError as error:  # its spec, its status or its plan
        raise click.ClickException(f"{job}: what stands in the cluster cannot be read here: {error}") from error


@asynccontextmanager
async def _connected(access: Access) -> AsyncIterator[tuple[Cluster, str]]:
    """The cluster, and the namespace that holds where none is named."""
    api, namespace = await connect(access)
    async with api:
        try:
            yield Cluster(api, patience=PATIENCE), namespace
        except ApiError as error:
            raise click.ClickException(_told(error, str(api.configuration.host))) from error
        finally:
            await asyncio.sleep(0)


def _told(error: ApiError, server: str) -> str:
    """A refusal, or silence, in one line."""
    if not error.status:
        return f"no answer from the API server at {server}, asked for {PATIENCE:g} s: {error}"
    if error.status == HTTPStatus.UNAUTHORIZED:
        return f"the API server at {server} does not accept this token or certificate: {error}"
    return f"the cluster says: {error}"
