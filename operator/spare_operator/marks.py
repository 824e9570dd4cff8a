"""What marks an object as a job's, its labels and its owner, and how it is put back where somebody has changed it.

Labels are how objects are found, and no proof: whoever may edit pods may strip them. Which job, group and start a pod
belongs to its environment says, which nobody can change; so a pod without its labels is found by its name or by that,
stays in the plan, and gets its labels back. Without its owner it would outlive its job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from spare_operator import names
from spare_operator.cluster import JOBS, PODS, ApiError, Body, Cluster, Conflict, NotFound, NotLeading
from spare_operator.pod import JobKey, Pods
from spare_operator.seen import Seen

logger = logging.getLogger(__name__)


def belongs(body: Body, job: JobKey) -> bool:
    """Whether an object is the job's, by its label or by its owner."""
    meta = body["metadata"]
    return bool((meta.get("labels") or {}).get(names.JOB_UID) == job.uid) or owned(meta.get("ownerReferences"), job)


def owned(owners: Iterable[Body] | None, job: JobKey) -> bool:
    """Whether the job is among an object's owners: then it goes with the job."""
    return any(owner.get("uid") == job.uid for owner in owners or ())


def marked(body: Body, job: JobKey) -> Body:
    """The object with all marks."""
    meta = body["metadata"]
    owners = list(meta.get("ownerReferences") or [])
    return {
        **body,
        "metadata": {
            **meta,
            "labels": {**(meta.get("labels") or {}), **job.labels},
            "ownerReferences": owners if owned(owners, job) else [*owners, _owner(owners, job)],
        },
    }


def whose(body: Body) -> str:
    """Whose object it is that has a job's name, and what to do about it, for people."""
    meta = body["metadata"]
    uid = (meta.get("labels") or {}).get(names.JOB_UID)
    if uid and not meta.get("ownerReferences"):
        kinds = "pods,configmaps,secrets,networkpolicies"
        found = f"kubectl -n {meta['namespace']} delete {kinds} -l {names.JOB_UID}={uid}"
        return f"is of a former job of that name, deleted without what it had made; to remove all of that: {found}"
    return "is of a former job of that name" if uid else "is not of this job"


def left_behind(body: Body) -> bool:
    """Whether nobody will collect it: it has no owner."""
    return not body["metadata"].get("ownerReferences")


def lacking(pods: Pods, seen: Seen) -> dict[str, str | None]:
    """The labels that a pod should have, or (None) should not, and that it has otherwise."""
    wanted: dict[str, str | None] = {**pods.marks(seen.group, seen.pod, seen.incarnation)}
    stale = {names.GROUP_NUMBER, names.SPARE_NUMBER} & seen.labels.keys() - wanted.keys()
    wanted |= dict.fromkeys(stale)
    return {label: value for label, value in wanted.items() if seen.labels.get(label) != value}


async def put_back(cluster: Cluster, pods: Pods, there: Iterable[Seen], see: Callable[[Body], None]) -> list[str]:
    """Give pods the labels and the owner that they lack; names of those that somebody's hand was at.

    That a spare is labelled as the group whose place it has taken is no such thing.

    Args:
        cluster, pods, there: where, of which job, and which of its pods.
        see: told of each as it is now.
    """
    by_hand = list[str]()
    for seen in there:
        labels, kept = lacking(pods, seen), owned(seen.owners, pods.job)
        if not labels and kept:
            continue
        meta: dict[str, Any] = {"uid": seen.uid, "labels": labels}
        try:
            if not kept:
                if await _going(cluster, pods.job):
                    return by_hand
                meta["ownerReferences"] = [*seen.owners, _owner(seen.owners, pods.job)]
            see(await cluster.patch(PODS, pods.job.namespace, seen.name, {"metadata": meta}))
            if not kept or labels.keys() != {names.GROUP_NUMBER, names.SPARE_NUMBER}:
                by_hand.append(seen.name)
        except (NotFound, Conflict):
            pass  # it is gone, or another has its name
        except ApiError as error:
            logger.warning("pod %s could not be labelled, will be tried again: %s", seen.name, error)
        except NotLeading:
            break
    return by_hand


def _owner(owners: Iterable[Body], job: JobKey) -> Body:
    """Us among others, of whom one may be the controller: there can be no other."""
    return {**job.owner, "controller": not any(owner.get("controller") for owner in owners)}


async def _going(cluster: Cluster, job: JobKey) -> bool:
    """Whether the job is being deleted: with `--cascade=orphan` its pods are to stay, and to have no owner."""
    try:
        body = await cluster.get(JOBS, job.namespace, job.name)
    except NotFound:
        return True
    return bool(body["metadata"]["uid"] != job.uid or body["metadata"].get("deletionTimestamp"))
