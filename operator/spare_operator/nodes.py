"""What is known of the cluster's nodes: where each lies, and what is wrong with it. Nothing, where we may not look.

That a node is not ready is what the control plane makes of its kubelet's silence. Where most are silent at once it is
the control plane that cannot hear, as Kubernetes takes it, too, and then evicts nobody; and one that has just come back
hears of each node a little later. So it counts only after a while, and only of few nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from spare_operator.cluster import Body

RACK = "topology.kubernetes.io/rack"
"""Label that names a node's rack, where somebody sets it: Kubernetes has no agreed one."""
SETTLE: Final = 10.0
"""Seconds for which a node must have been not ready: as long as a kubelet takes to show itself again, and longer than
the control plane takes to find out about all nodes that it cannot hear. It finds out about one after 40 s and more."""
_SILENT: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints that say no more than the condition does."""


class Nodes:
    """The nodes as they were last seen."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bodies: dict[str, Body] = {}
        self._gone: set[str] = set()
        self._silent: dict[str, float] = {}
        """Since when they have been seen as not ready."""

    def see(self, body: Body, *, deleted: bool = False) -> str | None:
        """Take note of a node; returns what is newly wrong with it (None: nothing, or nothing new)."""
        name = body["metadata"]["name"]
        before = [*self._troubles(name), *self._silence(name)]
        if deleted:
            self._bodies.pop(name, None)
            self._gone.add(name)
        else:
            self._bodies[name] = body
            self._gone.discard(name)
        if silent := self._silence(name):
            self._silent.setdefault(name, self._clock())
        else:
            self._silent.pop(name, None)
        return next((each for each in [*self._troubles(name), *silent] if each not in before), None)

    def zone(self, node: str, key: str) -> tuple[str, ...]:
        """(zone, rack, node): what of a pod there fails together with others. `key`: the label that tells the zone."""
        labels = self._bodies.get(node, {}).get("metadata", {}).get("labels") or {}
        return (labels.get(key, ""), labels.get(RACK, ""), node)

    def trouble(
        self, node: str, tolerations: Iterable[Body] = (), used: Callable[[], Iterable[str]] = tuple
    ) -> str | None:
        """Why a pod with these tolerations should leave it; None if nothing is wrong with it (field case F32).

        `used`: the nodes that the pod's job is on. Where most of them are not ready it has nowhere to go.
        """
        if found := self._troubles(node, tolerations):
            return found[0]
        since = self._silent.get(node)
        if since is None or self._clock() - since < SETTLE or self._most_silent(used()):
            return None
        return next(iter(self._silence(node, tolerations)), None)

    def _most_silent(self, used: Iterable[str]) -> bool:
        """Whether it is the control plane that does not hear, and not the nodes that are silent."""
        there = set(used)
        return 2 * len(self._silent) > len(self._bodies) or 2 * len(there & self._silent.keys()) > len(there) > 0

    def _troubles(self, node: str, tolerations: Iterable[Body] = ()) -> list[str]:
        """What somebody wants of it."""
        if node in self._gone:
            return [f"node {node} was deleted"]
        body, found = self._bodies.get(node, {}), list[str]()
        if body.get("metadata", {}).get("deletionTimestamp"):
            found.append(f"node {node} is being deleted")
        return found + [_told(node, taint) for taint in _taints(body, tolerations) if taint.get("key") not in _SILENT]

    def _silence(self, node: str, tolerations: Iterable[Body] = ()) -> list[str]:
        """What the control plane makes of its kubelet's silence."""
        body = self._bodies.get(node, {})
        found = [
            f"node {node} is not ready ({condition.get('reason') or condition.get('status')})"
            for condition in (body.get("status") or {}).get("conditions") or []
            if condition.get("type") == "Ready" and condition.get("status") != "True"
        ]
        return found + [_told(node, taint) for taint in _taints(body, tolerations) if taint.get("key") in _SILENT]


def _taints(body: Body, tolerations: Iterable[Body]) -> list[Body]:
    """Those that send a pod with these tolerations away."""
    every = (body.get("spec") or {}).get("taints") or []
    given = tuple(tolerations)
    return [t for t in every if t.get("effect") == "NoExecute" and not any(_tolerates(each, t) for each in given)]


def _told(node: str, taint: Body) -> str:
    return f"node {node} has the taint {taint.get('key')}:NoExecute"


def _tolerates(toleration: Body, taint: Body) -> bool:
    """Whether a pod may stay for good in spite of a taint, as Kubernetes has it. Some seconds are not for good: every
    pod is given such tolerations of dead nodes."""
    if toleration.get("tolerationSeconds") is not None or toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    key, of_any_value = toleration.get("key") or "", toleration.get("operator") == "Exists"
    if key != taint.get("key") and not (of_any_value and not key):
        return False
    return of_any_value or (toleration.get("value") or "") == (taint.get("value") or "")
