"""`kubectl spare`, as a plugin of the real kubectl: a job is looked at, a group drained, all suspended and resumed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.e2e.install import Images
from tests.e2e.jobs import START, integers, pods_of, status, told, wait_condition, wait_step
from tests.e2e.kubectl import Namespace, call, wait_for

pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """kubectl finds `kubectl-spare` where this Python's commands are."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")


@pytest.mark.usefixtures("plugin")
def test_a_job_is_looked_at_drained_suspended_and_resumed(namespace: Namespace, images: Images) -> None:
    """Each command ends when it has happened; a drained group is no loss, and comes back."""

    def spare(*arguments: str) -> str:
        return call("kubectl", "spare", arguments[0], "-n", namespace.name, *arguments[1:], seconds=300.0)

    namespace.apply(integers("seen", images.trainer, namespace, steps=100_000))
    wait_condition(namespace, "seen", "Running", START)
    wait_step(namespace, "seen", 5, 60)
    found = json.loads(spare("status", "seen", "-o", "json"))
    assert (found["state"], found["epoch"], found["masked"]) == ("Running", 1, 0)
    assert [each["state"] for each in found["groups"]] == ["active"] * 4
    assert all(len(each["stack"]) == 3 and each["load"] == 4 and each["nodes"] for each in found["groups"])
    assert "Started" in spare("status", "seen")

    (former,) = (pod["metadata"]["name"] for pod in pods_of(namespace, "seen", 2))
    said = spare("drain", "seen", "2")

    assert f"pod {former} is evicted" in said
    assert "group 2 has left" in said
    wait_for(
        "group 2 to be back",
        lambda: (known := status(namespace, "seen"))["groups"]["active"] == 4 and known["drained"] == 1,
        120,
        lambda: told(namespace, "seen"),
    )
    assert status(namespace, "seen")["masked"] == 0
    assert "Drained" in spare("events", "seen")
    assert "seen is Suspended" in spare("suspend", "seen", "--wait", "90")
    assert "seen is Running" in spare("resume", "seen", "--wait", f"{START:g}")
