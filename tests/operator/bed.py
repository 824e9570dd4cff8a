"""A small cluster in virtual time: an API server, a kubelet that runs agents, and operators that may die.

The agents are those of tests/coordinator, behind real sockets with TLS, each pod on a loopback address of its own. So
everything of the operator is real: its clients, its watches, its lease, its lines to the agents.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import kopf
from kubernetes_asyncio import client

from spare.api import wire
from spare.control.config import Config
from spare_operator import names
from spare_operator.serve import Operator, api_client
from spare_operator.settings import Settings
from tests.coordinator.fakes import Agent, Pipe, World
from tests.operator.api_server import ApiServer, Body

NAMESPACE = "team"
ZONES = ("a", "b", "c", "d")


def job_body(name: str = "job", *, template: Body | None = None, meta: Body | None = None, **spec: Any) -> Body:
    """A SPAReJob as a user writes it."""
    container = {"name": "trainer", "image": "trainer", "command": ["python", "train.py"]}
    pod = {"spec": {"containers": [container]}} if template is None else template
    detection = {"heartbeat": "1s", "deadAfter": "5s"}
    filled = {"groups": 4, "redundancy": 3, "microBatches": 8, "detection": detection, "template": pod} | spec
    return {"metadata": {"name": name, "namespace": NAMESPACE, **(meta or {})}, "spec": filled}


def trainer(uid: str, group: str, incarnation: str, **more: str) -> Body:
    """The container that says whose pod it is."""
    own = {"SPARE_JOB": f"{NAMESPACE}/job/{uid}", "SPARE_GROUP": group, "SPARE_POD": "0", "SPARE_UID": incarnation}
    env = [{"name": name, "value": value} for name, value in {**own, **more}.items()]
    return {"name": "trainer", "ports": [{"name": names.AGENT_PORT_NAME, "containerPort": 1}], "env": env}


class SlowWorld(World):
    """One whose agents look less often: hours may pass in a test."""

    async def step(self) -> None:
        await asyncio.sleep(self.compute / 5)


class PodAgent(Agent):
    """An agent whose end is its container's end."""

    bed: Bed
    pod: str = ""
    exit_code = 137

    def _take(self, message: wire.Message) -> None:
        if isinstance(message, wire.Finish) or (isinstance(message, wire.Stop) and self.plan is None):
            self.exit_code = 0  # it has done its work, or was a spare that nobody needed
        super()._take(message)

    def die(self, reason: str, *, tell: bool = True) -> None:
        if not self.dead:
            super().die(reason, tell=False)
            code = self.exit_code if reason != "stopped" or self.exit_code == 0 else 143
            self.bed.container_ended(self.pod, code)


