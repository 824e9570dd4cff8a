"""The local backend with real agents. Their workers are small programs: no torch is needed to start and end things."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from spare.api.wire import Address
from spare.control.signal import AgentGone, AgentNotStarted, AgentUp, Signal
from spare.local import backend as backend_module
from spare.local.backend import LocalBackend
from spare.local.launch import AgentMissing, Launch
from spare.local.processes import Kin

T = TypeVar("T", AgentUp, AgentGone, AgentNotStarted)
DEADLINE = 20.0
SLEEPER = ("sleep", "600")


class Inbox:
    """What the backend told, and waiting for it."""

    def __init__(self) -> None:
        self.signals: list[Signal] = []
        self._news = asyncio.Event()

    def emit(self, signal: Signal) -> None:
        self.signals.append(signal)
        self._news.set()

    async def first(self, kind: type[T], group: int = 0) -> T:
        try:
            async with asyncio.timeout(DEADLINE):
                while True:
                    for seen in self.signals:
                        if isinstance(seen, kind) and getattr(seen, "group", None) == group:
                            return seen
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pytest.fail(f"no {kind.__name__} of group {group} in {DEADLINE} s; seen: {self.signals}")


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition outside of this process; nothing but looking again tells when it holds."""
    try:
        async with asyncio.timeout(DEADLINE):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"in {DEADLINE} s it did not happen that {what}")


def launch(folder: Path, argv: tuple[str, ...] = SLEEPER, job: str = "test/local") -> Launch:
    folder.mkdir(exist_ok=True)
    return Launch(job=f"{job}/{folder}", argv=argv, folder=folder, cwd=folder)


def played(what: Callable[[LocalBackend, Inbox], Awaitable[None]], settings: Launch) -> Inbox:
    """Run one scene with an open backend and close it; afterwards nothing may be alive."""
    inbox = Inbox()

    async def scene() -> None:
        backend = LocalBackend(settings)
        await backend.open(inbox.emit)
        try:
            await what(backend, inbox)
        finally:
            backend.grace = 0.0
            await backend.close()
        assert backend.alive() == []

    asyncio.run(scene())
    return inbox


def workers(up: AgentUp) -> list[int]:
    """Processes of that incarnation beside its agent, once they run their own program."""
    return [
        pid for pid in Kin(f"SPARE_UID={up.uid}").pids() if Path(f"/proc/{pid}/comm").read_text().strip() == "sleep"
    ]


def test_an_agent_is_told_of_with_the_port_that_it_got(tmp_path: Path) -> None:
    """AgentUp has a loopback address with a real port, and the uid that the agent runs under."""

    async def scene(backend: LocalBackend, inbox: Inbox) -> None:
        await backend.create(0)
        await backend.create(1)
        first, second = await inbox.first(AgentUp, 0), await inbox.first(AgentUp, 1)
        assert Address.parse(first.address).host == "127.0.0.1"
        assert first.address != second.address
        assert first.uid != second.uid

    played(scene, launch(tmp_path))


def test_creating_a_group_again_while_it_runs_changes_nothing(tmp_path: Path) -> None:
    """Every call is safe to repeat: one agent, one AgentUp."""

    async def scene(backend: LocalBackend, inbox: Inbox) -> None:
        await backend.create(0)
        await backend.create(0)
        up = await inbox.first(AgentUp)
        await until(lambda: bool(workers(up)), "the worker runs")
        await backend.create(0)
        assert len(backend.alive()) == 2

    inbox = played(scene, launch(tmp_path))
    assert sum(isinstance(s, AgentUp) for s in inbox.signals) == 1


def test_a_killed_agent_is_gone_with_the_name_of_the_signal(tmp_path: Path) -> None:
    """AgentGone says how it ended; its worker goes with it; the next start has another uid."""

    async def scene(backend: LocalBackend, inbox: Inbox) -> None:
        await backend.create(0)
        up = await inbox.first(AgentUp)
        await until(lambda: bool(workers(up)), "the worker runs")
        (worker,) = workers(up)
        (agent,) = set(backend.alive()) - {worker}
        os.kill(agent, signal.SIGKILL)
        gone = await inbox.first(AgentGone)
        assert gone == AgentGone(0, up.uid, "the agent was killed by SIGKILL")
        await backend.delete(0, up.uid)
        assert backend.alive() == []
        inbox.signals.clear()
        await backend.create(0)
        assert (await inbox.first(AgentUp)).uid != up.uid

    played(scene, launch(tmp_path))


def test_an_agent_that_exits_is_gone_with_its_code(tmp_path: Path) -> None:
    """SIGTERM lets the agent stop its worker; its own exit code is told."""

    async def scene(backend: LocalBackend, inbox: Inbox) -> None:
        await backend.create(0)
        up = await inbox.first(AgentUp)
        await until(lambda: bool(workers(up)), "the worker runs")
        (agent,) = set(backend.alive()) - set(workers(up))
        os.kill(agent, signal.SIGTERM)
        assert (await inbox.first(AgentGone)).reason == "the agent exited with code 143"

    played(scene, launch(tmp_path))


