"""A cluster for the commands on one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spare_operator import names
from tests.cli.served import CHECKPOINT, Served, condition, event, pod, recorded, spare_pod
from tests.operator.bed import NAMESPACE, job_body


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """With a job of four groups of which the last is lost, its pods and its plan; and a second job of another uid."""
    made = Served(tmp_path)
    job = made.api.put("sparejobs", job_body(runPolicy={"backoffLimit": 2}))
    uid = job["metadata"]["uid"]
    conditions = [condition("Degraded", "GroupLost", "group 3 lost"), condition("Running", "GroupLost", "group 3 lost")]
    status = {"conditions": conditions, "epoch": 2, "step": 41, "depth": 1.375, "hostsLeft": 2, "masked": 1}
    made.api.patch("sparejobs", NAMESPACE, "job", status=status)
    meta = {"name": "job-plan", "namespace": NAMESPACE, "labels": {names.JOB_UID: uid}}
    made.api.put("configmaps", {"metadata": meta, "data": {"plan.json": recorded(uid)}})
    for group in range(4):
        made.api.put("pods", pod(uid, group))
    for number, incarnation in enumerate(("s0", "s1")):
        made.api.put("pods", spare_pod(uid, number, incarnation))
    made.api.put("events", event("e1", uid, "Checkpointed", f"{CHECKPOINT} is complete", at="00:00"))
    made.api.put("events", event("e2", uid, "GroupLost", "group 3 lost", groups="3", at="01:00"))
    made.api.put("events", event("e3", "another", "GroupLost", "of another job", groups="1", at="02:00"))
    yield made
    made.close()
