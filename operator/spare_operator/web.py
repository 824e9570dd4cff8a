"""The operator's page for probes and metrics."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector

from spare_operator.metrics import Collector, page


class Page:
    """Serves /healthz, /readyz and /metrics. Needs no rights, tells no secret."""

    def __init__(self, collector: Collector, ready: Callable[[], bool]) -> None:
        """`ready`: whether the API server has been reached; an operator that waits for the lease is ready, too."""
        self._ready = ready
        self._registry = CollectorRegistry()
        self._registry.register(collector)
        ProcessCollector(registry=self._registry)
        self._runner: web.AppRunner | None = None

    async def open(self, host: str, port: int) -> int:
        """Begin to serve; returns the port. No host: at all addresses, of both families.

        Raises:
            OSError: the address cannot be had.
        """
        app = web.Application()
        app.add_routes(
            [web.get("/healthz", self._health), web.get("/readyz", self._readiness), web.get("/metrics", self._metrics)]
        )
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host or None, port)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Serve no more."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(text="the event loop turns\n")

    async def _readiness(self, request: web.Request) -> web.Response:
        if self._ready():
            return web.Response(text="ready\n")
        return web.Response(status=503, text="the API server has not answered yet\n")

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=page(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
