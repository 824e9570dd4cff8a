"""`spare-agent -- COMMAND...`: the group's agent, which starts COMMAND as its worker. Needs no torch."""

from __future__ import annotations

import asyncio
import signal
import sys

from spare.api.exit_codes import ExitCode
from spare_runtime.agent.agent import Agent
from spare_runtime.agent.lifeline import adopt_orphans, die_with, end_descendants
from spare_runtime.config import BadEnvironment, read_environment

PATIENCE = 2.0
"""Seconds for what the workers left behind to end once it was killed."""
USAGE = "usage: spare-agent -- COMMAND [ARGUMENT...]"


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script. Exits with the worker's code, or 143 when told to stop."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] in (["--help"], ["-h"]):
        print(f"{USAGE}\n\n{__doc__}")  # noqa: T201
        return
    command = arguments[1:] if arguments[:1] == ["--"] else arguments
    if not command or command[0].startswith("-"):
        print(f"{USAGE}\nspare-agent: no command to run in {arguments!r}", file=sys.stderr)  # noqa: T201
        sys.exit(ExitCode.USAGE)
    try:
        env = read_environment()
        agent = Agent(env, command)
    except BadEnvironment as error:
        print(f"spare-agent: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(ExitCode.USAGE)
    if env.parent is not None:
        die_with(env.parent, signal.SIGINT)  # so that it still ends the worker and all that the worker started
    adopt_orphans(lambda: [worker.process.pid for worker in agent.workers if worker.process is not None])
    try:
        code = asyncio.run(agent.run())
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # to the very end: Python's own end sets the default again
        left = end_descendants(PATIENCE)
    if left:
        print(f"spare-agent: processes {left} are alive {PATIENCE:g} s after SIGKILL", file=sys.stderr)  # noqa: T201
    sys.exit(code)
