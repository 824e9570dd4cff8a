"""How each system is started, and how it gets a lost process back: with the best settings that we know to be honest."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

HERE = Path(__file__).parent
PLAIN, ELASTIC = "DDP", "torchrun elastic"
GROUPS, MICRO_BATCHES = 4, 2


@dataclass
class Running:
    """A run of one system, with all its processes; leaving it ends them."""

    system: str
    folder: Path
    peers: Path
    """The Python with torchft."""
    kill: str
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _ending: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.journals = self.folder / "journals"
        self.journals.mkdir(parents=True)
        self._env = {**os.environ, "JOURNAL": str(self.journals), "KILL": self.kill, "OMP_NUM_THREADS": "1"}
        STARTS[self.system](self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        for process in self._processes:
            _signal(process, signal.SIGTERM)
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            _signal(process, signal.SIGKILL)
            process.wait()
        for thread in self._threads:
            thread.join()

    def begin(self, *command: str | Path, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own; what it says goes into a file."""
        number = len(list(self.folder.glob("*.log")))
        with (self.folder / f"{number}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(part) for part in command],
                env=self._env | (env or {}),
                stdout=log,
                stderr=log,
                cwd=HERE,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def keep(self, *command: str | Path, env: dict[str, str]) -> None:
        """Start a process, and again at once whenever it ends: the best that a supervisor can do."""

        def supervise() -> None:
            while not self._ending.is_set():
                self.begin(*command, env=env).wait()

        self._threads.append(threading.Thread(target=supervise, daemon=True))
        self._threads[-1].start()

    def told(self) -> str:
        """The end of what its processes said."""
        return "\n".join(f"--- {p.name}\n{p.read_text(errors='replace')[-1500:]}" for p in self.folder.glob("*.log"))


def _signal(process: subprocess.Popen[bytes], sig: signal.Signals) -> None:
    try:
        os.killpg(process.pid, sig)
    except ProcessLookupError:
        return


def _torchrun(run: Running, restarts: int, **env: str) -> None:
    run.begin(
        run.peers.parent / "torchrun",
        "--nnodes=1",
        f"--nproc-per-node={GROUPS}",
        f"--max-restarts={restarts}",
        "--monitor-interval=0.1",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=127.0.0.1:0",
        HERE / "worker_torch.py",
        env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **env},
    )


def _plain(run: Running) -> None:
    _torchrun(run, 0)


def _elastic(run: Running) -> None:
    _torchrun(run, 100, CHECKPOINT=str(run.folder / "checkpoint"))


def _torchft(data: str, heartbeat_ms: int, timeout: float) -> Callable[[Running], None]:
    def start(run: Running) -> None:
        lighthouse = "import sys, time; from torchft.coordination import LighthouseServer; s = LighthouseServer("
        lighthouse += f"bind='127.0.0.1:0', min_replicas=2, heartbeat_timeout_ms={heartbeat_ms}); "
        lighthouse += "open(sys.argv[1], 'w').write(s.address()); time.sleep(1e6)"
        place = run.folder / "lighthouse"
        run.begin(run.peers, "-c", lighthouse, place)
        while not (place.exists() and place.read_text()):
            if run._processes[0].poll() is not None:
                raise RuntimeError(f"the lighthouse ended: {run.told()}")
        for group in range(GROUPS):
            env = {"REPLICA": str(group), "TORCHFT_LIGHTHOUSE": place.read_text(), "DATA": data}
            env["TIMEOUT"] = str(timeout)
            run.keep(run.peers, HERE / "worker_torchft.py", env=env)

    return start


def _spare(run: Running) -> None:
    env = [{"name": k, "value": run._env[k]} for k in ("JOURNAL", "KILL")]
    command = [sys.executable, str(HERE / "worker_spare.py")]
    containers = [{"name": "trainer", "command": command, "env": env}]
    spec = {"groups": GROUPS, "redundancy": 3, "microBatches": MICRO_BATCHES}
    job = {
        "apiVersion": "spare.training/v1alpha1",
        "kind": "SPAReJob",
        "metadata": {"name": "peers"},
        "spec": {**spec, "template": {"spec": {"containers": containers}}},
    }
    (run.folder / "job.yaml").write_text(yaml.safe_dump(job))
    spare = Path(sysconfig.get_path("scripts")) / "spare"
    run.begin(spare, "run", run.folder / "job.yaml", "--json", "--runs", run.folder / "runs")


STARTS = {
    PLAIN: _plain,
    ELASTIC: _elastic,
    "torchft": _torchft("replica", 5000, 60),
    "torchft, 1 s": _torchft("replica", 1000, 5),
    "torchft, 1 s, by position": _torchft("position", 1000, 5),
    "SPARe": _spare,
}
SETTINGS = {
    PLAIN: "DistributedDataParallel over gloo, gradient_as_bucket_view; a lost process ends the job",
    ELASTIC: "torchrun, one agent, restarts at once, monitor interval 0.1 s (its default), checkpoint every 10 steps "
    "into memory, TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 (without it the restart over gloo is racy)",
    "torchft": "its manager and gloo, one all-reduce of all gradients, quorum beside the forward, heartbeat timeout 5 "
    "s and timeout of collectives 60 s (its defaults), data by replica as its sampler has them; an uncommitted step is "
    "tried again; a lost process is started again at once. Not its DistributedDataParallel: in 0.2.0 survivors of a "
    "failed all-reduce die in its hook (AttributeError: 'Future' object has no attribute '_fut')",
    "torchft, 1 s": "the same with a heartbeat timeout of 1 s, and of 5 s for collectives: a death that the survivors' "
    "sockets do not show is noticed by that timeout",
    "torchft, 1 s, by position": "the same, and the stream is read on from batches_committed, so that no part is left "
    "out while a replica is missing; the quorum is waited for",
    "SPARe": "4 groups, redundancy 3, everything else by default; the local backend starts lost groups again at once",
}
