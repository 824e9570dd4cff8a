"""A job's token and certificates: made once, kept in two Secrets, one that the pods read and one that only we do."""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from spare.coordinator.transport import Tls
from spare_operator import names
from spare_operator.certificates import AGENT_NAME, Pair, calling_context, issue
from spare_operator.cluster import SECRETS, Body, Cluster, Exists, NotFound
from spare_operator.marks import belongs, left_behind, whose
from spare_operator.pod import JobKey

_PATIENCE: Final = 60.0
"""Seconds in which what is left of an earlier job of the same name must have been collected."""


class Occupied(Exception):
    """The name is taken by something that is not ours, or what was ours is gone for good."""


@dataclass(frozen=True)
class Credentials:
    """What the operator shows the agents of one job, and what it has to make the Secrets again."""

    contents: dict[str, str] = field(repr=False)

    @property
    def token(self) -> str:
        """The job's."""
        return self.contents["token"]

    def transport(self) -> Tls:
        """Dials agents."""
        pair = Pair(self.contents["operator.crt"], self.contents["operator.key"])
        return Tls(calling_context(self.contents["ca.crt"], pair), AGENT_NAME)


async def credentials(
    cluster: Cluster, job: JobKey, known: Credentials | None = None, *, trains: bool = False
) -> Credentials:
    """Those of the job, made if there are none yet. Ours is written first and holds all, so a crash loses nothing.

    Args:
        cluster: where the job is.
        job: whose.
        known: what they are; then a Secret that somebody has deleted is made again.
        trains: whether agents may run that have them.

    Raises:
        Occupied: another object has the name and does not go; or ours is lost, and with it the authority of all agents.
    """
    if known is None:
        await _not_lost(cluster, job, trains)
    whole = await _kept(
        cluster, job, names.operator_secret(job.name), lambda job: _fresh(job) if known is None else known.contents
    )
    await _kept(
        cluster,
        job,
        names.agent_secret(job.name),
        lambda job: {name: whole[name] for name in ("token", "ca.crt", "tls.crt", "tls.key")},
    )
    return Credentials(whole)


async def _not_lost(cluster: Cluster, job: JobKey, trains: bool) -> None:
    """An authority made anew would be believed by no agent that runs, and the pods' Secret would not fit it."""
    ours, agents = names.operator_secret(job.name), names.agent_secret(job.name)
    there = await _find(cluster, job, agents)
    if await _find(cluster, job, ours) is None and (trains or (there is not None and belongs(there, job))):
        raise Occupied(
            f"Secret {job.namespace}/{ours} was deleted, and the agents believe nobody else: restore it, or create"
            " the job anew"
        )


async def _find(cluster: Cluster, job: JobKey, name: str) -> Body | None:
    try:
        return await cluster.get(SECRETS, job.namespace, name)
    except NotFound:
        return None


def _fresh(job: JobKey) -> dict[str, str]:
    made = issue(str(job), datetime.now(UTC))
    return {
        "token": secrets.token_hex(32),
        "ca.crt": made.authority,
        "tls.crt": made.agent.certificate,
        "tls.key": made.agent.key,
        "operator.crt": made.operator.certificate,
        "operator.key": made.operator.key,
    }


async def _kept(cluster: Cluster, job: JobKey, name: str, make: Callable[[JobKey], dict[str, str]]) -> dict[str, str]:
    """The Secret's contents; what `make` gives if it has to be made."""
    deadline = asyncio.get_running_loop().time() + _PATIENCE
    while True:
        there = await _find(cluster, job, name)
        if there is None:
            contents = make(job)
            body: Body = {"metadata": job.meta(name), "type": "Opaque", "data": _encoded(contents)}
            try:
                await cluster.create(SECRETS, job.namespace, body)
                return contents
            except Exists:
                continue
        if belongs(there, job):
            return {key: base64.b64decode(value).decode() for key, value in there["data"].items()}
        if left_behind(there):
            raise Occupied(f"Secret {job.namespace}/{name} {whose(there)}")
        if asyncio.get_running_loop().time() > deadline:
            raise Occupied(f"Secret {job.namespace}/{name} {whose(there)}, and did not go within {_PATIENCE:.0f} s")
        await asyncio.sleep(1.0)


def _encoded(contents: dict[str, str]) -> dict[str, str]:
    return {key: base64.b64encode(text.encode()).decode() for key, text in contents.items()}
