"""Conducting one local run: folder, backend, coordinator, view, and the signals that end it early."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import click

from spare.api.exit_codes import ExitCode
from spare.api.job import SPAReJob
from spare.api.ledger import audit
from spare.cli.mistake import Mistake
from spare.cli.outcome import Outcome, conclude
from spare.cli.view import Run, View
from spare.control.config import Config
from spare.control.signal import Suspend
from spare.coordinator.actor import Coordinator
from spare.coordinator.observe import Observer, Snapshot
from spare.local.backend import LocalBackend
from spare.local.door import Door
from spare.local.launch import AgentMissing, Launch, agent_program
from spare.local.processes import adopt_orphans
from spare.local.run_folder import RunFolder
from spare.planner import recommended_redundancy

_ENDINGS = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.SIGTERM, signal.SIGHUP: ExitCode.SIGHUP}
_NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
SUMMARY = "summary.json"
LOOK = 1.0
"""Seconds between two looks whether the run's folder is there."""


@dataclass(frozen=True)
class Order:
    """What `spare run` was asked to do."""

    job: SPAReJob
    base: Path
    """The job file's folder."""
    runs: Path
    bind: str
    env: Mapping[str, str]
    faults: Mapping[int, str]
    """Scripted failures by group, as the workers read them."""
    replace: bool
    """Start lost groups again, to rejoin, and spares, to do so at once."""
    script: tuple[str, ...]
    """The scripted failures for people."""


def redundancy_of(job: SPAReJob) -> int:
    """The number of hosts per shard, `auto` resolved."""
    spec = job.spec
    if spec.redundancy == "auto":
        return recommended_redundancy(spec.groups, spec.parts)
    return spec.redundancy


def prepare(order: Order) -> Launch:
    """Make the run folder, once nothing speaks against the start.

    Raises:
        Mistake: the run cannot start; nothing was left behind.
    """
    job, spec = order.job, order.job.spec
    launch = Launch.of(spec, job=job.metadata.name, folder=Path(), base=order.base, env=order.env, bind=order.bind)
    problem = launch.command_problem()
    if problem is not None:
        raise Mistake(f"the trainer cannot be started: {problem}")
    try:
        agent_program()
        folder = RunFolder.create(order.runs, job.metadata.name, datetime.now())
    except (AgentMissing, OSError) as error:
        raise Mistake(str(error)) from error
    name = f"{job.metadata.name}/{folder.name}"
    return dataclasses.replace(launch, job=name, folder=folder.path, faults=order.faults)


async def conduct(order: Order, launch: Launch, view: View) -> Outcome:
    """Run the job to its end. No process of it lives afterwards.

    Raises:
        StillAlive: a process could not be ended.
        RunFolderRemoved: by somebody else, while the job ran.
        OSError: the run folder cannot be written.
    """
    spec, redundancy = order.job.spec, redundancy_of(order.job)
    adopt_orphans()
    backend = LocalBackend(launch, alone=True)
    config = Config.of(launch.job, spec, redundancy)
    spares = spec.spares if order.replace else 0
    config = dataclasses.replace(config, replace=order.replace, spares=spares, unheard_limit=config.hang_after)
    observers: list[Observer] = [view]
    coordinator = Coordinator(config, backend, token=launch.token, observers=observers)
    door = Door(launch.folder, coordinator.emit, coordinator.snapshot)
    observers.append(door)
    view.begin(Run(launch.job, spec.groups, redundancy, spec.micro_batches, launch.folder, order.script))
    ending = _Ending(coordinator, backend, view, config.grace)
    watch = asyncio.create_task(_watch(backend.folder, coordinator, view, config.grace))
    try:
        await opened(door, view)
        with ending.watched():
            snapshot = await coordinator.run()
        removed = await asyncio.to_thread(backend.folder.removed)
        if removed is not None:
            raise RunFolderRemoved(removed, snapshot)
    except BaseException:
        view.broken()
        raise
    finally:
        watch.cancel()
        door.close()
    ledgers = await asyncio.to_thread(backend.folder.ledgers)
    checked = audit(ledgers, spec.groups, spec.micro_batches)
    outcome = conclude(snapshot, ledgers, checked, launch.folder, ending.exit_code, order.script)
    try:
        backend.folder.record(SUMMARY, json.dumps(outcome.as_json()))
    except OSError as error:
        view.note(f"the summary cannot be written to {launch.folder / SUMMARY}: {error}")
    view.end(outcome)
    if ending.exit_code is not None and not backend.alive():
        view.note("no process of the job is left")
    return outcome


class RunFolderRemoved(click.ClickException):
    """Nothing can be counted any more, and no plan be written down where a coordinator that comes back would look."""

    def __init__(self, what: Path, snapshot: Snapshot) -> None:
        super().__init__(
            f"{what} was removed while the job ran: what was in it (logs, ledgers, the plan) is lost, so that what the "
            f"job did cannot be audited. It ended after step {snapshot.step}: {snapshot.verdict or snapshot.state}"
        )


async def _watch(folder: RunFolder, coordinator: Coordinator, view: View, grace: float) -> None:
    """Stop the job, in good order, once its folder is gone: nobody could be told of another plan."""
    while (removed := await asyncio.to_thread(folder.removed)) is None:  # noqa: ASYNC110  # nobody tells us
        await asyncio.sleep(LOOK)
    view.note(f"{removed} was removed: all groups stop after the step in flight")
    with contextlib.suppress(OSError):  # else the plan that lets them stop cannot be written, and they stop without it
        await asyncio.to_thread(folder.path.mkdir, parents=True, exist_ok=True)
    coordinator.emit(Suspend(f"{removed} was removed", grace))


async def opened(door: Door, view: View) -> None:
    """Open the door, where the run's folder can have one."""
    try:
        await door.open()
    except OSError as error:  # a folder that holds no sockets: the job can do without
        view.note(f"spare drain cannot reach this run: {error.strerror or error}")


class _Ending:
    """Ctrl-C, SIGTERM and the end of the terminal: the first ends the job cleanly, the second kills, the third is
    Python's own. SIGTERM lets all groups finish the step in flight and save it, within the grace of a pod."""

    def __init__(self, coordinator: Coordinator, backend: LocalBackend, view: View, grace: float) -> None:
        self._coordinator, self._backend, self._view, self._grace = coordinator, backend, view, grace
        self.exit_code: int | None = None
        """Of the first signal that came; None if none did."""

    def watched(self) -> contextlib.ExitStack:
        """While it is entered, signals come here."""
        loop = asyncio.get_running_loop()
        stack = contextlib.ExitStack()
        for number in _ENDINGS:
            before = signal.getsignal(number)
            if number == signal.SIGHUP and before is signal.SIG_IGN:
                continue  # started by nohup
            loop.add_signal_handler(number, self._came, number)
            stack.callback(signal.signal, number, before)
            stack.callback(loop.remove_signal_handler, number)
        return stack

    def _came(self, number: signal.Signals) -> None:
        if self.exit_code is None:
            self.exit_code = int(_ENDINGS[number])
            if number == signal.SIGTERM:
                self._view.note("SIGTERM: all groups stop after the step in flight; once more kills at once")
                self._coordinator.emit(Suspend("SIGTERM received", self._grace))
            else:
                self._view.note(f"{_NAMES[number]}: ending the job; once more kills at once")
                self._coordinator.stop(f"{_NAMES[number]} received")
            return
        self._view.note(f"{_NAMES[number]} again: killing")
        self._coordinator.stop(f"{_NAMES[number]} received again")
        for each in _ENDINGS:
            asyncio.get_running_loop().remove_signal_handler(each)
        self._backend.kill_all()
