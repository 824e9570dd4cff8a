"""Rules between fields, in the language of the API server (CEL), so that no webhook is needed.

`spare.api.spec` holds the same rules in Python for `spare run` and `spare validate`; a test applies good and bad jobs
to a real API server and to the models, and both must answer alike. What may change on a job that exists is a rule of
the API server alone: a file has no past.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel

from spare.api.job import SPAReJob
from spare.api.rule import JOB_NAME, MAX_JOB_NAME
from spare.api.spec import Detection, Spec
from spare.api.template import PodTemplate

Validation = dict[str, Any]

FIXED: Final = ("groups", "podsPerGroup", "procPerPod", "redundancy", "microBatches", "scheduler", "placement", "seed")
"""Fields of the spec that never change: they decide which samples a step consists of, and who holds which shard."""

WHILE_SUSPENDED: Final = (
    *("template", "detection", "reduction", "minGroups", "spares", "checkpoint"),
    *("onWipeOut", "onPoison", "onStraggler"),
)
"""Fields that are read when a job starts or resumes: they may change while it has no pods. A queue such as Kueue sets
node selectors and tolerations in the template when it lets a job go. Left is runPolicy, which may always change."""


def _same(name: str) -> str:
    if name == "minGroups":  # the one among them that may be absent
        return "self.?minGroups == oldSelf.?minGroups"
    return f"self.{name} == oldSelf.{name}"


def _fixed(name: str) -> Validation:
    return {
        "rule": _same(name),
        "message": f"spec.{name} cannot be changed: it decides which samples a step consists of; make a new job",
        "fieldPath": f".{name}",
        "reason": "FieldValueForbidden",
    }


def _while_suspended(name: str) -> Validation:
    return {
        "rule": f"oldSelf.runPolicy.suspend || ({_same(name)})",
        "message": f"spec.{name} can be changed only while spec.runPolicy.suspend is true",
        "fieldPath": f".{name}",
        "reason": "FieldValueForbidden",
    }


_RULES: Final[dict[type[BaseModel], list[Validation]]] = {
    SPAReJob: [
        {
            "rule": f"size(self.metadata.name) <= {MAX_JOB_NAME}"
            f" && self.metadata.name.matches('{JOB_NAME.schema['pattern']}')",
            "message": f"metadata.name must be {JOB_NAME.allowed}",
        }
    ],
    Detection: [
        {
            "rule": "duration(self.heartbeat) < duration(self.deadAfter)",
            "messageExpression": "'spec.detection.deadAfter must be longer than spec.detection.heartbeat (' +"
            " self.heartbeat + '), or every group is lost between two of them, but is ' + self.deadAfter",
            "fieldPath": ".deadAfter",
        },
        {
            "rule": "duration(self.deadAfter) <= duration(self.hangAfter)",
            "messageExpression": "'spec.detection.hangAfter must be at least spec.detection.deadAfter (' +"
            " self.deadAfter + '), for a dead group shows no progress either, but is ' + self.hangAfter",
            "fieldPath": ".hangAfter",
        },
    ],
    Spec: [
        {
            "rule": "self.redundancy == 'auto' || int(self.redundancy) <= self.groups",
            "message": "spec.redundancy must be auto or at most spec.groups, the most hosts that a shard can have",
            "fieldPath": ".redundancy",
        },
        {
            "rule": "!has(self.minGroups) || self.minGroups <= self.groups",
            "message": "spec.minGroups must be at most spec.groups",
            "fieldPath": ".minGroups",
        },
        {
            "rule": "self.onWipeOut != 'Restart' || has(self.checkpoint.path)",
            "message": "spec.onWipeOut must be Fail or Fetch while spec.checkpoint.path is not set, for there is"
            " nothing to restart from",
            "fieldPath": ".onWipeOut",
        },
        *(_fixed(name) for name in FIXED),
        *(_while_suspended(name) for name in WHILE_SUSPENDED),
    ],
    PodTemplate: [
        {
            "rule": "size(self.spec.containers) == 1 || self.spec.containers.exists_one(c, c.name == 'trainer')",
            "message": "spec.template.spec.containers must be a list of containers, one of them named trainer or there"
            " being only one",
            "fieldPath": ".spec.containers",
        },
        {
            "rule": "self.spec.containers.all(c, (size(self.spec.containers) > 1 && c.name != 'trainer')"
            " || (has(c.command) && size(c.command) > 0))",
            "message": "the container that trains must have a command, as a list of words, not left to the image",
            "fieldPath": ".spec.containers",
        },
    ],
}


def rules_of(model: type[BaseModel]) -> list[Validation]:
    """The rules that hold between the fields of one model."""
    return [dict(rule) for rule in _RULES.get(model, [])]
