"""What the pod side is told by its environment: read once, here, and nowhere else.

A backend sets these for the agent; the agent passes them on to its workers and adds SPARE_AGENT, the Unix socket on
which it listens for them, and SPARE_RANK. Arguments of `Session` win over what stands here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace


class BadEnvironment(Exception):
    """A variable is missing or has no usable value; the text names it, its value and what is allowed."""


def _number(env: Mapping[str, str], name: str, default: float, low: float) -> float:
    text = env.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = float("nan")
    if not value >= low:
        raise BadEnvironment(f"{name}={text!r}: a number of at least {low:g} is needed")
    return value


def _whole(env: Mapping[str, str], name: str, default: int | None, high: int | None = None, low: int = 0) -> int:
    text = env.get(name, "")
    if not text and default is not None:
        return default
    if not text.isascii() or not text.isdigit() or int(text) < low or (high is not None and int(text) > high):
        allowed = f"at least {low}" if high is None else f"{low} to {high}"
        raise BadEnvironment(f"{name}={text!r}: a whole number of {allowed} is needed")
    return int(text)


def _text(env: Mapping[str, str], name: str) -> str:
    value = env.get(name, "")
    if not value:
        raise BadEnvironment(f"{name} is not set: this program is started by a SPARe backend (see `spare run --help`)")
    return value


@dataclass(frozen=True)
class Tls:
    """Files in PEM form, of one authority for each job."""

    ca: str
    certificate: str
    key: str


def _tls(env: Mapping[str, str]) -> Tls | None:
    names = ("SPARE_TLS_CA", "SPARE_TLS_CERT", "SPARE_TLS_KEY")
    files = [env.get(name, "") for name in names]
    if not any(files):
        return None
    for name, file in zip(names, files, strict=True):
        if not file or not os.access(file, os.R_OK):
            raise BadEnvironment(
                f"{name}={file!r}: a file that can be read is needed, as for each of {', '.join(names)}"
            )
    return Tls(*files)


@dataclass(frozen=True)
class Environment:
    """Settings of one pod's agent and workers. Durations are seconds."""

    @property
    def ranks(self) -> int:
        """Workers of the whole group."""
        return self.pods * self.procs

    @property
    def name(self) -> str:
        """For people: "3", or "spare 0" while it waits for a place."""
        return str(self.group) if self.spare is None else f"spare {self.spare}"

    @property
    def called(self) -> str:
        """The same as "group 3" or "spare 0"."""
        return f"group {self.name}" if self.spare is None else self.name

    @property
    def place(self) -> dict[str, str]:
        """What an agent's workers are told of it, which may have changed since the agent was started."""
        return {"SPARE_GROUP": str(self.group), "SPARE_SPARE": "" if self.spare is None else str(self.spare)}

    job: str
    group: int
    """Number of the group; of a spare one of its own, until a plan gives it a group's."""
    spare: int | None
    """It was started as this spare (from 0), and waits for the place of a lost group; None once it has one."""
    pod: int
    """Number of this pod in its group."""
    pods: int
    """Pods of each group."""
    procs: int
    """Workers in each pod."""
    rank: int
    """Of a worker, in its group: pod * procs + its place in the pod. The agent's own is that of its first worker."""
    home: str
    """Address of the store at which the ranks of this group meet; empty where there is only one."""
    start: int
    """Number of this start of the group's workers, under the same incarnation."""
    uid: str
    """Incarnation of the group: fresh at every start, the same in all its pods."""
    token: str = field(repr=False)
    bind: str
    """Host that every listening socket is bound to; loopback unless the backend says otherwise."""
    port: int
    """Port of the agent's own socket; 0 lets the kernel choose, and what it chose is announced."""
    announce_fd: int | None
    """Inherited pipe on which the agent announces its address; None where the backend knows it."""
    directory: str | None
    """Folder for the ledger; None writes none."""
    parent: int | None
    """Process whose end ends the agent; None in a pod."""
    agent: str | None
    """The agent's Unix socket, for the worker."""
    heartbeat: float
    dead_after: float
    collective_timeout: float
    rendezvous_timeout: float
    grace: float
    """From being asked to go until it is killed."""
    seed: int
    tls: Tls | None
    """The agent's own certificate and whom it believes; None: it listens without TLS (on loopback)."""
    faults: str
    checkpoint: str | None
    """Folder for checkpoints, which all groups see; None: none are written."""
    checkpoint_keep: int
    """How many of the newest are kept."""
    digests: bool
    """Write a digest of all parameters into the ledger at each commit (costly; tests use it)."""


def placed(env: Environment, group: int) -> Environment:
    """The same, of who has a group's place: a spare learns by its first plan which."""
    return env if (env.group, env.spare) == (group, None) else replace(env, group=group, spare=None)


def read_environment(env: Mapping[str, str] | None = None) -> Environment:
    """Settings from `env` (default: this process's).

    Raises:
        BadEnvironment: naming the variable.
    """
    env = os.environ if env is None else env
    pods, procs = _whole(env, "SPARE_PODS", 1, low=1), _whole(env, "SPARE_PROCS", 1, low=1)
    pod = _whole(env, "SPARE_POD", 0, pods - 1)
    return Environment(
        job=_text(env, "SPARE_JOB"),
        group=_whole(env, "SPARE_GROUP", None),
        spare=_whole(env, "SPARE_SPARE", None) if env.get("SPARE_SPARE") else None,
        pod=pod,
        pods=pods,
        procs=procs,
        rank=_whole(env, "SPARE_RANK", pod * procs, pods * procs - 1),
        home=env.get("SPARE_HOME", ""),
        start=_whole(env, "SPARE_START", 0),
        uid=_text(env, "SPARE_UID"),
        token=_text(env, "SPARE_TOKEN"),
        bind=env.get("SPARE_BIND") or "127.0.0.1",
        port=_whole(env, "SPARE_PORT", 0, 65535),
        announce_fd=_whole(env, "SPARE_ANNOUNCE_FD", None) if env.get("SPARE_ANNOUNCE_FD") else None,
        directory=env.get("SPARE_DIR") or None,
        parent=_whole(env, "SPARE_PARENT", None) if env.get("SPARE_PARENT") else None,
        agent=env.get("SPARE_AGENT") or None,
        heartbeat=_number(env, "SPARE_HEARTBEAT", 1.0, 0.001),
        dead_after=_number(env, "SPARE_DEAD_AFTER", 5.0, 0.001),
        collective_timeout=_number(env, "SPARE_COLLECTIVE_TIMEOUT", 600.0, 0.1),
        rendezvous_timeout=_number(env, "SPARE_RENDEZVOUS_TIMEOUT", 300.0, 0.1),
        grace=_number(env, "SPARE_GRACE", 30.0, 0.0),
        seed=_whole(env, "SPARE_SEED", 0),
        tls=_tls(env),
        faults=env.get("SPARE_FAULTS", ""),
        checkpoint=env.get("SPARE_CHECKPOINT") or None,
        checkpoint_keep=max(1, _whole(env, "SPARE_CHECKPOINT_KEEP", 3)),
        digests=env.get("SPARE_DIGESTS", "") == "1",
    )
