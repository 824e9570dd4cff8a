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
from spare_operator.pod import JobKey

_PATIENCE: Final = 60.0
"""Seconds in which what is left of an earlier job of the same name must have been collected."""


class Occupied(Exception):
    """The name is taken by something that is not ours."""


@dataclass(frozen=True)
class Credentials:
    """What the operator shows the agents of one job."""

    token: str = field(repr=False)
    authority: str = field(repr=False)
    pair: Pair = field(repr=False)

    def transport(self) -> Tls:
        """Dials agents."""
        return Tls(calling_context(self.authority, self.pair), AGENT_NAME)


async def credentials(cluster: Cluster, job: JobKey) -> Credentials:
    """Those of the job, made if there are none yet. Ours is written first and holds all, so a crash loses nothing.

    Raises:
        Occupied: another object has the name and does not go.
    """
    whole = await _kept(cluster, job, names.operator_secret(job.name), _fresh)
    await _kept(
        cluster,
        job,
        names.agent_secret(job.name),
        lambda job: {name: whole[name] for name in ("token", "ca.crt", "tls.crt", "tls.key")},
    )
    return Credentials(whole["token"], whole["ca.crt"], Pair(whole["operator.crt"], whole["operator.key"]))


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
        try:
            there = await cluster.get(SECRETS, job.namespace, name)
        except NotFound:
            contents = make(job)
            body: Body = {"metadata": job.meta(name), "type": "Opaque", "data": _encoded(contents)}
            try:
                await cluster.create(SECRETS, job.namespace, body)
                return contents
            except Exists:
                continue
        if (there["metadata"].get("labels") or {}).get(names.JOB_UID) == job.uid:
            return {key: base64.b64decode(value).decode() for key, value in there["data"].items()}
        if asyncio.get_running_loop().time() > deadline:
            raise Occupied(f"Secret {job.namespace}/{name} is not of this job and did not go within {_PATIENCE:.0f} s")
        await asyncio.sleep(1.0)


def _encoded(contents: dict[str, str]) -> dict[str, str]:
    return {key: base64.b64encode(text.encode()).decode() for key, text in contents.items()}
