"""When to say that a pod does not start. What the kubelet calls an error is said at once, by `seen`; here is the rest.

A volume that cannot be mounted, such as one of a ConfigMap that does not exist, is an event of the pod's, and nothing
in the pod's status but that no container can start yet: the job would wait for it for ever without a word (F55).
"""

from __future__ import annotations

from typing import Final

from spare_operator.seen import Seen

UNPREPARED: Final = 45.0
"""Seconds after which volumes and network should have been there. They take some seconds."""


class Patience:
    """Remembers since when pods are without what they need. Times are the event loop's."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def lost(self, seen: Seen, now: float) -> str | None:
        """Why the pod does not start, if it should have by now."""
        if not seen.unprepared:
            self._since.pop(seen.uid, None)
            return seen.stuck
        if now - self._since.setdefault(seen.uid, now) <= UNPREPARED or seen.stuck is not None:
            return seen.stuck
        return f"its volumes or its network are not there; `kubectl describe pod {seen.name}` has the kubelet's reason"
