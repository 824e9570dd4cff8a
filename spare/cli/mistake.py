"""What was asked for in the right form and is wrong all the same."""

from __future__ import annotations

from typing import ClassVar

import click

from spare.api.exit_codes import ExitCode


class Mistake(click.ClickException):
    """A file that is wrong, or a name of something that is not there: told without the command's usage.

    A command line of a wrong form is a `click.UsageError`; what could not be done though nothing was wrong with it is a
    `click.ClickException`.
    """

    exit_code: ClassVar[int] = int(ExitCode.USAGE)
