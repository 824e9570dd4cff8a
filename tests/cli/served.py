"""A job on the API server of the operator's tests, and `spare` called against it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from spare.cli.main import main
from spare.control.plan import Member, Plan
from spare.control.record import Kept, document
from spare.planner import healthy, place, reorder
from spare_operator import names
from tests.operator.api_server import ApiServer, Body
from tests.operator.bed import NAMESPACE, trainer

CHECKPOINT = "epoch-00000001-abcdefgh/step-0000000040"


class Served:
    """The server in a thread of its own, with a kubeconfig that leads to it."""

    def __init__(self, folder: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.api = self.call(self._open)
        server = {"name": "there", "cluster": {"server": self.api.address}}
        context = {"name": "here", "context": {"cluster": "there", "user": "me", "namespace": NAMESPACE}}
        config = {"clusters": [server], "contexts": [context], "users": [{"name": "me", "user": {"token": "t"}}]}
        self.kubeconfig = folder / "kubeconfig"
        whole = {"apiVersion": "v1", "kind": "Config", "current-context": "here", **config}
        self.kubeconfig.write_text(yaml.safe_dump(whole))

    async def _open(self) -> ApiServer:
        api = ApiServer()
        await api.open()
        return api

    def call(self, work: Callable[[], Any]) -> Any:
        """Run a coroutine function there."""
        return asyncio.run_coroutine_threadsafe(work(), self.loop).result(10.0)

    def close(self) -> None:
        self.call(self.api.close)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10.0)
        self.loop.close()

    def spare(self, *arguments: str) -> Result:
        command = [arguments[0], "--kubeconfig", str(self.kubeconfig), *arguments[1:]]
        return CliRunner().invoke(main, command, terminal_width=200)


def recorded(uid: str, **more: Any) -> str:
    """The plan of that job without group 3, and what is kept beside it."""
    schedule = reorder(healthy(place(4, 3, "Golomb"), 8), (0, 1, 2)).schedule
    members = (Member(0, "u0", 1), Member(1, "u1", 1), Member(2, "s1", 2))  # whose place a spare has taken
    plan = Plan(f"team/job/{uid}", 2, 2, members, 0, ("127.0.0.1:1",), schedule, "group 3 lost")
    return document(plan, Kept(masked=1, joining=(2,), checkpoints=(CHECKPOINT,), **more))


def condition(kind: str, reason: str, message: str, status: str = "True") -> Body:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def pod(uid: str, group: int) -> Body:
    labels = {names.JOB_UID: uid, names.GROUP_NUMBER: str(group), names.POD_NUMBER: "0", names.INCARNATION: f"u{group}"}
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    container = {"name": "trainer", "state": waiting if group == 3 else {"running": {}}}
    return {
        "metadata": {"name": f"job-g{group}-p0-u{group}", "namespace": NAMESPACE, "labels": labels},
        "spec": {"nodeName": f"node-{group}", "containers": [trainer(uid, str(group), f"u{group}")]},
        "status": {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": [container]},
    }


def spare_pod(uid: str, number: int, incarnation: str) -> Body:
    body = pod(uid, 0)
    labels = body["metadata"]["labels"]
    del labels[names.GROUP_NUMBER]
    labels |= {names.SPARE_NUMBER: str(number), names.INCARNATION: incarnation}
    body["spec"]["containers"] = [trainer(uid, str(4 + number), incarnation, SPARE_SPARE=str(number))]
    body["metadata"]["name"] = f"job-s{number}-p0-{incarnation}"
    return body


def event(name: str, uid: str, reason: str, message: str, *, at: str, groups: str = "") -> Body:
    meta: Body = {"name": name, "namespace": NAMESPACE, "annotations": {names.GROUPS: groups} if groups else {}}
    kind = "Warning" if reason == "GroupLost" else "Normal"
    told = {"reason": reason, "message": message, "type": kind, "lastTimestamp": f"2026-01-01T00:{at}Z"}
    return {"metadata": meta, "involvedObject": {"uid": uid}, **told}
