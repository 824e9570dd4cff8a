"""What is known of the cluster's nodes: where each lies, and what is wrong with it. Nothing, where we may not look."""

from __future__ import annotations

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
        before = self.trouble(name)
        if deleted:
            self._bodies.pop(name, None)
            self._gone.add(name)
        else:
            self._bodies[name] = body
            self._gone.discard(name)
        after = self.trouble(name)
        return after if after != before else None

    def zone(self, node: str, key: str) -> tuple[str, ...]:
        """(zone, rack, node): what of a pod there fails together with others. `key`: the label that tells the zone."""
        labels = self._bodies.get(node, {}).get("metadata", {}).get("labels") or {}
        return (labels.get(key, ""), labels.get(RACK, ""), node)

    def trouble(self, node: str) -> str | None:
        """Why pods should leave that node; None if nothing speaks against it (field case F32)."""
        if node in self._gone:
            return f"node {node} was deleted"
        body = self._bodies.get(node)
        if body is None:
            return None
        if body["metadata"].get("deletionTimestamp"):
            return f"node {node} is being deleted"
        for taint in (body.get("spec") or {}).get("taints") or []:
            if taint.get("effect") == "NoExecute":
                return f"node {node} has the taint {taint.get('key')}:NoExecute"
        for condition in (body.get("status") or {}).get("conditions") or []:
            if condition.get("type") == "Ready" and condition.get("status") != "True":
                return f"node {node} is not ready ({condition.get('reason') or condition.get('status')})"
        return None
