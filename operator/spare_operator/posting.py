"""Events about a job, as Kubernetes has them: written once, and never a reason to stop anything."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

from spare.api.reasons import EventReason
from spare.coordinator.observe import Event
from spare_operator import names
from spare_operator.cluster import EVENTS, ApiError, Body, Cluster, Exists, NotFound
from spare_operator.pod import JobKey

logger = logging.getLogger(__name__)

_WARNINGS: Final = frozenset(
    {
        *(EventReason.GROUP_LOST, EventReason.WIPE_OUT, EventReason.USER_ERROR, EventReason.DIVERGED),
        *(EventReason.STALLED, EventReason.POISON, EventReason.QUOTA_EXCEEDED, EventReason.PODS_NOT_STARTING),
        *(EventReason.BACKOFF_LIMIT_EXCEEDED, EventReason.DEADLINE_EXCEEDED, EventReason.UNHEARD),
        *(EventReason.REFUSED, EventReason.STRAGGLER, EventReason.BACKEND_FAILED, EventReason.BELOW_MIN_GROUPS),
        *(EventReason.CHECKPOINT_FAILED, EventReason.CHECKPOINT_UNREADABLE, EventReason.CHECKPOINT_MISMATCH),
        *(EventReason.INVALID_PLAN, EventReason.INVALID_SPEC, EventReason.MARKS_RESTORED),
    }
)
_LONGEST: Final = 1000
"""Characters of an event's message; Kubernetes takes 1,024."""


async def post(cluster: Cluster, job: JobKey, event: Event, *, final: bool = False) -> None:
    """Write an event about a job; that it cannot be written is logged. The same one twice is written once.

    Args:
        cluster, job, event: where, of which job, and what.
        final: it tells of the job's end. It is written once, however often it is asked for: who wrote the status may
            have died before it wrote the event, and the next operator cannot know.

    Raises:
        NotLeading: we may not.
    """
    at = datetime.fromtimestamp(event.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    which = job.uid if final else f"{job.uid} {event.at!r} {event.reason} {event.groups} {event.text}"
    meta = job.meta(f"{job.name}.{sha256(which.encode()).hexdigest()[:16]}")
    del meta["ownerReferences"]  # events outlive what they tell of
    if event.groups:
        meta["annotations"] = {names.GROUPS: ",".join(map(str, event.groups))}
    body: Body = {
        "metadata": meta,
        "involvedObject": {
            "apiVersion": f"{names.GROUP}/{names.VERSION}",
            "kind": names.KIND,
            "namespace": job.namespace,
            "name": job.name,
            "uid": job.uid,
        },
        "reason": str(event.reason),
        "message": event.text[:_LONGEST],
        "type": "Warning" if event.reason in _WARNINGS else "Normal",
        "source": {"component": names.OPERATOR},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
    try:
        await cluster.create(EVENTS, job.namespace, body)
    except Exists:
        pass  # that the job has ended was told, or the answer of an earlier try was not waited for
    except NotFound:
        pass  # the namespace is on its way out
    except ApiError as error:
        logger.warning("%s: an event could not be posted: %s", job, error)
