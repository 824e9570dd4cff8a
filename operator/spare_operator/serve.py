"""The operator as a process: wait for the lease, work while it is held, let go."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import kopf
from kubernetes_asyncio import client, config

from spare_operator.cluster import JOBS, Cluster
from spare_operator.handlers import Login, keep_watching, kopf_settings, registry_of
from spare_operator.jobs import Jobs
from spare_operator.lease import Lease
from spare_operator.metrics import Collector
from spare_operator.network import Operators
from spare_operator.nodes import Nodes
from spare_operator.settings import Settings
from spare_operator.surroundings import Surroundings
from spare_operator.web import Page

logger = logging.getLogger(__name__)

EXIT_DEPOSED = 1
"""The lease was lost: nothing in this operator's memory is to be trusted, and another is begun in its place."""


async def serve(settings: Settings) -> int:
    """Run until a signal comes (returns 0) or the lease is lost (EXIT_DEPOSED); then nothing of it runs any more.

    Raises:
        OSError: the health page's address cannot be had.
    """
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with _api() as api:
        return await Operator(settings, api, stopped).run()


class Operator:
    """One process's claim to the work, and the work."""

    def __init__(
        self,
        settings: Settings,
        api: client.ApiClient,
        stopped: asyncio.Event,
        *,
        login: Login = kopf.login_via_async_client,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`login` tells kopf how to reach the API server; it, `clock` and `wall` are replaced by tests."""
        self._login, self._clock, self._wall = login, clock, wall
        self._settings, self._api, self._stopped = settings, api, stopped
        identity = f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self.lease = Lease(
            Cluster(api), settings.lease_namespace, settings.lease_name, identity, settings.timing, clock, wall
        )
        self.jobs: Jobs | None = None
        """While it leads."""
        self._page = Page(Collector(lambda: self.lease.held, lambda: self.jobs), lambda: self.lease.answered)

    async def run(self) -> int:
        """See `serve`."""
        port = await self._page.open(self._settings.health_host, self._settings.health_port)
        logger.info("health and metrics on port %d", port)
        loop = asyncio.get_running_loop()
        stop, acquire = loop.create_task(self._stopped.wait()), loop.create_task(self.lease.acquire())
        try:
            await asyncio.wait({stop, acquire}, return_when=asyncio.FIRST_COMPLETED)
            if not acquire.done():
                return 0
            acquire.result()
            return await self._lead()
        finally:
            for task in (stop, acquire):
                task.cancel()
            await self.lease.release()
            await self._page.close()

    async def _lead(self) -> int:
        """Work while the lease is held."""
        settings, lease = self._settings, self.lease
        cluster = Cluster(self._api, lambda: lease.held)
        around = Surroundings(
            cluster,
            Nodes(self._clock),
            lambda: lease.held,
            lease.identity,
            lease.term,
            settings.agent_port,
            Operators(settings.lease_namespace, settings.operators) if settings.operators else None,
            self._clock,
            self._wall,
        )
        jobs = self.jobs = Jobs(around, settings.namespaces)
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        registry = registry_of(jobs, self._login, nodes=settings.nodes)
        watches = kopf_settings(settings.watching)
        watching = loop.create_task(
            keep_watching(registry, watches, settings.namespaces, stop, lambda: cluster.serves(JOBS))
        )
        keep, look = loop.create_task(lease.keep()), loop.create_task(jobs.keep_looking())
        end = loop.create_task(self._stopped.wait())
        try:
            await asyncio.wait({keep, look, watching, end}, return_when=asyncio.FIRST_COMPLETED)
            for failed in (look, watching):
                if failed.done():
                    failed.result()
            return EXIT_DEPOSED if keep.done() else 0
        finally:
            await jobs.close()
            stop.set()
            await asyncio.wait({watching}, timeout=10.0)
            for each in (keep, look, end, watching):
                each.cancel()
            await asyncio.gather(keep, look, end, watching, return_exceptions=True)


@asynccontextmanager
async def _api() -> AsyncIterator[client.ApiClient]:
    """A client with the pod's service account, or else the user's kubeconfig."""
    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except config.ConfigException:
        await config.load_kube_config(client_configuration=configuration)
    configuration.connection_pool_maxsize = 64
    async with api_client(configuration) as api:
        yield api


def api_client(configuration: client.Configuration) -> client.ApiClient:
    """A client that goes the way that the watches go: kopf's looks into no environment, and this one's would.

    It would take proxies from HTTPS_PROXY, and knows of no address ranges in NO_PROXY, so that a cluster's own address
    would be looked for at the proxy; and passwords from ~/.netrc, in a thread. A kubeconfig's proxy-url is heeded.
    """
    api = client.ApiClient(configuration)
    api.rest_client.pool_manager._trust_env = False  # there is no other way to say so
    return api