class Bed:
    """Everything but the operator. Change attributes to make the cluster behave badly."""

    def __init__(self, folder: Path) -> None:
        self.api = ApiServer()
        self.api.watchers.append(self._changed)
        self.folder = folder
        self.worlds: dict[str, World] = {}
        """By job: what its agents have in common."""
        self.agents: dict[str, PodAgent] = {}
        """By pod."""
        self.steps, self.compute = 20, 1.0
        self.start_delay, self.stop_delay = 1.0, 1.0
        self.stuck: dict[str, str] = {}
        """Containers that cannot start: part of a pod's name, and the kubelet's reason."""
        self.dead_nodes: set[str] = set()
        self.operators: list[tuple[Operator, asyncio.Task[int], asyncio.Event]] = []
        self._apis: list[client.ApiClient] = []
        self._count = 0
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    # --- operators ------------------------------------------------------------------------------------------------

    def operator(self, **settings: Any) -> Operator:
        """Start one."""
        configuration = client.Configuration(host=self.api.address)
        api = api_client(configuration)
        self._apis.append(api)

        async def login(**_: Any) -> kopf.ConnectionInfo:
            return kopf.ConnectionInfo(server=self.api.address)

        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        own: Any = {"namespaces": (NAMESPACE,), "lease_namespace": NAMESPACE}
        # A literal address: to find all of them takes a thread, and virtual time waits for none.
        chosen: Any = {**own, "health_host": "127.0.0.1", "health_port": 0} | settings
        operator = Operator(Settings(**chosen), api, stopped, login=login, clock=loop.time, wall=loop.time)
        self.operators.append((operator, loop.create_task(operator.run()), stopped))
        return operator

    async def kill(self, operator: Operator) -> None:
        """End an operator as SIGKILL does: nothing is released, nothing is written any more."""
        operator.lease._renewed = float("-inf")
        _, task, stopped = next(each for each in self.operators if each[0] is operator)
        stopped.set()
        task.cancel()
        await asyncio.wait({task})
        self.operators = [each for each in self.operators if each[0] is not operator]

    async def close(self) -> None:
        for operator, task, stopped in self.operators:
            operator.lease._renewed = float("-inf")
            stopped.set()
            await asyncio.wait({task}, timeout=30.0)
            task.cancel()
            await asyncio.wait({task})
        for agent in self.agents.values():
            agent.exit_code = 0
            agent.die("closed")
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for api in self._apis:
            await api.close()
        await self.api.close()

    # --- what tests look at -----------------------------------------------------------------------------------------

    def job(self, name: str = "job") -> Body:
        return self.api.get("sparejobs", NAMESPACE, name)

    def status(self, name: str = "job") -> Body:
        found: Body = self.job(name).get("status", {})
        return found

    def condition(self, kind: str, name: str = "job") -> tuple[str, str]:
        """(status, reason) of a condition; ("", "") without it."""
        for each in self.status(name).get("conditions", []):
            if each["type"] == kind:
                return each["status"], each["reason"]
        return "", ""

    def pods(self, group: int | None = None) -> list[Body]:
        found = self.api.all("pods", NAMESPACE)
        return [p for p in found if group is None or p["metadata"]["labels"].get(names.GROUP_NUMBER) == str(group)]

    def agent(self, group: int) -> PodAgent:
        """The living agent of a group."""
        return next(a for a in reversed(list(self.agents.values())) if a.group == group and not a.dead)

    def told(self, kind: str) -> list[str]:
        """Reasons that a condition has ever been true for, in order."""
        found: list[str] = []
        for _, _, key, body in self.api.log:
            if key[0] == "sparejobs":
                true = [c for c in body.get("status", {}).get("conditions", []) if c["status"] == "True"]
                found += [c["reason"] for c in true if c["type"] == kind and found[-1:] != [c["reason"]]]
        return found

    def events(self, reason: str = "") -> list[str]:
        """Messages of the events posted, in order; with `reason`, of that one."""
        posted = [body for _, kind, key, body in self.api.log if kind == "ADDED" and key[0] == "events"]
        return [f"{e['reason']}: {e['message']}" for e in posted if reason in ("", e["reason"])]

    async def until(self, condition: Callable[[], object], what: str, deadline: float = 120.0) -> float:
        """Wait until it holds; returns the seconds that took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not condition():
            if loop.time() - began > deadline:
                raise AssertionError(f"not within {deadline} s: {what}; status {self.status()}, events {self.events()}")
            await asyncio.sleep(0.05)
        return loop.time() - began

    async def trains(self, step: int = 2) -> None:
        """Wait until it has committed so many steps."""
        await self.until(lambda: self.status().get("step", 0) >= step, f"step {step} is reported")

    async def started(self, job: Body) -> None:
        """An operator, and a job under it that has committed its first steps."""
        self.operator()
        self.api.put("sparejobs", job)
        await self.trains()

    # --- kubelets -----------------------------------------------------------------------------------------------------

    def nodes(self, count: int) -> None:
        for number in range(count):
            labels = {"topology.kubernetes.io/zone": ZONES[number % len(ZONES)]}
            ready = {"conditions": [{"type": "Ready", "status": "True"}]}
            self.api.put("nodes", {"metadata": {"name": f"node-{number}", "labels": labels}, "status": ready})

    def _changed(self, kind: str, key: tuple[str, str, str], body: Body) -> None:
        if key[0] != "pods":
            return
        loop = asyncio.get_running_loop()
        if kind == "ADDED":
            loop.call_soon(self._bind, key)
        elif kind == "MODIFIED" and body["metadata"].get("deletionTimestamp"):
            loop.call_later(self.stop_delay, self._terminated, key, body["metadata"]["uid"])
        elif kind == "DELETED" and key[2] in self.agents:
            self.agents[key[2]].die("deleted")

    def _bind(self, key: tuple[str, str, str]) -> None:
        if key not in self.api.objects:
            return
        usable = [n["metadata"]["name"] for n in self.api.all("nodes")]
        usable = [n for n in usable if n not in self.dead_nodes] or ["node-0"]
        self._count += 1
        self.api.patch(*key, spec={"nodeName": usable[self._count % len(usable)]}, status={"phase": "Pending"})
        number = self._count
        asyncio.get_running_loop().call_later(self.start_delay, lambda: self._spawn(self._start(key, number)))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self, key: tuple[str, str, str], number: int) -> None:
        pod = self.api.objects.get(key)
        if pod is None or pod["metadata"].get("deletionTimestamp") or pod["spec"]["nodeName"] in self.dead_nodes:
            return
        for part, reason in self.stuck.items():
            if part in key[2]:
                state = {"waiting": {"reason": reason, "message": f"{reason} of the kubelet"}}
                self._status(key, phase="Pending", containerStatuses=[{"name": "trainer", "state": state}])
                asyncio.get_running_loop().call_later(5.0, lambda: self._spawn(self._start(key, number)))
                return
        # All of 127/8 is ours; another run of these tests at the same time has another part of it.
        address = f"127.{1 + os.getpid() % 250}.{os.getpid() // 250 % 250}.{1 + number % 250}"
        env = {v["name"]: v.get("value", "") for v in pod["spec"]["containers"][0]["env"]}
        await self._agent(key, pod, env, address)
        self._status(
            key, phase="Running", podIP=address, containerStatuses=[{"name": "trainer", "state": {"running": {}}}]
        )

    async def _agent(self, key: tuple[str, str, str], pod: Body, env: dict[str, str], address: str) -> None:
        labels, port = pod["metadata"]["labels"], int(env["SPARE_PORT"])
        secret = self.api.get("secrets", key[1], names.agent_secret(labels[names.JOB_NAME]))["data"]
        texts = {name: base64.b64decode(value).decode() for name, value in secret.items()}
        world = self._world(env["SPARE_JOB"], labels[names.JOB_NAME], texts["token"])
        agent = PodAgent(world, int(env["SPARE_GROUP"]), env["SPARE_UID"], 30000 + self._count)
        agent.bed, agent.pod, agent.token = self, key[2], texts["token"]
        world.agents[agent.group] = agent
        world.everyone.append(agent)
        self.agents[key[2]] = agent
        agent.start()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(agent, reader, writer)

        self._servers.append(await asyncio.start_server(serve, address, port, ssl=self._context(texts)))

    def _world(self, job: str, name: str, token: str) -> World:
        if job not in self.worlds:
            spec = self.job(name)["spec"]
            config = Config(job, spec["groups"], spec["redundancy"], spec["microBatches"])
            world = self.worlds[job] = SlowWorld(config, steps=self.steps, compute=self.compute)
            world.token = token
        return self.worlds[job]

    def _context(self, texts: dict[str, str]) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=texts["ca.crt"])
        with tempfile.NamedTemporaryFile("w", dir=self.folder) as file:
            file.write(texts["tls.crt"] + texts["tls.key"])
            file.flush()
            context.load_cert_chain(file.name)
        return context

    async def _serve(self, agent: PodAgent, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if agent.dead:
            writer.close()
            return
        down, up = Pipe(), Pipe()
        serving = asyncio.get_running_loop().create_task(agent.serve(down, up))
        pump = asyncio.get_running_loop().create_task(self._pump_up(up, writer))
        self._tasks |= {serving, pump}
        with contextlib.suppress(OSError, ValueError):
            while line := await reader.readline():
                down.put(line)
        down.shut()
        await asyncio.wait({serving}, timeout=1.0)  # what came is heard before the end of the line is
        for task in (serving, pump):
            task.cancel()
        writer.close()

    async def _pump_up(self, up: Pipe, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while line := await up.get():
                writer.write(line)
                await writer.drain()
        writer.close()

    def _status(self, key: tuple[str, str, str], **status: Any) -> None:
        if key in self.api.objects:
            self.api.patch(*key, status=status)

    def container_ended(self, pod: str, code: int) -> None:
        """The kubelet notices that a pod's container is over."""
        phase = "Succeeded" if code == 0 else "Failed"
        state = {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}}
        key = ("pods", NAMESPACE, pod)
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().call_later(
                0.1, lambda: self._status(key, phase=phase, containerStatuses=[{"name": "trainer", "state": state}])
            )

    def _terminated(self, key: tuple[str, str, str], uid: str) -> None:
        pod = self.api.objects.get(key)
        if pod is None or pod["metadata"]["uid"] != uid or pod["spec"].get("nodeName") in self.dead_nodes:
            return
        if key[2] in self.agents:
            self.agents[key[2]].die("killed by its kubelet")
        if not pod["metadata"].get("finalizers"):
            self.api.remove(*key)


@asynccontextmanager
async def a_bed(folder: Path, nodes: int = 4) -> AsyncIterator[Bed]:
    """A cluster; everything in it ends with the test."""
    bed = Bed(folder)
    await bed.api.open()
    bed.nodes(nodes)
    try:
        yield bed
    finally:
        await bed.close()
