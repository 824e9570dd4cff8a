"""The operator as a process: wait for the lease, work while it is held, let go."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import kopf
from kubernetes_asyncio import client, config

from spare_operator.cluster import Cluster
from spare_operator.handlers import registry_of
from spare_operator.jobs import Jobs
from spare_operator.lease import Lease
from spare_operator.nodes import Nodes
from spare_operator.settings import Settings
from spare_operator.surroundings import Surroundings

logger = logging.getLogger(__name__)

EXIT_DEPOSED = 1
"""The lease was lost: the process ends, for nothing in its memory is to be trusted, and its pod starts it anew."""


async def serve(settings: Settings) -> int:
    """Run until a signal comes (returns 0) or the lease is lost (EXIT_DEPOSED)."""
    identity = f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4().hex[:8]}"
    async with _api() as api:
        lease = Lease(Cluster(api), settings.lease_namespace, settings.lease_name, identity)
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopped.set)
        stop, acquire = loop.create_task(stopped.wait()), loop.create_task(lease.acquire())
        await asyncio.wait({stop, acquire}, return_when=asyncio.FIRST_COMPLETED)
        if not acquire.done():
            acquire.cancel()
            return 0
        try:
            return await _lead(settings, api, lease)
        finally:
            stop.cancel()
            await lease.release()


async def _lead(settings: Settings, api: client.ApiClient, lease: Lease) -> int:
    """Work while the lease is held."""
    cluster = Cluster(api, lambda: lease.held)
    around = Surroundings(cluster, Nodes(), lambda: lease.held, lease.identity, lease.term, settings.agent_port)
    jobs = Jobs(around, settings.namespaces)
    loop = asyncio.get_running_loop()
    keep, look = loop.create_task(lease.keep()), loop.create_task(jobs.keep_looking())
    stop = asyncio.Event()
    watch = loop.create_task(
        kopf.operator(
            registry=registry_of(jobs, settings.watching, nodes=settings.nodes),
            clusterwide=not settings.namespaces,
            namespaces=list(settings.namespaces),
            standalone=True,
            stop_flag=stop,
        )
    )
    try:
        await asyncio.wait({keep, look, watch}, return_when=asyncio.FIRST_COMPLETED)
        for task in (look, watch):
            if task.done():
                task.result()
        return EXIT_DEPOSED if keep.done() else 0
    finally:
        await jobs.close()
        stop.set()
        for task in (keep, look):
            task.cancel()
        await asyncio.wait({watch}, timeout=10.0)
        await asyncio.gather(keep, look, return_exceptions=True)


@asynccontextmanager
async def _api() -> AsyncIterator[client.ApiClient]:
    """A client with the pod's service account, or else the user's kubeconfig."""
    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except config.ConfigException:
        await config.load_kube_config(client_configuration=configuration)
    configuration.connection_pool_maxsize = 64
    async with client.ApiClient(configuration) as api:
        yield api