def test_a_stopped_group_can_be_deleted(tmp_path: Path) -> None:
    """Agent and worker under SIGSTOP, and a grandchild that cleared its environment: nothing of them is left."""

    async def scene(backend: LocalBackend, inbox: Inbox) -> None:
        await backend.create(0)
        up = await inbox.first(AgentUp)
        kin = Kin(f"SPARE_UID={up.uid}")
        await until(lambda: len(kin.pids()) == 4, "agent, shell and both of its children run")
        pids = kin.pids()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        await backend.delete(0, up.uid)
        assert kin.pids() == []
        assert not [pid for pid in pids if alive(pid)]
        await backend.delete(0, up.uid)  # again: success

    played(scene, launch(tmp_path, ("sh", "-c", "env -i sleep 600 & sleep 600 & wait")))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def test_deleting_an_unknown_incarnation_is_success(tmp_path: Path) -> None:
    """Gone already is gone."""

    async def scene(backend: LocalBackend, inbox: Inbox) -> None:
        await backend.delete(3, "never-there")

    assert played(scene, launch(tmp_path)).signals == []


def test_closing_asks_first_and_then_kills(tmp_path: Path) -> None:
    """A worker that ignores SIGTERM does not outlive `close`, and neither does a stopped agent."""
    deaf = "trap '' TERM; while :; do sleep 600; done"
    inbox = Inbox()

    async def scene() -> None:
        backend = LocalBackend(launch(tmp_path, ("sh", "-c", deaf)))
        await backend.open(inbox.emit)
        for group in range(2):
            await backend.create(group)
        up = await inbox.first(AgentUp, 1)
        await inbox.first(AgentUp, 0)
        await until(lambda: bool(workers(up)), "the worker runs")
        for pid in Kin(f"SPARE_UID={up.uid}").pids():
            os.kill(pid, signal.SIGSTOP)
        await backend.close()
        assert backend.alive() == []
        await backend.create(0)
        assert backend.alive() == []

    asyncio.run(scene())


def test_a_command_that_does_not_exist_leaves_the_agent_to_tell(tmp_path: Path) -> None:
    """The agent comes up, and its log names the command."""

    async def scene(backend: LocalBackend, inbox: Inbox) -> None:
        await backend.create(0)
        await inbox.first(AgentUp)
        await until(lambda: "'no-such-program'" in backend.folder.tail(backend.folder.log(0)), "its log names it")

    settings = launch(tmp_path, ("no-such-program",))
    played(scene, settings)
    assert settings.command_problem() == "its command 'no-such-program' is not an executable that can be found"


def test_an_agent_that_ends_before_it_listens_was_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AgentNotStarted quotes the end of its log."""
    monkeypatch.setattr(backend_module, "agent_program", lambda: script(tmp_path, "echo no luck >&2; exit 3"))

    async def scene(backend: LocalBackend, inbox: Inbox) -> None:
        await backend.create(0)
        reason = (await inbox.first(AgentNotStarted)).reason
        assert "ended before it listened" in reason
        assert "no luck" in reason

    played(scene, launch(tmp_path / "run"))


@pytest.mark.parametrize(("announced", "complaint"), [("127.0.0.1:0", "'0'"), ("::1:5", "brackets")])
def test_an_announcement_that_cannot_be_dialled_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, announced: str, complaint: str
) -> None:
    """Port 0 is asked for, never announced; an IPv6 host needs brackets (field cases F14, F15)."""
    fake = script(tmp_path, f"echo {announced} > /proc/self/fd/$SPARE_ANNOUNCE_FD; exec sleep 600")
    monkeypatch.setattr(backend_module, "agent_program", lambda: fake)

    async def scene(backend: LocalBackend, inbox: Inbox) -> None:
        await backend.create(0)
        assert complaint in (await inbox.first(AgentNotStarted)).reason
        await until(lambda: not backend.alive(), "it is ended")

    played(scene, launch(tmp_path / "run"))


def test_an_agent_that_says_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for the announcement has a deadline, which is named."""
    monkeypatch.setattr(backend_module, "agent_program", lambda: script(tmp_path, "exec sleep 600"))
    monkeypatch.setattr(backend_module, "ANNOUNCE_DEADLINE", 0.2)

    async def scene(backend: LocalBackend, inbox: Inbox) -> None:
        await backend.create(0)
        assert "for 0.2 s" in (await inbox.first(AgentNotStarted)).reason

    played(scene, launch(tmp_path / "run"))


