"""The cluster as the tests see it: kubectl, JSON, and waits that say what they waited for and what they saw last.

What is asked often goes through one `kubectl proxy`: a program start for each question would cost more than the answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

Body: TypeAlias = dict[str, Any]
T = TypeVar("T")

CALL_SECONDS = 60.0
"""For one call; nodes share few cores with everything else here."""


class CallFailed(AssertionError):
    """kubectl or helm said no; `text` is what it said."""

    def __init__(self, command: Sequence[str], text: str) -> None:
        super().__init__(f"{' '.join(command)}: {text}")
        self.text = text


def call(*command: str, given: str | None = None, seconds: float = CALL_SECONDS) -> str:
    """Run a program to its end; what it printed.

    Raises:
        CallFailed: it exited with an error, or not in time.
    """
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise CallFailed(command, f"no end within {seconds:g} s; {error.stdout!r} {error.stderr!r}") from error
    if done.returncode:
        raise CallFailed(command, (done.stderr or done.stdout).strip())
    return done.stdout


def wait_for(what: str, probe: Callable[[], T | None], seconds: float, seen: Callable[[], object] = lambda: "") -> T:
    """The first answer of `probe` that is not None or False; past the deadline, what was waited for and last seen."""
    deadline = time.monotonic() + seconds
    while True:
        answer = probe()
        if answer is not None and answer is not False:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s for {what}; last seen: {seen()}")
        time.sleep(0.5)


_PROXY = "SPARE_E2E_PROXY"
_PLACES = {
    "spj": ("apis/spare.training/v1alpha1", "sparejobs"),
    "pod": ("api/v1", "pods"),
    "configmap": ("api/v1", "configmaps"),
    "event": ("api/v1", "events"),
    "deployment": ("apis/apps/v1", "deployments"),
    "lease": ("apis/coordination.k8s.io/v1", "leases"),
}
"""Where the API server keeps each kind that tests ask for again and again."""


@contextlib.contextmanager
def proxy() -> Iterator[None]:
    """`kubectl proxy` on a free port of this machine, for as long as the tests run."""
    with subprocess.Popen(["kubectl", "proxy", "--port=0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"127\.0\.0\.1:\d+", line)
            assert found, f"kubectl proxy said {line!r}"
            os.environ[_PROXY] = found[0]
            yield
        finally:
            process.terminate()


def ask(method: str, path: str, body: Body | None = None, query: Mapping[str, str] | None = None) -> Body:
    """One request to the API server.

    Raises:
        CallFailed: the server refused; `text` is its message.
    """
    url = f"http://{os.environ[_PROXY]}/{path}?{urllib.parse.urlencode(query or {})}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=CALL_SECONDS) as response:
            return dict(json.load(response))
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        with contextlib.suppress(ValueError):
            text = json.loads(text)["message"]
        raise CallFailed([method, path], f"{error.code} {text}") from None


@dataclass(frozen=True)
class Namespace:
    """Calls within one namespace."""

    name: str

    def kubectl(self, *arguments: str, given: str | None = None, seconds: float = CALL_SECONDS) -> str:
        """`kubectl -n NAME ARGUMENTS...`."""
        return call("kubectl", "-n", self.name, *arguments, given=given, seconds=seconds)

    def apply(self, *bodies: Body, dry_run: bool = False) -> None:
        """Apply objects, unknown fields refused."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(bodies)})
        extra = ["--dry-run=server"] if dry_run else []
        self.kubectl("apply", "--server-side", "--force-conflicts", *extra, "-f", "-", given=text)

    def path(self, kind: str, name: str = "") -> str:
        """Of an object, or of all of a kind, at the API server."""
        root, plural = _PLACES[kind]
        return f"{root}/namespaces/{self.name}/{plural}" + (f"/{name}" if name else "")

    def get(self, kind: str, name: str) -> Body:
        """One object that must be there."""
        return ask("GET", self.path(kind, name))

    def find(self, kind: str, name: str) -> Body | None:
        """One object; None if there is none."""
        found = self.all(kind, fieldSelector=f"metadata.name={name}")
        return found[0] if found else None

    def all(self, kind: str, labels: dict[str, str] | None = None, **query: str) -> list[Body]:
        """All objects of a kind with these labels."""
        if labels:
            query["labelSelector"] = ",".join(f"{key}={value}" for key, value in labels.items())
        return list(ask("GET", self.path(kind), query=query)["items"])

    def delete(self, kind: str, name: str, *more: str, wait: bool = False, seconds: float = CALL_SECONDS) -> None:
        """Delete an object; that there is none is no error."""
        self.kubectl("delete", kind, name, "--ignore-not-found", f"--wait={str(wait).lower()}", *more, seconds=seconds)

    def events(self, reason: str | None = None) -> list[Body]:
        """Events, oldest first."""
        found = [each for each in self.all("event") if reason in (None, each["reason"])]
        return sorted(found, key=lambda each: str(each["metadata"]["creationTimestamp"]))
