"""One job on a cluster, as the user's own rights show it, and how refusals are told."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from kubernetes_asyncio import client, config

from spare.cli.access import Access
from spare_operator import names
from spare_operator.cluster import CONFIG_MAPS, EVENTS, JOBS, PODS, ApiError, Body, Cluster, NotFound

PATIENCE: Final = 5.0
"""Seconds for which a call is tried again: somebody waits."""
_POD: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True)
class Place:
    """One job on a cluster."""

    cluster: Cluster
    namespace: str
    job: str

    async def read(self) -> Body:
        """The job as it stands.

        Raises:
            click.UsageError: there is none of that name.
        """
        try:
            return await self.cluster.get(JOBS, self.namespace, self.job)
        except NotFound as error:
            raise click.UsageError(f"no SPAReJob {self.job!r} in namespace {self.namespace!r}: {error.text}") from error

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
        click.UsageError: no cluster is named, or what is named is not there.
        click.ClickException: the cluster refused, does not answer, or has a job that cannot be read.
    """

    async def main() -> int:
        async with _connected(access) as (cluster, namespace):
            return await work(Place(cluster, access.namespace or namespace, job))

    try:
        return asyncio.run(main())
    except ApiError as error:
        raise click.ClickException(f"the cluster says: {error}") from error
    except ValueError as error:  # its spec, its status or its plan
        raise click.ClickException(f"{job}: what stands in the cluster cannot be read here: {error}") from error


@asynccontextmanager
async def _connected(access: Access) -> AsyncIterator[tuple[Cluster, str]]:
    """A client, and the namespace that holds where none is named."""
    configuration, namespace = client.Configuration(), "default"
    if access.kubeconfig is None and access.context is None and not os.environ.get("KUBECONFIG") and _POD.exists():
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        namespace = _POD.read_text().strip()
    else:
        try:
            file = None if access.kubeconfig is None else str(access.kubeconfig)
            contexts, active = config.list_kube_config_contexts(config_file=file)
            await config.load_kube_config(file, access.context, configuration)
        except config.ConfigException as error:
            raise click.UsageError(f"no cluster: {error}") from error
        chosen = next((each for each in contexts or () if each["name"] == access.context), active) or {}
        namespace = chosen.get("context", {}).get("namespace") or namespace
    async with client.ApiClient(configuration) as api:
        yield Cluster(api, patience=PATIENCE), namespace
        await asyncio.sleep(0)
