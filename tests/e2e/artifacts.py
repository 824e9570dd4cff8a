"""What is kept of a test that failed: objects, events, descriptions and logs, under artifacts/TEST/."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from tests.e2e.install import ROOT, SYSTEM
from tests.e2e.kubectl import Namespace

FOLDER = ROOT / "artifacts"


def keep(test: str, *namespaces: Namespace) -> Path:
    """Write down all there is; what cannot be read says why in its own file. Returns the folder."""
    folder = FOLDER / re.sub(r"[^A-Za-z0-9_.-]+", "-", test)
    for namespace in (*namespaces, SYSTEM):
        place = folder / namespace.name
        place.mkdir(parents=True, exist_ok=True)
        _write(place / "objects.txt", namespace, "get", "all,spj,configmap,leases", "-o", "wide")
        _write(place / "jobs.yaml", namespace, "get", "spj", "-o", "yaml")
        _write(place / "plans.yaml", namespace, "get", "configmap", "-o", "yaml")
        _write(place / "events.txt", namespace, "get", "events", "--sort-by=.metadata.creationTimestamp")
        _write(place / "pods.txt", namespace, "describe", "pods")
        for pod in _pods(namespace):
            _write(place / f"{pod}.log", namespace, "logs", pod, "--all-containers", "--timestamps")
            _write(place / f"{pod}.previous.log", namespace, "logs", pod, "--all-containers", "--previous")
    return folder


def _pods(namespace: Namespace) -> list[str]:
    done = _kubectl(namespace, "get", "pods", "-o", "json")
    return [pod["metadata"]["name"] for pod in json.loads(done.stdout)["items"]] if done.returncode == 0 else []


def _write(path: Path, namespace: Namespace, *arguments: str) -> None:
    done = _kubectl(namespace, *arguments)
    if done.returncode and path.name.endswith(".previous.log"):
        return  # there was no earlier container, which is the rule
    path.write_text(done.stdout + done.stderr)


def _kubectl(namespace: Namespace, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["kubectl", "-n", namespace.name, *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"{command}: no end within 60 s\n")
