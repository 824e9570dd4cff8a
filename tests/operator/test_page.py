"""The operator's page for probes: where kubelets look."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import aiohttp
from prometheus_client import CollectorRegistry

from spare.control.recovered import Recovered
from spare.coordinator.meter import Meter
from spare_operator.metrics import Collector, page
from spare_operator.settings import Settings
from spare_operator.web import Page
from tests.control.drive import started


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


def test_the_wait_for_all_to_begin_again_is_no_detection() -> None:
    """A wipe-out that was seen within a second, and a restart for which groups were waited for two minutes."""
    moments = {"sign": 100.0, "given_up": 101.0, "decided": 221.0, "pushed": 221.25, "running": 223.25}
    seen = Recovered((1, 2), 7, 3, committed=227.25, reason="wipe-out", **moments)
    state = replace(started().state, recoveries=(seen,))
    training = SimpleNamespace(coordinator=SimpleNamespace(state=state, meter=Meter()))
    jobs: Any = SimpleNamespace(
        running=[SimpleNamespace(key=SimpleNamespace(namespace="team", name="job"), training=training)]
    )
    registry = CollectorRegistry()
    registry.register(Collector(lambda: True, lambda: jobs))

    lines = page(registry).decode().splitlines()

    sums = [line for line in lines if line.startswith("spare_job_regroup_seconds_sum")]
    assert [(line.split('phase="')[1].split('"')[0], float(line.split()[-1])) for line in sums] == [
        *(("detect", 1.0), ("restart", 120.0), ("plan", 0.25), ("regroup", 2.0), ("patch", 4.0), ("total", 127.25))
    ]
