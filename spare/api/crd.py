"""The CustomResourceDefinition `sparejobs.spare.training`, made from the models. `kubectl explain` reads from it."""

from __future__ import annotations

from typing import Any, Final

import yaml

from spare.api.job import API_VERSION, KIND, SPAReJob
from spare.api.schema import Schema, structural
from spare.api.status import Status

GROUP, VERSION = API_VERSION.split("/")
PLURAL: Final = "sparejobs"
NAME: Final = f"{PLURAL}.{GROUP}"

_COLUMNS: Final = (
    ("State", "string", '.status.conditions[?(@.status=="True")].type', 0, "The first condition that is true."),
    ("Reason", "string", '.status.conditions[?(@.type=="Running")].reason', 0, "Why it runs, or does not."),
    ("Groups", "integer", ".status.groups.active", 0, "Groups that train."),
    ("Desired", "integer", ".spec.groups", 1, "Groups asked for."),
    ("Depth", "number", ".status.depth", 0, "A step takes this many times a healthy one."),
    ("Step", "integer", ".status.step", 0, "Steps committed."),
    ("Epoch", "integer", ".status.epoch", 0, "Number of the newest plan."),
    ("Masked", "integer", ".status.masked", 1, "Losses that cost neither a restart nor a sample."),
    ("Hosts-Left", "integer", ".status.hostsLeft", 1, "Fewest live hosts of a shard."),
    ("Restarts", "integer", ".status.restarts", 0, "Restarts of all groups from a checkpoint."),
    ("Age", "date", ".metadata.creationTimestamp", 0, "Time since the job was made."),
)


def crd() -> dict[str, Any]:
    """The whole definition as plain data."""
    names = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": PLURAL,
        "singular": "sparejob",
        "shortNames": ["spj"],
        "categories": ["all"],
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema()},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [_column(*each) for each in _COLUMNS],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/name": "spare", "app.kubernetes.io/part-of": "spare"}},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def schema() -> Schema:
    """The schema of a whole SPAReJob, status included."""
    job = structural(SPAReJob)
    job["required"] = ["spec"]  # the API server itself asks for apiVersion, kind and metadata
    job["properties"] = {
        "apiVersion": {"type": "string", "description": f"Always {API_VERSION}."},
        "kind": {"type": "string", "description": f"Always {KIND}."},
        "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}},  # its own limit
        "spec": job["properties"]["spec"],
        "status": structural(Status, defaults=False),
    }
    return job


def document() -> str:
    """The text of manifests/crd/sparejobs.yaml."""
    head = "# Made from spare/api by `make manifests`; a test compares the two. Not edited by hand.\n"
    return head + yaml.dump(crd(), sort_keys=False, width=118, allow_unicode=True, Dumper=_Plain)


def _column(name: str, kind: str, path: str, priority: int, description: str) -> dict[str, Any]:
    column = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return column | ({"priority": priority} if priority else {})


class _Plain(yaml.SafeDumper):
    """No anchors: what is written twice is read twice."""

    def ignore_aliases(self, data: object) -> bool:
        """Always."""
        return True
