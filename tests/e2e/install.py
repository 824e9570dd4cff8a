"""Installing SPARe as users do: from a packaged chart, or from the manifests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.e2e.kubectl import Namespace, call, wait_for

ROOT = Path(__file__).parents[2]
SYSTEM = Namespace("spare-system")
READY_SECONDS = 180.0


@dataclass(frozen=True)
class Images:
    """Full names of the project's images, which the nodes have."""

    operator: str
    trainer: str

    @property
    def values(self) -> tuple[str, ...]:
        """What the chart must be told of them."""
        repository, _, tag = self.operator.rpartition(":")
        return ("--set", f"image.repository={repository}", "--set", f"image.tag={tag}")


@dataclass(frozen=True)
class Release:
    """An installed chart."""

    chart: Path
    images: Images
    namespace: Namespace = SYSTEM
    name: str = "spare"
    values: tuple[str, ...] = ()

    def install(self) -> None:
        """`helm upgrade --install`, until the operator is ready."""
        # the definition may have been applied by hand before, as other tests do
        place = ("--create-namespace", "--take-ownership")
        self.helm("upgrade", "--install", self.name, str(self.chart), *place, *self.images.values, *self.values)
        wait_ready(self.namespace, f"{self.name}-operator")

    def uninstall(self) -> None:
        """Remove it; the custom resource definition stays."""
        self.helm("uninstall", self.name, "--ignore-not-found", "--wait", "--timeout", "90s")

    def helm(self, *arguments: str) -> str:
        """`helm -n NAMESPACE ARGUMENTS...`."""
        return call("helm", "-n", self.namespace.name, *arguments, seconds=120.0)


def wait_ready(namespace: Namespace, deployment: str) -> None:
    """Until every replica of the newest generation answers /readyz."""

    def probe() -> bool:
        body = namespace.find("deployment", deployment)
        if body is None:
            return False
        status, wanted = body.get("status", {}), body["spec"]["replicas"]
        fresh = status.get("observedGeneration", 0) >= body["metadata"]["generation"]
        return bool(fresh and status.get("updatedReplicas", 0) == status.get("availableReplicas", 0) == wanted)

    def seen() -> object:
        return {pod["metadata"]["name"]: pod["status"].get("containerStatuses") for pod in namespace.all("pod")}

    wait_for(f"deployment {namespace.name}/{deployment} to be ready", probe, READY_SECONDS, seen)


def operator_log(namespace: Namespace = SYSTEM) -> str:
    """What all replicas have logged."""
    pods = namespace.all("pod", {"app.kubernetes.io/name": "spare-operator"})
    return "\n".join(namespace.kubectl("logs", pod["metadata"]["name"], "--tail=-1") for pod in pods)


def refusals(log: str) -> list[str]:
    """What the operator was not allowed to do. Who works for a namespace that goes meanwhile is refused, too, with all
    rights."""
    refused = [line for line in log.splitlines() if "Forbidden" in line or " 403" in line]
    return [line for line in refused if "because it is being terminated" not in line]
