"""The line between operator and agent: TLS with the job's own authority, both sides checked; one leader at a time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spare.api import wire
from spare.control.signal import LinkDown, Report, Signal
from spare.coordinator.link import Events, Identity, Link
from spare.coordinator.transport import Tcp, Tls, Transport
from spare_operator.certificates import AGENT_NAME, Certificates, Pair, calling_context, issue
from spare_runtime.agent.listening import HANDSHAKE, WAITING
from spare_runtime.config import BadEnvironment, read_environment
from tests.runtime.agent.stage import Stage, acting, until
from tests.runtime.plans import JOB, TOKEN, UID

DEADLINE = 20.0


@pytest.fixture(scope="module")
def certificates() -> Certificates:
    return issue(JOB, datetime.now(UTC))


@pytest.fixture
def agent(tmp_path: Path, certificates: Certificates) -> Iterator[Stage]:
    """A real agent that listens with TLS."""
    files = {"SPARE_TLS_CA": certificates.authority}
    files |= {"SPARE_TLS_CERT": certificates.agent.certificate, "SPARE_TLS_KEY": certificates.agent.key}
    env: Any = {}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        env[name] = str(tmp_path / name)
    with acting(tmp_path, **env) as stage:
        until(lambda: stage.told("pid"), "the worker began")
        yield stage


def caller(certificates: Certificates, pair: Pair | None = None) -> Tls:
    return Tls(calling_context(certificates.authority, pair or certificates.operator), AGENT_NAME)


async def call(
    stage: Stage, transport: Transport, enough: Callable[[list[Signal]], bool], term: int = 1
) -> list[Signal]:
    """What a link over this transport tells until that is enough."""
    told: list[Signal] = []
    came = asyncio.Event()

    def emit(signal: Signal) -> None:
        told.append(signal)
        if enough(told):
            came.set()

    events = Events(emit, lambda group, why: None, lambda group, pod, message: None)
    link = Link(Identity(JOB, TOKEN, "operator", term), 0, UID, str(stage.address), transport, events, patience=5.0)
    link.start()
    try:
        async with asyncio.timeout(DEADLINE):
            await came.wait()
    finally:
        await link.close()
    return told


def welcome(told: list[Signal]) -> bool:
    return any(isinstance(signal, Report) and isinstance(signal.message, wire.Hello) for signal in told)


def refused(told: list[Signal]) -> bool:
    return any(isinstance(signal, LinkDown) for signal in told)


def test_the_operator_reaches_the_agent(agent: Stage, certificates: Certificates) -> None:
    """With its certificate and the token it gets the agent's hello."""
    assert welcome(asyncio.run(call(agent, caller(certificates), welcome)))


def strangers(certificates: Certificates) -> dict[str, Transport]:
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    nobody.load_verify_locations(cadata=certificates.authority)
    other = issue(JOB, datetime.now(UTC))
    mine = calling_context(other.authority, other.operator)
    mine.check_hostname, mine.verify_mode = False, ssl.CERT_NONE
    return {
        "no TLS": Tcp(),
        "no certificate": Tls(nobody, AGENT_NAME),
        "a pod's own certificate": caller(certificates, certificates.agent),
        "another job's authority": Tls(mine, AGENT_NAME),
    }


@pytest.mark.parametrize("who", ["no TLS", "no certificate", "a pod's own certificate", "another job's authority"])
def test_who_has_no_certificate_for_calling_gets_no_answer(agent: Stage, certificates: Certificates, who: str) -> None:
    """Even with the job's token: the agent says nothing, and goes on (F58, F59)."""
    told = asyncio.run(call(agent, strangers(certificates)[who], refused))

    assert not welcome(told)
    assert welcome(asyncio.run(call(agent, caller(certificates), welcome)))


def test_handshakes_that_are_begun_and_left_use_up_nothing(agent: Stage, certificates: Certificates) -> None:
    """Each holds memory, and a pod has little: the oldest are sent away, and the operator still gets in (F59)."""

    def held(callers: list[socket.socket]) -> list[socket.socket]:
        return [c for c in callers if not select.select([c], [], [], 0)[0]]

    with contextlib.ExitStack() as stack:
        callers = []
        os.kill(agent.process.pid, signal.SIGSTOP)  # so that all of them have come when it looks
        for _ in range(3 * WAITING):
            callers.append(stack.enter_context(socket.create_connection((agent.address.host, agent.address.port))))
            callers[-1].sendall(b"\x16\x03\x01")
        os.kill(agent.process.pid, signal.SIGCONT)
        began = time.monotonic()
        until(lambda: len(held(callers)) <= WAITING, "the oldest are sent away")
        assert time.monotonic() - began < 0.8 * HANDSHAKE, "and not for the time that they took"

        assert held(callers)[-1] is callers[-1]
        assert welcome(asyncio.run(call(agent, caller(certificates), welcome)))


def test_an_agent_of_another_job_is_not_believed(agent: Stage) -> None:
    """The operator checks the agent, too."""
    told = asyncio.run(call(agent, caller(issue(JOB, datetime.now(UTC))), refused))

    assert not welcome(told)
    assert "certificate verify failed" in str(told[0])


def test_a_deposed_leader_is_refused_by_its_number(agent: Stage, certificates: Certificates) -> None:
    """Once the leader of term 3 has attached, that of term 2 gets nothing, and 3 itself may come back (F63)."""
    transport = caller(certificates)

    assert welcome(asyncio.run(call(agent, transport, welcome, term=3)))
    told = asyncio.run(call(agent, transport, refused, term=2))
    assert "leadership 2; the coordinator of leadership 3 has been here" in str(told[0])
    assert welcome(asyncio.run(call(agent, transport, welcome, term=3)))


def test_who_tries_without_the_token_is_told_to_the_coordinator(tmp_path: Path) -> None:
    """The agent passes it on, so that it is counted where people look (F59)."""
    with acting(tmp_path) as stage:
        line = stage.ready()
        stage.line().attach(token="guessed")
        refusal = line.next(wire.Refusal)

        assert (refusal.what, refusal.reason) == ("attach", "'attach' without this job's token")


def test_tls_files_come_together_or_not_at_all(tmp_path: Path) -> None:
    """Half of them is a mistake, not a line in the clear."""
    told = {"SPARE_JOB": JOB, "SPARE_GROUP": "0", "SPARE_UID": UID, "SPARE_TOKEN": TOKEN}
    with pytest.raises(BadEnvironment, match="SPARE_TLS_CERT=''"):
        read_environment({**told, "SPARE_TLS_CA": __file__})
