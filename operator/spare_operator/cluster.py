"""The API server, as far as we need it: objects as plain dicts, and errors that say what to do about them.

Every call has a deadline. What passes by itself (the server is away, or asks to be left alone for a while) is tried
again here; what calls for a decision is an error of its own. Nothing is written by who may not: `may_write`
is asked at each try, for a leader may be deposed while it waits (field case F63).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import aiohttp
from kubernetes_asyncio.client import ApiClient

from spare_operator import names

logger = logging.getLogger(__name__)

Body: TypeAlias = dict[str, Any]
"""An object as the API server gives it."""

CALL_TIMEOUT: Final = 20.0
"""Seconds for one request."""
PATIENCE: Final = 60.0
"""Seconds for which a request is tried again."""
PAUSE_FIRST: Final = 0.25
PAUSE_MOST: Final = 8.0
"""Seconds between two tries, doubled from the first to the most; never less than what the server asks for."""


@dataclass(frozen=True)
class Kind:
    """A kind of object and where the API server keeps it."""

    api: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str | None, name: str = "", sub: str = "") -> str:
        """The URL's path. Without a namespace: all of them."""
        root = f"/api/{self.api}" if "/" not in self.api else f"/apis/{self.api}"
        within = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return "/".join(part for part in (f"{root}{within}/{self.plural}", name, sub) if part)


JOBS: Final = Kind(f"{names.GROUP}/{names.VERSION}", names.PLURAL)
PODS: Final = Kind("v1", "pods")
CONFIG_MAPS: Final = Kind("v1", "configmaps")
SECRETS: Final = Kind("v1", "secrets")
EVENTS: Final = Kind("v1", "events")
NODES: Final = Kind("v1", "nodes", namespaced=False)
NETWORK_POLICIES: Final = Kind("networking.k8s.io/v1", "networkpolicies")
LEASES: Final = Kind("coordination.k8s.io/v1", "leases")


class ApiError(OSError):
    """The API server refused, or could not be reached."""

    def __init__(self, status: int, reason: str, text: str) -> None:
        super().__init__(f"{reason or 'error'} ({status}): {text}" if status else text)
        self.status = status
        self.reason = reason
        """The server's own word for it, such as `Forbidden`."""
        self.text = text


class NotFound(ApiError):
    """There is no such object (any more)."""


class Exists(ApiError):
    """There is an object of that name already."""


class Conflict(ApiError):
    """The object was changed since it was read: read it again."""


class Refused(ApiError):
    """Not allowed: no permission, or a quota (`quota_exceeded`)."""

    @property
    def quota_exceeded(self) -> bool:
        """Whether it may be allowed later, when there is room."""
        return "exceeded quota" in self.text

    @property
    def of_us(self) -> bool:
        """Whether it is we who may not, whatever the object is: a right that an administrator can give back."""
        return "cannot create resource" in self.text or "because it is being terminated" in self.text


class Invalid(ApiError):
    """The object itself is wrong: trying again will not help."""


class NotLeading(Exception):
    """We may not write: another operator does, or may do, our work."""


