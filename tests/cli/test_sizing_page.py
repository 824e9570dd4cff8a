"""docs/sizing.md shows what the commands in it print.

After a change on purpose: `python -c "from tests.cli.test_sizing_page import write; write()"` in the root.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.test_refusals import spare

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "sizing.md"


def refreshed(text: str) -> str:
    """The page with the output of every command in it made anew."""

    def run(block: re.Match[str]) -> str:
        result = spare(*block[1].split()[1:])
        assert result.exit_code == 0, result.output
        lines = "\n".join(line.rstrip() for line in result.output.rstrip("\n").split("\n"))
        return f"```console\n$ {block[1]}\n{lines}\n```"

    return re.sub(r"```console\n\$ (spare [^\n]*)\n.*?```", run, text, flags=re.DOTALL)


def write() -> None:
    PAGE.write_text(refreshed(PAGE.read_text()))


def test_the_page_shows_what_the_commands_print(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block, run in the root."""
    monkeypatch.chdir(ROOT)

    assert PAGE.read_text().count("```console") == 4
    assert refreshed(PAGE.read_text()) == PAGE.read_text()
