"""An API server in the test's process: resourceVersions, watches, selectors, conflicts, finalizers, owners, quotas.

It answers the real clients over a real socket. What it does, Kubernetes does (the cluster tests run the same backend
against the real one); what it leaves out, our code does not use. Faults are ordered by the test: see `fail`.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
import uuid
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Body = dict[str, Any]
Key = tuple[str, str, str]
"""(plural, namespace, name); no namespace: empty."""

KINDS = {
    "pods": ("v1", "Pod", True),
    "configmaps": ("v1", "ConfigMap", True),
    "secrets": ("v1", "Secret", True),
    "events": ("v1", "Event", True),
    "nodes": ("v1", "Node", False),
    "namespaces": ("v1", "Namespace", False),
    "sparejobs": ("spare.training/v1alpha1", "SPAReJob", True),
    "networkpolicies": ("networking.k8s.io/v1", "NetworkPolicy", True),
    "leases": ("coordination.k8s.io/v1", "Lease", True),
}


@dataclass
class Fault:
    """Answers given instead of the real ones, so many times."""

    method: str
    path: str
    status: int
    message: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1
    done: bool = False
    """What was asked for is done all the same: it is the answer that is lost."""


@dataclass(frozen=True)
class Call:
    """One request, as it came."""

    at: float
    method: str
    path: str
    status: int


class ApiServer:
    """Attributes may be changed by a test; `calls` has every request but watches."""

    def __init__(self) -> None:
        self.objects: dict[Key, Body] = {}
        self.version = 100
        self.log: list[tuple[int, str, Key, Body]] = []
        self._before: dict[int, Body | None] = {}
        """By resourceVersion: the object as it was before."""
        self.denied = ""
        """Requests ("POST /path") that this pattern matches are refused, as by a missing right."""
        self.undefined: set[str] = set()
        """Kinds (plural) whose definition is not there."""
        self.calls: list[Call] = []
        self.faults: list[Fault] = []
        self.slow: dict[str, float] = {}
        """Seconds that a request takes whose path, with its query, has this in it."""
        self.quota: dict[str, int] = {}
        """Most pods by namespace."""
        self.budget = False
        """A disruption budget allows no eviction."""
        self.mute_watches = False
        """Watches stand, but tell nothing: connections lost in silence."""
        self.address = ""
        self._runner: web.AppRunner | None = None
        self._ending = False
        self._wake = asyncio.Event()
        self.watchers: list[Callable[[str, Key, Body], None]] = []
        """Called at each change: the test's kubelet."""

    # --- life ---------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        app = web.Application(client_max_size=4 << 20)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.address = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        self._ending = True
        self._wake.set()
        assert self._runner is not None
        await self._runner.cleanup()

    # --- for tests ------------------------------------------------------------------------------------------------

    def fail(
        self, method: str, path: str, status: int, message: str = "", *, times: int = 1, done: bool = False, **more: str
    ) -> Fault:
        """Answer the next requests whose path matches with an error; `more`: headers of the answer."""
        fault = Fault(method, path, status, message, {k.replace("_", "-"): v for k, v in more.items()}, times, done)
        self.faults.append(fault)
        return fault

    def all(self, plural: str, namespace: str = "") -> list[Body]:
        """Objects of a kind, by name."""
        return [b for (p, ns, _), b in sorted(self.objects.items()) if p == plural and namespace in ("", ns)]

    def get(self, plural: str, namespace: str, name: str) -> Body:
        return self.objects[plural, namespace, name]

    def put(self, plural: str, body: Body) -> Body:
        """Create or overwrite, as an administrator would."""
        key = self._key(plural, body)
        known = self.objects.get(key)
        body = copy.deepcopy(body)
        if known is None:
            self._fresh(plural, body)
        else:
            body["metadata"] = {**known["metadata"], **body["metadata"]}
        return self._store("ADDED" if known is None else "MODIFIED", key, body)

    def patch(self, plural: str, namespace: str, name: str, **parts: Any) -> Body:
        """Change top-level parts (`status=...`), or metadata fields, of an object."""
        body = copy.deepcopy(self.objects[plural, namespace, name])
        for part, value in parts.items():
            body[part] = {**body.get(part, {}), **value} if isinstance(value, dict) else value
        if "spec" in parts:
            body["metadata"]["generation"] = body["metadata"].get("generation", 0) + 1
        return self._store("MODIFIED", (plural, namespace, name), body)

    def remove(self, plural: str, namespace: str, name: str, *, grace: bool = False) -> None:
        """Delete; a pod with grace stays Terminating until its kubelet is done."""
        self._delete((plural, namespace, name), grace=grace)

    def writes(self, pattern: str = "") -> list[Call]:
        """Requests that changed something, or tried to."""
        return [call for call in self.calls if call.method != "GET" and re.search(pattern, call.path)]

    # --- storage ----------------------------------------------------------------------------------------------------

    def _key(self, plural: str, body: Body) -> Key:
        return plural, body["metadata"].get("namespace", ""), body["metadata"]["name"]

    def _fresh(self, plural: str, body: Body) -> None:
        api, kind, _ = KINDS[plural]
        body["apiVersion"], body["kind"] = api, kind
        body["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": "2026-01-01T00:00:00Z"}
        if plural == "sparejobs":
            body["metadata"]["generation"] = 1
            body.pop("status", None)

    def _store(self, kind: str, key: Key, body: Body) -> Body:
        if kind == "MODIFIED" and self.objects.get(key) == body:
            return body
        self.version += 1
        known = self.objects.get(key)
        body["metadata"]["resourceVersion"] = str(self.version)
        if kind == "DELETED":
            self.objects.pop(key, None)
        else:
            self.objects[key] = body
        self._before[self.version] = known
        self.log.append((self.version, kind, key, copy.deepcopy(body)))
        self._wake.set()
        for each in self.watchers:
            each(kind, key, body)
        return body

    def _delete(self, key: Key, *, grace: bool) -> None:
        body = copy.deepcopy(self.objects[key])
        running = key[0] == "pods" and body.get("spec", {}).get("nodeName")
        ended = body.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if body["metadata"].get("finalizers") or (grace and running and not ended):
            if "deletionTimestamp" not in body["metadata"]:
                body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                self._store("MODIFIED", key, body)
            return
        if key[0] == "pods":  # what a watch tells of in the end has it, however short the grace was
            body["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
        self._store("DELETED", key, body)
        uid = body["metadata"]["uid"]
        for child, there in list(self.objects.items()):
            if any(owner["uid"] == uid for owner in there["metadata"].get("ownerReferences", [])):
                self._delete(child, grace=True)

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(next((s for part, s in self.slow.items() if part in request.path_qs), 0.001))
        path = request.path
        if self.denied and re.search(self.denied, f"{request.method} {path}"):
            self.calls.append(Call(asyncio.get_running_loop().time(), request.method, path, 403))
            text = 'is forbidden: User "operator" cannot create resource'
            return web.json_response(_status(403, text), status=403)
        if request.query.get("watch") and _parse(path)[0] not in self.undefined:
            return await self._watch(request)
        fault = self._fault(request.method, path)
        headers: dict[str, str] = {}
        if fault is None or fault.done:
            text = await request.text()
            status, body = self._answer(request.method, path, request.query, json.loads(text) if text else None)
        if fault is not None:
            status, body, headers = fault.status, _status(fault.status, fault.message), fault.headers
        loop = asyncio.get_running_loop()
        self.calls.append(Call(loop.time(), request.method, path, status))
        return web.json_response(body, status=status, headers=headers)

    def _fault(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.times > 0 and fault.method == method and re.search(fault.path, path):
                fault.times -= 1
                return fault
        return None

    def _answer(self, method: str, path: str, query: Any, body: Body | None) -> tuple[int, Body]:
        if (found := _discovery(path, KINDS.keys() - self.undefined)) is not None:
            return 200, found
        plural, namespace, name, sub = _parse(path)
        if plural not in KINDS or plural in self.undefined:
            return 404, _status(404, f"no resource {plural}")
        key = (plural, namespace, name)
        if method == "GET" and not name:
            return 200, self._list(plural, namespace, query.get("labelSelector", ""))
        if method == "POST" and sub == "eviction" and key in self.objects:
            if self.budget:
                return 429, _status(429, "Cannot evict pod as it would violate the pod's disruption budget.")
            self._delete(key, grace=True)
            return 201, _status(201, "")
        if method == "POST" and not sub:
            assert body is not None
            if query.get("fieldValidation") == "Strict" and "nodeSelecter" in body["spec"]:
                return 400, _status(400, 'strict decoding error: unknown field "spec.nodeSelecter"')
            return self._create(plural, namespace, copy.deepcopy(body))
        if key not in self.objects:
            return 404, _status(404, f'{plural} "{name}" not found')
        if method == "GET":
            return 200, self.objects[key]
        if method == "PUT":
            assert body is not None
            return self._replace(key, sub, copy.deepcopy(body))
        if method == "PATCH":
            assert body is not None
            return self._merge(key, copy.deepcopy(body))
        if method == "DELETE":
            wanted = ((body or {}).get("preconditions") or {}).get("uid")
            if wanted not in (None, self.objects[key]["metadata"]["uid"]):
                return 409, _status(409, "the UID in the precondition does not match")
            self._delete(key, grace=(body or {}).get("gracePeriodSeconds") != 0)
            return 200, _status(200, "")
        return 405, _status(405, f"{method} is not for here")

    def _list(self, plural: str, namespace: str, selector: str) -> Body:
        api, kind, _ = KINDS[plural]
        items = [b for b in self.all(plural, namespace) if _selected(b, selector)]
        meta = {"resourceVersion": str(self.version)}
        return {"apiVersion": api, "kind": f"{kind}List", "metadata": meta, "items": items}

    def _create(self, plural: str, namespace: str, body: Body) -> tuple[int, Body]:
        body["metadata"]["namespace"] = namespace
        key = self._key(plural, body)
        if key in self.objects:
            return 409, _status(409, f'{plural} "{key[2]}" already exists', "AlreadyExists")
        if plural == "pods" and len(self.all("pods", namespace)) >= self.quota.get(namespace, 1 << 30):
            text = (
                f'pods "{key[2]}" is forbidden: exceeded quota: few, requested: pods=1, used: pods=n, limited: pods=n'
            )
            return 403, _status(403, text)
        self._fresh(plural, body)
        return 201, self._store("ADDED", key, body)

    def _merge(self, key: Key, patch: Body) -> tuple[int, Body]:
        """A merge patch (RFC 7386); one with another uid is a conflict."""
        known = self.objects[key]
        if patch.get("metadata", {}).get("uid") not in (None, known["metadata"]["uid"]):
            return 409, _status(409, "the UID in the patch does not match the UID in the record")

        def merged(there: Any, change: Any) -> Any:
            if not isinstance(change, dict):
                return change
            there = there if isinstance(there, dict) else {}
            result = {**there, **{k: merged(there.get(k), v) for k, v in change.items()}}
            return {k: v for k, v in result.items() if change.get(k, v) is not None}

        return 200, self._store("MODIFIED", key, merged(copy.deepcopy(known), patch))

    def _replace(self, key: Key, sub: str, body: Body) -> tuple[int, Body]:
        known = self.objects[key]
        if body["metadata"].get("resourceVersion") not in (None, known["metadata"]["resourceVersion"]):
            return 409, _status(409, "the object has been modified; please apply your changes to the latest version")
        if sub == "status":
            body = {**copy.deepcopy(known), "status": body.get("status", {})}
        return 200, self._store("MODIFIED", key, body)

    # --- watches ------------------------------------------------------------------------------------------------------

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        plural, namespace, _, _ = _parse(request.path)
        loop = asyncio.get_running_loop()
        end = loop.time() + float(request.query.get("timeoutSeconds", "300"))
        seen = int(request.query.get("resourceVersion") or self.version)
        selector = request.query.get("labelSelector", "")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while not self._ending and loop.time() < end and plural not in self.undefined:
            events, seen = list(self._since(seen, plural, namespace, selector)), self.version
            for event in events:
                await response.write(json.dumps(event).encode() + b"\n")
            if seen != self.version:
                continue
            self._wake = self._wake if not self._wake.is_set() else asyncio.Event()
            try:
                async with asyncio.timeout(min(end - loop.time(), 60.0)):
                    await self._wake.wait()
            except TimeoutError:
                pass
        return response

    def _since(self, version: int, plural: str, namespace: str, selector: str) -> Iterator[Body]:
        if self.mute_watches:
            return
        for at, kind, key, body in self.log:
            if at <= version or key[0] != plural or namespace not in ("", key[1]):
                continue
            known = self._before[at]
            before = known is not None and _selected(known, selector)
            if _selected(body, selector):
                yield {"type": "ADDED" if kind == "MODIFIED" and not before else kind, "object": body}
            elif before and known is not None:  # for who watches by labels it is as if it were gone
                meta = {**known["metadata"], "resourceVersion": str(at)}
                yield {"type": "DELETED", "object": {**known, "metadata": meta}}


def _status(code: int, message: str, reason: str = "") -> Body:
    names = {403: "Forbidden", 404: "NotFound", 409: "Conflict", 422: "Invalid", 429: "TooManyRequests"}
    failed = code >= 400
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure" if failed else "Success",
        "message": message,
        "reason": reason or names.get(code, "InternalError" if failed else ""),
        "code": code,
    }


def _parse(path: str) -> tuple[str, str, str, str]:
    """(plural, namespace, name, subresource)."""
    parts = path.strip("/").split("/")
    rest = (parts[2:] if parts[0] == "api" else parts[3:]) or [""]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    rest = [*rest, "", ""]
    return rest[0], namespace, rest[1], rest[2]


def _selected(body: Body, selector: str) -> bool:
    labels = body["metadata"].get("labels") or {}
    return all(labels.get(part.partition("=")[0]) == part.partition("=")[2] for part in selector.split(",") if part)


def _discovery(path: str, plurals: Collection[str]) -> Body | None:
    """What clients ask to learn which kinds there are."""
    kinds = {plural: kind for plural, kind in KINDS.items() if plural in plurals}
    path = path.strip("/")
    if path == "api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    groups = sorted({api for api, _, _ in kinds.values() if "/" in api})
    if path == "apis":
        listed = []
        for each in groups:
            version = {"groupVersion": each, "version": each.partition("/")[2]}
            listed.append({"name": each.partition("/")[0], "versions": [version], "preferredVersion": version})
        return {"kind": "APIGroupList", "groups": listed}
    for api in ("v1", *groups):
        if path == (f"apis/{api}" if "/" in api else f"api/{api}"):
            verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
            found = [
                {"name": plural, "singularName": kind.lower(), "namespaced": spaced, "kind": kind, "verbs": verbs}
                for plural, (group, kind, spaced) in kinds.items()
                if group == api
            ]
            return {"kind": "APIResourceList", "groupVersion": api, "resources": found}
    return None
