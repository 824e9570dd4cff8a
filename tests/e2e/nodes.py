"""Nodes that break and are mended again: containers of Docker, as kind makes them. On other clusters there are none."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass

from tests.e2e.kubectl import CallFailed, call, wait_for

DOCKER = os.environ.get("DOCKER", "docker")
WORKERS = "!node-role.kubernetes.io/control-plane"
BACK_SECONDS = 180.0
"""In which a node that was started is ready, and its pods reach those of the others."""
_CUT = (("PREROUTING", "-i"), ("POSTROUTING", "-o"))
_FIND = """
for process in /proc/[0-9]*; do
  if tr '\\0' '\\n' <$process/environ 2>/dev/null | grep -qx "$1"; then echo ${process#/proc/}; fi
done
"""


@dataclass(frozen=True)
class Node:
    """One worker."""

    name: str

    def run(self, *command: str) -> str:
        """Run a program on the node."""
        return call(DOCKER, "exec", self.name, *command)

    def processes(self, variable: str) -> list[str]:
        """Ids, on the node, of what runs there with this variable (`NAME=value`) in its environment."""
        return self.run("sh", "-c", _FIND, "sh", variable).split()

    @property
    def ready(self) -> bool:
        """What its Ready condition says; Kubernetes takes most of a minute to find out that a node is dead."""
        conditions = json.loads(call("kubectl", "get", "node", self.name, "-o", "json"))["status"]["conditions"]
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    @contextlib.contextmanager
    def dead(self) -> Iterator[None]:
        """As without power, from here to the end of the block; then it is ready and reachable again."""
        routes = self._routes()
        call(DOCKER, "kill", self.name)
        try:
            yield
        finally:
            call(DOCKER, "start", self.name)
            for route in routes - self._routes():  # where nothing on the node itself keeps them
                self.run("ip", "route", "replace", *route.split())
            wait_for(f"{self.name} to be ready", lambda: self.ready, BACK_SECONDS)

    def _routes(self) -> set[str]:
        """Those to other nodes' pods; those to its own come with the pods."""
        return {line.strip() for line in self.run("ip", "route", "show").splitlines() if " via " in line}

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        """Nothing gets in or out, in silence: no connection is closed. What runs there goes on."""
        try:
            for chain, way in _CUT:
                self.run("iptables", "-w", "-t", "mangle", "-I", chain, way, "eth0", "-j", "DROP")
            yield
        finally:
            for chain, way in _CUT:
                with contextlib.suppress(CallFailed):  # it had not come to that one
                    self.run("iptables", "-w", "-t", "mangle", "-D", chain, way, "eth0", "-j", "DROP")
            wait_for(f"{self.name} to be ready", lambda: self.ready, BACK_SECONDS)

    @contextlib.contextmanager
    def drained(self, pods: str) -> Iterator[None]:
        """`kubectl drain` of the pods with these labels; in the end new ones may come again."""
        flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--pod-selector={pods}", "--timeout=90s")
        try:
            call("kubectl", "drain", self.name, *flags, seconds=100.0)
            yield
        finally:
            call("kubectl", "uncordon", self.name)

    @contextlib.contextmanager
    def frozen(self, variable: str) -> Iterator[None]:
        """The processes with this variable (`NAME=value`) in their environment are stopped, and then go on."""
        found = self.processes(variable)
        assert found, f"no process on {self.name} has {variable}"
        try:
            self.run("kill", "-STOP", *found)
            yield
        finally:
            with contextlib.suppress(CallFailed):  # somebody ended it meanwhile
                self.run("kill", "-CONT", *found)


def workers() -> list[Node]:
    """All nodes that run pods of jobs."""
    return [
        Node(name.removeprefix("node/"))
        for name in call("kubectl", "get", "nodes", "-l", WORKERS, "-o", "name").split()
    ]


def breakable() -> str:
    """Why nodes cannot be broken here; empty if they can."""
    for node in workers():
        try:
            call(DOCKER, "inspect", node.name)
        except (CallFailed, OSError) as error:
            return f"node {node.name} is no container that `{DOCKER}` reaches: {error}"
    return ""
