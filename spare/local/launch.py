"""What to start in each group, and with which environment: the contract between a backend and `spare-agent`."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from spare.api.spec import Spec

AGENT: Final = "spare-agent"
RESERVED: Final = frozenset(
    "SPARE_" + name
    for name in (
        *(
            "JOB",
            "GROUP",
            "SPARE",
            "POD",
            "PODS",
            "PROCS",
            "RANK",
            "HOME",
            "START",
            "UID",
            "TOKEN",
            "BIND",
            "PORT",
            "ANNOUNCE_FD",
            "DIR",
        ),
        *("PARENT", "AGENT", "FAULTS", "SEED", "HEARTBEAT", "DEAD_AFTER", "COLLECTIVE_TIMEOUT", "RENDEZVOUS_TIMEOUT"),
        *("GRACE", "CHECKPOINT", "CHECKPOINT_KEEP"),
        *("TLS_CA", "TLS_CERT", "TLS_KEY"),
    )
)
"""Variables that only a backend sets."""


class AgentMissing(Exception):
    """The console script `spare-agent` is not installed."""


@dataclass(frozen=True)
class Launch:
    """Everything that the agents of one job have in common."""

    job: str
    """The job's unique name, as in every message."""
    argv: tuple[str, ...]
    """The training command."""
    folder: Path
    """The run folder."""
    cwd: Path
    """Folder that the command starts in."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of the template and of the user; they win over inherited ones."""
    bind: str = "127.0.0.1"
    """Host that every listening socket is bound to."""
    token: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    """The job's secret."""
    faults: Mapping[int, str] = field(default_factory=dict)
    """Scripted failures by group."""
    groups: int | None = None
    """Of the job: what is started with a higher number is a spare. None: nothing is."""
    pods: int = 1
    """Of each group."""
    procs: int = 1
    """Workers in each pod."""
    seed: int = 0
    checkpoint: Path | None = None
    """Folder for checkpoints."""
    checkpoint_keep: int = 3
    heartbeat: float = 1.0
    dead_after: float = 5.0
    collective_timeout: float = 600.0
    rendezvous_timeout: float = 300.0
    grace: float = 30.0

    @classmethod
    def of(cls, spec: Spec, *, job: str, folder: Path, base: Path, env: Mapping[str, str], bind: str) -> Launch:
        """What a job file says; relative workingDir and checkpoint.path start at `base`, the job file's folder."""
        trainer = spec.trainer
        return cls(
            job=job,
            argv=trainer.argv,
            folder=folder,
            cwd=base / (trainer.working_dir or "."),
            env={**trainer.env, **env},
            bind=bind,
            groups=spec.groups,
            pods=spec.pods_per_group,
            procs=spec.proc_per_pod,
            seed=spec.seed,
            checkpoint=base / spec.checkpoint.path if spec.checkpoint.path is not None else None,
            checkpoint_keep=spec.checkpoint.keep,
            heartbeat=spec.detection.heartbeat.total_seconds(),
            dead_after=spec.detection.dead_after.total_seconds(),
            collective_timeout=spec.reduction.collective_timeout.total_seconds(),
            rendezvous_timeout=spec.reduction.rendezvous_timeout.total_seconds(),
            grace=float(spec.template.spec.termination_grace_period_seconds),
        )

    def spare(self, number: int) -> int | None:
        """Which spare (from 0) is started with that number; None: it is a group."""
        return None if self.groups is None or number < self.groups else number - self.groups

    def environment(self, group: int, pod: int, uid: str, announce_fd: int, faults: str) -> dict[str, str]:
        """The whole environment of one agent; its workers inherit it."""
        spare = self.spare(group)
        inherited = {name: value for name, value in os.environ.items() if name not in RESERVED}
        return {
            "OMP_NUM_THREADS": "1",  # the groups share the machine's cores; many threads each would fight for them
            **inherited,
            "PATH": search_path(inherited.get("PATH", os.defpath)),
            "PYTHONUNBUFFERED": "1",
            **self.env,
            "SPARE_JOB": self.job,
            "SPARE_GROUP": str(group),
            "SPARE_SPARE": "" if spare is None else str(spare),
            "SPARE_POD": str(pod),
            "SPARE_PODS": str(self.pods),
            "SPARE_PROCS": str(self.procs),
            "SPARE_UID": uid,
            "SPARE_TOKEN": self.token,
            "SPARE_BIND": self.bind,
            "SPARE_ANNOUNCE_FD": str(announce_fd),
            "SPARE_DIR": str(self.folder),
            "SPARE_PARENT": str(os.getpid()),
            "SPARE_HEARTBEAT": _seconds(self.heartbeat),
            "SPARE_DEAD_AFTER": _seconds(self.dead_after),
            "SPARE_COLLECTIVE_TIMEOUT": _seconds(self.collective_timeout),
            "SPARE_RENDEZVOUS_TIMEOUT": _seconds(self.rendezvous_timeout),
            "SPARE_GRACE": _seconds(self.grace),
            "SPARE_SEED": str(self.seed),
            "SPARE_CHECKPOINT": str(self.checkpoint or ""),
            "SPARE_CHECKPOINT_KEEP": str(self.checkpoint_keep),
            "SPARE_FAULTS": faults,
        }

    def command_problem(self) -> str | None:
        """Why the command cannot be started, seen from here; None if nothing speaks against it."""
        given = [("its command", word) for word in self.argv]
        given += [("its variable", f"{name}={value}") for name, value in self.env.items()]
        given += [("its folder", str(self.cwd)), ("spec.checkpoint.path", str(self.checkpoint or ""))]
        for what, text in given:
            if "\0" in text:
                return f"{what} {text!r} holds a character that no process can be given"
        if not self.cwd.is_dir():
            return f"its folder {str(self.cwd)!r} does not exist"
        program = self.argv[0]
        if "/" in program:
            found = os.access(self.cwd / program, os.X_OK)
        else:
            path = self.env.get("PATH") or search_path(os.environ.get("PATH", os.defpath))
            found = shutil.which(program, path=path) is not None
        return self._no_checkpoints() if found else f"its command {program!r} is not an executable that can be found"

    def _no_checkpoints(self) -> str | None:
        """Why no checkpoint could be written where the job wants them; None if nothing speaks against it."""
        if self.checkpoint is None:
            return None
        there = next(path for path in (self.checkpoint, *self.checkpoint.parents) if os.path.lexists(path))
        if not there.is_dir():
            return f"spec.checkpoint.path {str(self.checkpoint)!r} must be a folder, or none yet; {there} is no folder"
        if not os.access(there, os.W_OK | os.X_OK):
            return f"spec.checkpoint.path {str(self.checkpoint)!r} must be a folder that can be written; {there} cannot"
        return None


def search_path(inherited: str) -> str:
    """PATH of the workers: `python` is first of all the one that runs this program, its packages are what is meant."""
    return os.pathsep.join([str(Path(sys.executable).parent), inherited])


def agent_program() -> Path:
    """The `spare-agent` that was installed with this program.

    Raises:
        AgentMissing: it was not; the text says where it was looked for.
    """
    beside = Path(sys.executable).parent / AGENT
    if beside.is_file():
        return beside
    found = shutil.which(AGENT)
    if found is None:
        raise AgentMissing(f"{AGENT} is neither at {beside} nor in PATH; install this package with its scripts")
    return Path(found)


def _seconds(value: float) -> str:
    return format(value, "f")
