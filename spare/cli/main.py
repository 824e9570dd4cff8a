"""The `spare` command. Each subcommand is imported when it is called, so that `spare --help` answers at once."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import Any, Final

import click

from spare.api.exit_codes import ExitCode

COMMANDS: Final = {
    "run": ("spare.cli.run", "Run a job on this machine, each group as a local process."),
    "drain": ("spare.cli.drain", "Let a group of a running job leave at the end of a step."),
    "status": ("spare.cli.status", "Show how a job on a cluster is."),
    "events": ("spare.cli.status", "Show what happened to a job on a cluster."),
    "suspend": ("spare.cli.suspend", "Stop a job on a cluster, to go on with it later."),
    "resume": ("spare.cli.suspend", "Let a job on a cluster go on that was suspended."),
    "plan": (
        "spare.cli.plan",
        "Size a job: redundancy, checkpoints, expected time; or who computes what after a loss.",
    ),
    "simulate": ("spare.cli.simulate", "Simulate training under failures: your setting, or the paper's."),
    "validate": ("spare.cli.validate", "Say what is wrong with a job file, or what holds when nothing is."),
}
"""Name of each subcommand: the module that has it under its own name, and its help in one line."""

CLIENTS: Final = frozenset({"aiohttp", "kubernetes_asyncio"})
"""What the commands on a cluster need beside the package's own requirements."""


NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Why a write to the standard output fails that is no fault of the command."""


class LazyGroup(click.Group):
    """Knows the names of its commands, and imports what is called."""

    def main(self, *arguments: Any, **more: Any) -> Any:
        """See click.Group. Ctrl-C has its exit code from the first moment, and not only once a job runs."""
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupted)
        try:
            return super().main(*arguments, **more)
        except OSError as error:
            if error.errno not in NO_ROOM or error.filename is not None:
                raise
            _drop_what_is_left()
            print(f"spare: the output cannot be written: {error.strerror}", file=sys.stderr)  # noqa: T201
            sys.exit(1)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """See click.Group."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """See click.Group."""
        if cmd_name not in COMMANDS:
            return None
        try:
            command = getattr(importlib.import_module(COMMANDS[cmd_name][0]), cmd_name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in CLIENTS:
                raise
            text = f"{cmd_name} needs {error.name}: pip install 'spare-training[operator]'"
            raise click.ClickException(text) from error
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See click.Group; that one would import every command for its help."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _drop_what_is_left() -> None:
    """Python would write it once more at its end, and fail once more."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _interrupted(number: int, frame: FrameType | None) -> None:
    print("spare: Ctrl-C", file=sys.stderr)  # noqa: T201
    sys.exit(ExitCode.INTERRUPTED)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="spare-training", prog_name="spare")
def main() -> None:
    """Fault-tolerant distributed training: groups die, the job neither stops nor restarts nor loses a sample."""
