"""What becomes of a job's pods, and of the job, once it has ended: the run policy's second half."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from spare.api.spec import CleanPodPolicy, RunPolicy
from spare.api.status import Status
from spare_operator import names
from spare_operator.cluster import JOBS, PODS, Body, Cluster
from spare_operator.pod import JobKey
from spare_operator.surroundings import Surroundings

logger = logging.getLogger(__name__)

FAREWELL: Final = 15.0
"""Seconds in which pods end by themselves after their last order, so that their logs say how; then they are deleted."""
LOOK: Final = 1.0


async def after_the_end(around: Surroundings, key: JobKey, policy: RunPolicy | None, status: Status) -> None:
    """Remove what the policy wants removed, now and later. Nothing is ever made again (field cases F34, F39).

    None: the spec cannot be read, and nothing is removed.
    """
    if policy is None:
        return
    if policy.clean_pod_policy is not CleanPodPolicy.NONE:
        await _ended_or_patient(around.cluster, key)
        await remove_pods(around.cluster, key, ended=policy.clean_pod_policy is CleanPodPolicy.ALL)
    if policy.ttl_seconds_after_finished is None or status.completion_time is None:
        return
    age = (around.now() - status.completion_time).total_seconds()
    await asyncio.sleep(max(0.0, policy.ttl_seconds_after_finished - age))
    logger.info("%s: deleted, %d s after its end", key, policy.ttl_seconds_after_finished)
    await around.cluster.delete(JOBS, key.namespace, key.name, uid=key.uid)


async def remove_pods(cluster: Cluster, key: JobKey, *, ended: bool = True) -> None:
    """Delete the job's pods; those that have ended only if asked for."""
    for pod in await _pods(cluster, key):
        if (ended or not _has_ended(pod)) and not pod["metadata"].get("deletionTimestamp"):
            await cluster.delete(PODS, key.namespace, pod["metadata"]["name"], uid=pod["metadata"]["uid"])


async def _ended_or_patient(cluster: Cluster, key: JobKey) -> None:
    deadline = asyncio.get_running_loop().time() + FAREWELL
    while asyncio.get_running_loop().time() < deadline:
        if all(_has_ended(pod) for pod in await _pods(cluster, key)):
            return
        await asyncio.sleep(LOOK)


async def _pods(cluster: Cluster, key: JobKey) -> list[Body]:
    return await cluster.list(PODS, key.namespace, {names.JOB_UID: key.uid})


def _has_ended(pod: Body) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