class Cluster:
    """Calls to one API server, from one event loop."""

    def __init__(
        self, client: ApiClient, may_write: Callable[[], bool] = lambda: True, patience: float = PATIENCE
    ) -> None:
        """`patience`: seconds for which a request is tried again."""
        self._client = client
        self._may_write = may_write
        self._patience = patience

    async def serves(self, kind: Kind) -> bool:
        """Whether the server says that it knows a kind of an API group."""
        group, _, version = kind.api.partition("/")
        try:
            groups = {each["name"] for each in (await self._call("GET", "/apis"))["groups"]}
            found = await self._call("GET", f"/apis/{group}/{version}")
        except ApiError as error:
            logger.debug("whether %s are defined is not known: %s", kind.plural, error)
            return False
        return group in groups and any(each["name"] == kind.plural for each in found["resources"])

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Body:
        """One object. Raises NotFound."""
        return await self._call("GET", kind.path(namespace, name))

    async def list(self, kind: Kind, namespace: str | None, labels: Mapping[str, str] | None = None) -> list[Body]:
        """All objects with these labels, as they are now: an older list would miss a pod that was made a moment ago."""
        query = {}
        if labels:
            query["labelSelector"] = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        items: list[Body] = (await self._call("GET", kind.path(namespace), query=query))["items"]
        return items

    async def create(self, kind: Kind, namespace: str, body: Body, *, strict: bool = False) -> Body:
        """A new object. Raises Exists, Refused, Invalid; NotFound if its namespace is gone.

        `strict`: fields that the API server does not know are Invalid; else it drops them without a word.
        """
        query = {"fieldValidation": "Strict"} if strict else None
        return await self._call("POST", kind.path(namespace), body, query)

    async def replace(self, kind: Kind, body: Body, sub: str = "") -> Body:
        """The object as a whole (or that part of it), if it is still at the resourceVersion that `body` has.

        Raises:
            Conflict: it is not.
            NotFound: it is gone.
        """
        meta = body["metadata"]
        if not meta.get("resourceVersion"):
            raise ValueError(f"{meta['name']}: a replace without resourceVersion would overwrite others' changes")
        return await self._call("PUT", kind.path(meta.get("namespace"), meta["name"], sub), body)

    async def patch(self, kind: Kind, namespace: str, name: str, body: Body) -> Body:
        """The object with these parts of it changed (a merge patch); with a uid in it, only that incarnation.

        Raises:
            NotFound: it is gone.
            Conflict: it is another incarnation.
        """
        return await self._call("PATCH", kind.path(namespace, name), body)

    async def delete(
        self, kind: Kind, namespace: str, name: str, *, uid: str | None = None, propagation: str = "Background"
    ) -> None:
        """Have it deleted. That it, or that incarnation (`uid`) of it, is gone already is success (field case F30)."""
        body: Body = {"propagationPolicy": propagation}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        with contextlib.suppress(NotFound, Conflict):
            await self._call("DELETE", kind.path(namespace, name), body)

    async def evict(self, namespace: str, pod: str, *, uid: str, grace: float | None) -> None:
        """Have a pod leave, if a disruption budget allows it. `grace`: seconds that it gets; None: as many as it says.

        Raises:
            ApiError: with status 429 where a budget does not allow it now.
            NotFound: it is gone.
        """
        options: Body = {"preconditions": {"uid": uid}}
        if grace is not None:
            options["gracePeriodSeconds"] = math.ceil(grace)  # 0 would kill at once
        meta = {"name": pod, "namespace": namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}
        await self._call("POST", PODS.path(namespace, pod, "eviction"), body)

    async def _call(
        self, method: str, path: str, body: Body | None = None, query: Mapping[str, str] | None = None
    ) -> Body:
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + self._patience, PAUSE_FIRST
        while True:
            if method != "GET" and not self._may_write():
                raise NotLeading(f"{method} {path} was not sent: this operator does not hold the lease")
            error, wait = await self._try(method, path, body, query)
            if isinstance(error, dict):
                return error
            pause, wait = min(2 * pause, PAUSE_MOST), max(wait, pause)
            if loop.time() + wait > deadline:
                raise error
            logger.debug("%s %s: %s; again in %.2f s", method, path, error, wait)
            await asyncio.sleep(wait)

    async def _try(
        self, method: str, path: str, body: Body | None, query: Mapping[str, str] | None
    ) -> tuple[Body | ApiError, float]:
        """One request: the answer, or an error that may pass and the seconds to wait. Raises the other errors."""
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                response = await self._client.call_api(
                    path,
                    method,
                    query_params=dict(query or {}),
                    header_params={"Accept": "application/json", **_CONTENT.get(method, {})},
                    body=body,
                    auth_settings=["BearerToken"],
                    _preload_content=False,
                )
                async with response:
                    text = await response.text()
        except TimeoutError:
            return ApiError(0, "", f"{method} {path}: no answer within {CALL_TIMEOUT:g} s"), 0.0
        except (aiohttp.ClientError, OSError) as failure:
            return ApiError(0, "", f"{method} {path}: {str(failure) or type(failure).__name__}"), 0.0
        if response.status < 300:
            try:
                answer: Body = json.loads(text)
            except ValueError:  # such as a proxy's own page
                return ApiError(response.status, "", f"{method} {path}: no JSON, but {text[:100]!r}"), 0.0
            return answer, 0.0
        error = _error(response.status, text)
        if response.status == 429 or response.status >= 500:
            return error, _seconds(response.headers.get("Retry-After"))
        raise error


_CONTENT: Final = {"PATCH": {"Content-Type": "application/merge-patch+json"}}


def _error(status: int, text: str) -> ApiError:
    try:
        answer = json.loads(text)
        reason, message = str(answer.get("reason", "")), str(answer.get("message", ""))
    except (ValueError, AttributeError):
        reason, message = "", text[:500]
    kinds: dict[int, type[ApiError]] = {400: Invalid, 403: Refused, 404: NotFound, 422: Invalid}
    if status == 409:
        return (Exists if reason == "AlreadyExists" else Conflict)(status, reason, message)
    return kinds.get(status, ApiError)(status, reason, message)


def _seconds(retry_after: str | None) -> float:
    """Retry-After as the API server writes it: whole seconds."""
    return float(retry_after) if retry_after and retry_after.isdigit() else 0.0
