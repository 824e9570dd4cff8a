"""What is known of the cluster's nodes: where each lies, and what is wrong with it. Nothing, where we may not look."""

from __future__ import annotations

from collections.abc import Iterable

from spare_operator.cluster import Body

RACK = "topology.kubernetes.io/rack"
"""Label that names a node's rack, where somebody sets it: Kubernetes has no agreed one."""


class Nodes:
    """The nodes as they were last seen."""

    def __init__(self) -> None:
        self._bodies: dict[str, Body] = {}
        self._gone: set[str] = set()

    def see(self, body: Body, *, deleted: bool = False) -> str | None:
        """Take note of a node; returns what is newly wrong with it (None: nothing, or nothing new)."""
        name = body["metadata"]["name"]
        before = self._troubles(name)
        if deleted:
            self._bodies.pop(name, None)
            self._gone.add(name)
        else:
            self._bodies[name] = body
            self._gone.discard(name)
        return next((each for each in self._troubles(name) if each not in before), None)

    def zone(self, node: str, key: str) -> tuple[str, ...]:
        """(zone, rack, node): what of a pod there fails together with others. `key`: the label that tells the zone."""
        labels = self._bodies.get(node, {}).get("metadata", {}).get("labels") or {}
        return (labels.get(key, ""), labels.get(RACK, ""), node)

    def trouble(self, node: str, tolerations: Iterable[Body] = ()) -> str | None:
        """Why a pod with these tolerations should leave it; None if nothing is wrong with it (field case F32)."""
        return next(iter(self._troubles(node, tolerations)), None)

    def _troubles(self, node: str, tolerations: Iterable[Body] = ()) -> list[str]:
        if node in self._gone:
            return [f"node {node} was deleted"]
        body, found = self._bodies.get(node, {}), list[str]()
        if body.get("metadata", {}).get("deletionTimestamp"):
            found.append(f"node {node} is being deleted")
        for taint in (body.get("spec") or {}).get("taints") or []:
            if taint.get("effect") == "NoExecute" and not any(_tolerates(each, taint) for each in tolerations):
                found.append(f"node {node} has the taint {taint.get('key')}:NoExecute")
        for condition in (body.get("status") or {}).get("conditions") or []:
            if condition.get("type") == "Ready" and condition.get("status") != "True":
                found.append(f"node {node} is not ready ({condition.get('reason') or condition.get('status')})")
        return found


def _tolerates(toleration: Body, taint: Body) -> bool:
    """Whether a pod may stay for good in spite of a taint, as Kubernetes has it. Some seconds are not for good: every
    pod is given such tolerations of dead nodes."""
    if toleration.get("tolerationSeconds") is not None or toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    key, of_any_value = toleration.get("key") or "", toleration.get("operator") == "Exists"
    if key != taint.get("key") and not (of_any_value and not key):
        return False
    return of_any_value or (toleration.get("value") or "") == (taint.get("value") or "")
