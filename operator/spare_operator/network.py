"""Who may connect to the pods of a job: its own pods, and the operator. A NetworkPolicy for each job (field case F58).

Policies add up, so whoever wants to reach more, such as a page of metrics in the pods, writes a policy of their own.
What the pods may reach is not ours to say: their data lie anywhere.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from spare_operator import names
from spare_operator.cluster import NETWORK_POLICIES, Body, Cluster, Conflict, Exists, NotFound
from spare_operator.credentials import Occupied
from spare_operator.marks import belongs, left_behind, whose
from spare_operator.pod import JobKey

PATIENCE: Final = 60.0
"""Seconds in which what is left of an earlier job of the same name must have been collected."""


@dataclass(frozen=True)
class Operators:
    """The pods that operators run in."""

    namespace: str
    labels: tuple[tuple[str, str], ...]


def policy_of(job: JobKey, operators: Operators, port: int) -> Body:
    """The policy. `port`: the agents', the only one that the operator needs."""
    siblings = {"podSelector": {"matchLabels": {names.JOB_UID: job.uid}}}
    callers = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": operators.namespace}},
        "podSelector": {"matchLabels": dict(operators.labels)},
    }
    return {
        "metadata": job.meta(names.network_policy(job.name)),
        "spec": {
            "podSelector": {"matchLabels": {names.JOB_UID: job.uid}},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [siblings]}, {"from": [callers], "ports": [{"port": port, "protocol": "TCP"}]}],
        },
    }


async def close_in(cluster: Cluster, job: JobKey, operators: Operators, port: int) -> None:
    """See to it that the job has its policy. It goes with the job.

    Operators of another release, name or agents' port than those that made it are let in beside the former: pods that
    run keep their port.

    Raises:
        Occupied: another object has the name and does not go.
        Refused: the operator has no right to make policies.
    """
    body = policy_of(job, operators, port)
    name = body["metadata"]["name"]
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while True:
        try:
            await cluster.create(NETWORK_POLICIES, job.namespace, body)
            return
        except Exists:
            pass
        try:
            there = await cluster.get(NETWORK_POLICIES, job.namespace, name)
        except NotFound:
            continue
        if belongs(there, job):
            if (wider := _with_rules(there, body)) is None:
                return
            try:
                await cluster.replace(NETWORK_POLICIES, wider)
                return
            except (Conflict, NotFound):
                continue  # somebody else was faster
        if left_behind(there):
            raise Occupied(f"NetworkPolicy {job.namespace}/{name} {whose(there)}")
        if asyncio.get_running_loop().time() > deadline:
            raise Occupied(f"NetworkPolicy {job.namespace}/{name} {whose(there)}, and did not go in {PATIENCE:.0f} s")
        await asyncio.sleep(1.0)


def _with_rules(there: Body, wanted: Body) -> Body | None:
    """The policy that is there with what it lacks of the wanted rules; None if it lacks none."""
    rules = (there.get("spec") or {}).get("ingress") or []
    lacking = [rule for rule in wanted["spec"]["ingress"] if rule not in rules]
    return {**there, "spec": {**wanted["spec"], "ingress": [*rules, *lacking]}} if lacking else None
