"""The worker's line to its agent, with the agent's end in the test's hands."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from spare.api import wire
from spare_runtime.config import read_environment
from spare_runtime.line import AgentLine
from tests.runtime.plans import JOB, TOKEN, UID, plan

DEADLINE = 20.0
SCRIPT = """
import sys, threading
from spare.api import wire
from spare_runtime.config import read_environment
from spare_runtime.line import AgentLine
line = AgentLine(read_environment(), lambda plan: print(plan.epoch, flush=True), lambda: print("finish", flush=True))
line.start("127.0.0.1:29500")
for text in sys.stdin:
    for n in range(int(text)):
        line.send(line.report(wire.Refusal, what=str(n), reason=""))
        print(line.flush(5.0), flush=True)
threading.Event().wait()
"""


class AgentEnd:
    """The agent's side: a socket, the worker behind it, and the messages that came."""

    def __init__(self, address: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind("\0" + address)
        self._listener.listen()
        env = {"SPARE_JOB": JOB, "SPARE_GROUP": "0", "SPARE_UID": UID, "SPARE_TOKEN": TOKEN, "SPARE_HEARTBEAT": "0.1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            env=os.environ | env | {"SPARE_AGENT": "@" + address},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._listener.settimeout(DEADLINE)
        self.line, _ = self._listener.accept()
        self.line.settimeout(DEADLINE)
        self._read = b""

    def next(self, kind: str, at_once: bool = False) -> wire.Message:
        """The next message of a kind; `at_once`: it must have been sent already."""
        while True:
            while b"\n" in self._read:
                one, _, self._read = self._read.partition(b"\n")
                message = wire.read(one)
                if message.kind == kind:
                    return message
            chunk = self.line.recv(65536, socket.MSG_DONTWAIT if at_once else 0)
            assert chunk, "the worker hung up"
            self._read += chunk

    def close(self) -> None:
        """End the worker."""
        self.process.kill()
        self.process.communicate()
        self.line.close()
        self._listener.close()

    def says(self) -> str:
        """The worker's next line of output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def orders(self, text: str) -> None:
        """One line of input for the worker."""
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()


@pytest.fixture
def agent() -> Iterator[AgentEnd]:
    """A worker that has connected."""
    end = AgentEnd(f"spare-test-{os.getpid()}-{os.urandom(4).hex()}")
    yield end
    end.close()


def test_hello_comes_first_and_heartbeats_follow(agent: AgentEnd) -> None:
    """Who it is with its store and token, then signs of life that say how long nothing moved."""
    hello = agent.next("hello")
    assert isinstance(hello, wire.Hello)
    beats = [agent.next("alive") for _ in range(3)]

    assert (hello.pid, hello.store, hello.token) == (agent.process.pid, "127.0.0.1:29500", TOKEN)
    stills = [beat.still for beat in beats if isinstance(beat, wire.Alive)]
    assert stills == sorted(stills)
    assert len(set(stills)) == 3


def test_plans_arrive_whole_whatever_the_pieces(agent: AgentEnd) -> None:
    """Several in one packet, and one in many."""
    both = plan(3).line() + plan(4).line()
    agent.line.sendall(both)
    for byte in plan(5).line():
        agent.line.sendall(bytes([byte]))
    agent.line.sendall(wire.Finish(job=JOB, uid=UID, epoch=5).line())

    assert [agent.says() for _ in range(4)] == ["3", "4", "5", "finish"]


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        (b"noise\n", "no JSON"),
        (plan(3, uid="incarnation-b").line(), "'incarnation-b'"),
        (json.dumps({**json.loads(plan(3).line()), "protocol": 2}).encode() + b"\n", "speaks protocol 2"),
    ],
)
def test_what_is_not_for_us_is_refused(agent: AgentEnd, raw: bytes, named: str) -> None:
    """Naming both sides; the next plan is taken as ever."""
    agent.line.sendall(raw)
    refusal = agent.next("refusal")

    assert isinstance(refusal, wire.Refusal)
    assert named in refusal.reason
    agent.line.sendall(plan(4).line())
    assert agent.says() == "4"


def test_what_was_flushed_has_left(agent: AgentEnd) -> None:
    """A thousand times: the last report of a process must not stay behind in its queue."""
    agent.next("hello")
    agent.orders("1000")
    for n in range(1000):
        assert agent.says() == "True"
        message = agent.next("refusal", at_once=True)
        assert isinstance(message, wire.Refusal)
        assert message.what == str(n)


def test_stop_ends_the_worker_at_once(agent: AgentEnd) -> None:
    """From the line's own thread, whatever the main thread is at."""
    agent.next("hello")
    agent.line.sendall(wire.Stop(job=JOB, uid=UID, epoch=0, reason="enough").line())

    assert agent.process.wait(DEADLINE) == 143
    assert agent.process.stderr is not None
    assert "told to stop: enough" in agent.process.stderr.read()


def test_a_worker_without_its_agent_ends(agent: AgentEnd) -> None:
    """It is no member of any plan, and nothing that it computes may count."""
    agent.next("hello")
    agent.line.close()

    assert agent.process.wait(DEADLINE) == 137
    assert agent.process.stderr is not None
    assert "the agent is gone" in agent.process.stderr.read()


def test_an_agent_that_does_not_answer_is_named() -> None:
    """The text has the socket's name."""
    told = {"SPARE_JOB": JOB, "SPARE_GROUP": "4", "SPARE_UID": UID, "SPARE_TOKEN": TOKEN, "SPARE_AGENT": "@nobody"}

    with pytest.raises(OSError, match="the agent of group 4 does not answer at @nobody"):
        AgentLine(read_environment(told), lambda _: None, lambda: None)


def test_a_process_ends_though_nobody_reads_why() -> None:
    """The agent, which reads its stderr, may be what has ended."""
    code = "import os, sys; r, w = os.pipe(); os.dup2(w, 2); os.close(r); os.close(w)\n"
    code += "from spare_runtime.line import leave; leave('fenced', 77)"

    assert subprocess.run([sys.executable, "-c", code]).returncode == 77
