"""What is told of a job, whatever cuts it short."""

from __future__ import annotations

import asyncio

from kubernetes_asyncio import client

from spare.api.reasons import EventReason
from spare.coordinator.observe import Event
from spare_operator.cluster import Cluster
from spare_operator.nodes import Nodes
from spare_operator.pod import JobKey
from spare_operator.record import Record
from spare_operator.reporter import Reporter
from spare_operator.serve import api_client
from spare_operator.surroundings import Surroundings
from tests.operator.api_server import ApiServer
from tests.operator.bed import NAMESPACE, job_body
from tests.operator.loop import run


def test_the_end_of_a_job_cuts_no_event_off() -> None:
    """A script that fails in its first second: its error is to be told while the pods that were made still are."""

    async def main() -> None:
        api = ApiServer()
        await api.open()
        clock = asyncio.get_running_loop().time
        async with api_client(client.Configuration(host=api.address)) as connection:
            cluster = Cluster(connection)
            key = JobKey(NAMESPACE, "job", api.put("sparejobs", job_body())["metadata"]["uid"])
            around = Surroundings(cluster, Nodes(), lambda: True, "operator", 1, clock=clock, wall=clock)
            reporter = Reporter(around, key, await Record.read(cluster, key), 1, lambda: None)
            for reason in (EventReason.POD_CREATED, EventReason.STARTED, EventReason.USER_ERROR):
                reporter.event(Event(clock(), reason, "told"))
            api.slow["/events"] = 2.0
            running = asyncio.get_running_loop().create_task(reporter.run())
            await asyncio.sleep(3.0)
            running.cancel()
            await asyncio.wait({running})
            await reporter.flush()

            assert sorted(e["reason"] for e in api.all("events")) == ["PodCreated", "Started", "UserError"]
        await api.close()

    run(main)