def test_a_start_that_cannot_be_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text that has no bytes (half of a surrogate pair), and what is not installed."""
    told = list[str]()

    def missing() -> Path:
        raise AgentMissing("spare-agent is not here")

    async def scene(backend: LocalBackend, inbox: Inbox) -> None:
        await backend.create(0)
        told.append((await inbox.first(AgentNotStarted)).reason)

    played(scene, launch(tmp_path / "text", ("true", "\ud800")))
    monkeypatch.setattr(backend_module, "agent_program", missing)
    played(scene, launch(tmp_path / "missing"))
    assert ["'utf-8' codec" in told[0], "spare-agent is not here" in told[1]] == [True, True]


def script(folder: Path, text: str) -> Path:
    path = folder / "fake-agent"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_spare_is_the_group_s_once_it_takes_over(tmp_path: Path) -> None:
    """Its end is then told of the group; its number is free; a start of the group beside it is ended."""

    async def scene(backend: LocalBackend, inbox: Inbox) -> None:
        await backend.create(0)
        await backend.create(1)
        late, spare = await inbox.first(AgentUp, 0), await inbox.first(AgentUp, 1)
        for _ in range(2):
            await backend.take_over(0, 1, spare.uid)
        assert (await inbox.first(AgentGone, 0)).uid == late.uid
        assert not Kin(f"SPARE_UID={late.uid}").pids()
        note = backend.folder.log(0).read_text().splitlines()[-1]
        log = backend.folder.spare_log(0, spare.uid)
        assert note == f"[spare run] group 0 goes on in {log.name}"
        assert "[agent spare 0] spare 0 listens" in log.read_text()

        await backend.create(0)  # it is there
        await backend.create(1)  # another spare
        await until(lambda: len([s for s in inbox.signals if isinstance(s, AgentUp)]) == 3, "another is up")
        assert sorted(s.group for s in inbox.signals if isinstance(s, AgentUp)) == [0, 1, 1]
        await backend.delete(0, spare.uid)
        await until(lambda: any(isinstance(s, AgentGone) and s.uid == spare.uid for s in inbox.signals), "it is gone")
        assert next(s for s in inbox.signals if isinstance(s, AgentGone) and s.uid == spare.uid).group == 0

    played(scene, replace(launch(tmp_path), groups=1))


def test_two_backends_at_once_do_not_meet(tmp_path: Path) -> None:
    """Field case F14: no fixed ports, and closing one job leaves the other alone."""

    async def scene() -> None:
        both = [(LocalBackend(launch(tmp_path / name)), Inbox()) for name in ("a", "b")]
        for backend, inbox in both:
            await backend.open(inbox.emit)
            await backend.create(0)
        ups = [await inbox.first(AgentUp) for _, inbox in both]
        assert ups[0].address != ups[1].address
        await until(lambda: all(map(workers, ups)), "both workers run")
        await both[0][0].close()
        assert both[0][0].alive() == []
        assert len(both[1][0].alive()) == 2
        await both[1][0].close()
        assert both[1][0].alive() == []

    asyncio.run(scene())


def test_every_listening_socket_is_on_the_loopback_that_was_asked_for(tmp_path: Path) -> None:
    """Field case F15: `--bind ::1` gives an address in brackets."""
    settings = Launch(job="test/v6", argv=SLEEPER, folder=tmp_path, cwd=tmp_path, bind="::1")

    async def scene(backend: LocalBackend, inbox: Inbox) -> None:
        await backend.create(0)
        assert (await inbox.first(AgentUp)).address.startswith("[::1]:")

    played(scene, settings)


def test_scripted_failures_belong_to_the_first_start(tmp_path: Path) -> None:
    """A replacement would meet the same failure again and again."""
    show = ("sh", "-c", 'echo "faults=[$SPARE_FAULTS] omp=$OMP_NUM_THREADS"; exec sleep 600')
    settings = Launch(
        job="test/faults",
        argv=show,
        folder=tmp_path,
        cwd=tmp_path,
        faults={0: "kill@3:compute"},
        env={"OMP_NUM_THREADS": "2"},
    )

    async def scene(backend: LocalBackend, inbox: Inbox) -> None:
        await backend.create(0)
        up = await inbox.first(AgentUp)
        await until(
            lambda: "faults=[kill@3:compute] omp=2" in backend.folder.tail(backend.folder.log(0)),
            "the first has the script",
        )
        await backend.delete(0, up.uid)
        await backend.create(0)
        await until(lambda: "faults=[] omp=2" in backend.folder.tail(backend.folder.log(0)), "the second has none")

    played(scene, settings)


def test_agents_die_with_the_process_that_started_them(tmp_path: Path) -> None:
    """`kill -9` of the run itself leaves nothing behind."""
    program = f"""
import asyncio, os, pathlib
from spare.local.backend import LocalBackend
from spare.local.launch import Launch
async def main():
    folder = pathlib.Path({str(tmp_path)!r})
    backend = LocalBackend(Launch(job="test/orphan", argv=("sleep", "600"), folder=folder, cwd=folder))
    await backend.open(lambda signal: None)
    await backend.create(0)
    while len(backend.alive()) < 2:
        await asyncio.sleep(0.01)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""

    async def scene() -> None:
        run = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
        async with asyncio.timeout(DEADLINE):
            assert await run.wait() == -signal.SIGKILL
        await until(lambda: not Kin("SPARE_JOB=test/orphan").pids(), "agent and worker are gone")

    asyncio.run(scene())
