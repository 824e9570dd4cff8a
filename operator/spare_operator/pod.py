"""The pods of a job, as they are made: the template, and in the trainer's container our agent around the command.

Pure. What the user wrote stays as it stands; what we add are labels, the agent with its environment and certificate,
and an owner. Nothing of the job's own annotations reaches a pod (field case F42).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from spare.api.spec import Spec
from spare_operator import names
from spare_operator.cluster import Body

_VOLUME: Final = "spare-certificate"
_NOT_OURS_TO_PASS: Final = ("kopf.zalando.org/", "kopf.dev/", "kubectl.kubernetes.io/last-applied-configuration")


@dataclass(frozen=True)
class JobKey:
    """Which job: a name can be used again, its uid never."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}/{self.uid}"

    @property
    def labels(self) -> dict[str, str]:
        """By which everything of this job is found."""
        return {names.JOB_NAME: self.name, names.JOB_UID: self.uid, names.MANAGED_BY: names.OPERATOR}

    @property
    def owner(self) -> Body:
        """Owner reference: whatever has it goes when the job goes. It does not block the job's deletion (F40)."""
        api = f"{names.GROUP}/{names.VERSION}"
        return {"apiVersion": api, "kind": names.KIND, "name": self.name, "uid": self.uid, "controller": True}

    def meta(self, name: str, labels: Mapping[str, str] | None = None) -> Body:
        """Metadata of an object of ours."""
        return {
            "name": name,
            "namespace": self.namespace,
            "labels": {**self.labels, **(labels or {})},
            "ownerReferences": [self.owner],
        }


@dataclass(frozen=True)
class Pods:
    """How to make the pods of one job."""

    job: JobKey
    spec: Spec
    template: Mapping[str, Any]
    """spec.template as it stands in the object, unread fields included."""
    port: int = names.AGENT_PORT

    def spare(self, number: int) -> int | None:
        """Which spare (from 0) has that number; None: it is a group's."""
        return None if number < self.spec.groups else number - self.spec.groups

    def marks(self, group: int, pod: int, incarnation: str) -> dict[str, str]:
        """Our labels of a pod of that group, or spare."""
        spare = self.spare(group)
        number = {names.GROUP_NUMBER: str(group)} if spare is None else {names.SPARE_NUMBER: str(spare)}
        return {**self.job.labels, **number, names.POD_NUMBER: str(pod), names.INCARNATION: incarnation}

    def manifest(self, group: int, pod: int, incarnation: str) -> Body:
        """One pod of one start of a group; numbers from spec.groups on are spares'."""
        template = copy.deepcopy(dict(self.template))
        given = template.get("metadata") or {}
        spare = self.spare(group)
        which = group if spare is None else spare
        name = names.pod_name(self.job.name, which, pod, incarnation, spare=spare is not None)
        meta = self.job.meta(name)
        meta["labels"] = {**(given.get("labels") or {}), **self.marks(group, pod, incarnation)}
        annotations = {k: v for k, v in (given.get("annotations") or {}).items() if not k.startswith(_NOT_OURS_TO_PASS)}
        if annotations:
            meta["annotations"] = annotations
        spec: Body = template["spec"]
        spec["restartPolicy"] = "Never"  # a new incarnation is a new pod: the old one's place in the plan is gone
        spec.setdefault("topologySpreadConstraints", [self._spread()])
        secret = {"secretName": names.agent_secret(self.job.name)}
        spec["volumes"] = [*(spec.get("volumes") or []), {"name": _VOLUME, "secret": secret}]
        index = self.spec.template.trainer_index()
        assert index is not None  # the spec was read: it has one
        self._wrap(spec["containers"][index], group, pod, incarnation)
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}

    def _wrap(self, container: Body, group: int, pod: int, incarnation: str) -> None:
        container["command"] = ["spare-agent", "--", *container["command"]]
        ours = self._environment(group, pod, incarnation)
        named = {variable["name"] for variable in ours}
        # Ours first, so that the template's may refer to them as $(SPARE_GROUP); nobody else may set them.
        given = [variable for variable in container.get("env") or [] if variable["name"] not in named]
        container["env"] = [*ours, *given]
        mount = {"name": _VOLUME, "mountPath": names.SECRETS, "readOnly": True}
        container["volumeMounts"] = [*(container.get("volumeMounts") or []), mount]
        port = {"name": names.AGENT_PORT_NAME, "containerPort": self.port, "protocol": "TCP"}
        container["ports"] = [*(container.get("ports") or []), port]

    def _environment(self, group: int, pod: int, incarnation: str) -> list[Body]:
        spec = self.spec
        seconds = {
            "SPARE_HEARTBEAT": spec.detection.heartbeat,
            "SPARE_DEAD_AFTER": spec.detection.dead_after,
            "SPARE_COLLECTIVE_TIMEOUT": spec.reduction.collective_timeout,
            "SPARE_RENDEZVOUS_TIMEOUT": spec.reduction.rendezvous_timeout,
        }
        texts = {
            "SPARE_JOB": str(self.job),
            "SPARE_GROUP": str(group),
            "SPARE_SPARE": "" if (spare := self.spare(group)) is None else str(spare),
            "SPARE_POD": str(pod),
            "SPARE_PODS": str(spec.pods_per_group),
            "SPARE_PROCS": str(spec.proc_per_pod),
            "SPARE_UID": incarnation,
            "SPARE_PORT": str(self.port),
            "SPARE_SEED": str(spec.seed),
            "SPARE_GRACE": str(spec.template.spec.termination_grace_period_seconds),
            "SPARE_CHECKPOINT": spec.checkpoint.path or "",
            "SPARE_CHECKPOINT_KEEP": str(spec.checkpoint.keep),
            **{name: f"{value.total_seconds():g}" for name, value in seconds.items()},
            "SPARE_TLS_CA": f"{names.SECRETS}/ca.crt",
            "SPARE_TLS_CERT": f"{names.SECRETS}/tls.crt",
            "SPARE_TLS_KEY": f"{names.SECRETS}/tls.key",
        }
        token = {"secretKeyRef": {"name": names.agent_secret(self.job.name), "key": "token"}}
        return [
            *({"name": name, "value": text} for name, text in texts.items()),
            {"name": "SPARE_BIND", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "SPARE_TOKEN", "valueFrom": token},
            {"name": "PYTHONUNBUFFERED", "value": "1"},
        ]

    def _spread(self) -> Body:
        """Groups that fail together should be few: as even as the scheduler can, but never a reason not to run."""
        return {
            "maxSkew": 1,
            "topologyKey": self.spec.placement.spread_over,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {names.JOB_UID: self.job.uid}},
        }
