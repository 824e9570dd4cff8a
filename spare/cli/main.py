"""The `spare` command. Each subcommand is imported when it is called, so that `spare --help` answers at once."""

from __future__ import annotations

import importlib
from typing import Final

import click

COMMANDS: Final = {
    "run": ("spare.cli.run", "Run a job on this machine, each group as a local process."),
    "plan": (
        "spare.cli.plan",
        "Size a job: redundancy, checkpoints, expected time; or who computes what after a loss.",
    ),
    "simulate": ("spare.cli.simulate", "Simulate training under failures: your setting, or the paper's."),
    "validate": ("spare.cli.validate", "Say what is wrong with a job file, or what holds when nothing is."),
}
"""Name of each subcommand: the module that has it under its own name, and its help in one line."""


class LazyGroup(click.Group):
    """Knows the names of its commands, and imports what is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """See click.Group."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """See click.Group."""
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(COMMANDS[cmd_name][0]), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See click.Group; that one would import every command for its help."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="spare-training", prog_name="spare")
def main() -> None:
    """Fault-tolerant distributed training: groups die, the job neither stops nor restarts nor loses a sample."""
