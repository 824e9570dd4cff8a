"""Flags of `spare-operator` that cannot work are refused before anything begins."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from spare.api.exit_codes import ExitCode
from spare_operator import cli
from spare_operator.cli import main
from spare_operator.serve import EXIT_DEPOSED
from spare_operator.settings import Settings


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


def test_a_deposed_operator_begins_anew_in_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet would make it wait for longer each time, and both replicas at once where the API server is slow."""
    ends = [EXIT_DEPOSED, EXIT_DEPOSED, 0]

    async def serve(settings: Settings) -> int:
        return ends.pop(0)

    monkeypatch.setattr(cli, "serve", serve)
    monkeypatch.setattr(cli, "set_up", lambda level, as_json: None)
    result = CliRunner().invoke(main, [])

    assert (result.exit_code, ends) == (0, [])
