"""The operator's own settings, set by flags or variables: see `spare-operator --help`."""

from __future__ import annotations

from dataclasses import dataclass, field

from spare_operator import names
from spare_operator.lease import Timing


@dataclass(frozen=True)
class Watching:
    """Seconds that a watch may stand: by these a connection that was lost in silence is noticed (field case F53)."""

    server_timeout: int = 120
    """After which the API server is asked to end it, so that it is known to be alive; then it is begun again. Whole
    seconds: the API server reads no others."""
    client_timeout: float = 150.0
    """After which it is ended here: the server had time enough to do so."""
    connect_timeout: float = 5.0


@dataclass(frozen=True)
class Settings:
    """All of them."""

    namespaces: tuple[str, ...] = ()
    """Where jobs are looked for; empty: in all namespaces, which takes a ClusterRole."""
    nodes: bool = True
    """Watch nodes, to spread over zones and to react before pods do; takes a ClusterRole."""
    lease_namespace: str = "default"
    lease_name: str = "spare-operator"
    timing: Timing = field(default_factory=Timing)
    watching: Watching = field(default_factory=Watching)
    agent_port: int = names.AGENT_PORT
    operators: tuple[tuple[str, str], ...] = ()
    """Labels of the operators' own pods, in the Lease's namespace: each job gets a NetworkPolicy that lets in its own
    pods and these. Empty: no policies are made."""
    health_host: str = ""
    """Kubelets probe from outside the pod, at its address of either family. Empty: all."""
    health_port: int = 8080
