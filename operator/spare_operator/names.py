"""What our objects are called, and by which labels they are found again. Names are checked for length by the CRD."""

from __future__ import annotations

import secrets
from typing import Final

GROUP: Final = "spare.training"
VERSION: Final = "v1alpha1"
KIND: Final = "SPAReJob"
PLURAL: Final = "sparejobs"

JOB_NAME: Final = "spare.training/job-name"
JOB_UID: Final = "spare.training/job-uid"
"""Which job, of those that had that name one after the other, an object belongs to."""
GROUP_NUMBER: Final = "spare.training/group"
SPARE_NUMBER: Final = "spare.training/spare"
"""Which spare (from 0) a pod belongs to, instead of a group, until it takes the place of one."""
POD_NUMBER: Final = "spare.training/pod"
"""Place of the pod in its group, from 0."""
INCARNATION: Final = "spare.training/incarnation"
"""Which start of its group a pod belongs to: the `uid` of all our messages. All pods of one start share it."""
GROUPS: Final = "spare.training/groups"
"""Annotation of an event: the groups that it is about, as 1,4,5."""
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
OPERATOR: Final = "spare-operator"
QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
"""Kueue's: pods with it are admitted by a queue."""

AGENT_PORT: Final = 29477
"""Where the agent listens in each pod, unless the operator is told another; below the ports that kernels give out."""
AGENT_PORT_NAME: Final = "spare-agent"
"""Of that port, in the container that the agent runs in."""
SECRETS: Final = "/var/run/secrets/spare.training"
"""Where the trainer's container finds its certificate."""

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""As Kubernetes' own generated names: nothing that forms words or is misread."""


def incarnation() -> str:
    """A mark for one start of a group that no other start had or will have."""
    return "".join(secrets.choice(_LETTERS) for _ in range(12))


def pod_name(job: str, group: int, pod: int, incarnation: str, *, spare: bool = False) -> str:
    """A name that no earlier pod had (field cases F31, F48): JOB-gN-pP-xxxxx, which tells what was started together; of
    a spare JOB-sN-pP-xxxxx, which it keeps."""
    return f"{job}-{'s' if spare else 'g'}{group}-p{pod}-{incarnation[:5]}"


def plan_map(job: str) -> str:
    """The ConfigMap with the newest plan."""
    return f"{job}-plan"


def agent_secret(job: str) -> str:
    """The Secret that pods read: token, authority, the agents' certificate."""
    return f"{job}-agent"


def operator_secret(job: str) -> str:
    """The Secret that only the operator reads: its own certificate for the job."""
    return f"{job}-operator"


def network_policy(job: str) -> str:
    """Who may connect to its pods, where such policies are asked for."""
    return f"{job}-pods"
