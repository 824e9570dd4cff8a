"""Flags of `spare-operator` that cannot work are refused before anything begins."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from spare.api.exit_codes import ExitCode
from spare_operator.cli import main


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--watch-connect-timeout", "nan"],
            "--watch-connect-timeout is nan; allowed is a number of seconds from 0.1 up",
        ),
        (
            ["--watch-client-timeout", "inf"],
            "--watch-client-timeout is inf; allowed is a number of seconds from 0.1 up",
        ),
        (["--watch-client-timeout", "100"], "must be longer than --watch-server-timeout (120)"),
        (["--network-policies", "app"], "'app' is not LABEL=VALUE"),
    ],
)
def test_flags_that_cannot_work_are_refused(arguments: list[str], said: str) -> None:
    """With the flag, its value, and what is allowed."""
    result = CliRunner().invoke(main, arguments, terminal_width=200)

    assert result.exit_code == ExitCode.USAGE
    assert said in result.output
