"""The operator's page for probes: where kubelets look."""

from __future__ import annotations

import asyncio

import aiohttp

from spare_operator.metrics import Collector
from spare_operator.settings import Settings
from spare_operator.web import Page


def test_probes_of_both_families_are_answered() -> None:
    """A cluster without IPv4 probes at the pod's IPv6 address: the page is at all addresses unless told otherwise."""

    async def main() -> None:
        page = Page(Collector(lambda: False, lambda: None), lambda: False)
        await page.open(Settings().health_host, 0)
        assert page._runner is not None
        try:
            places = {"[::1]" if ":" in at[0] else "127.0.0.1": at[1] for at in page._runner.addresses}
            assert places.keys() == {"[::1]", "127.0.0.1"}
            async with aiohttp.ClientSession() as session:
                for host, port in places.items():
                    async with session.get(f"http://{host}:{port}/healthz") as answer:
                        assert answer.status == 200
                    async with session.get(f"http://{host}:{port}/readyz") as answer:
                        assert answer.status == 503
        finally:
            await page.close()

    asyncio.run(main())
