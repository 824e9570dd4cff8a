"""The commands that the documents name exist as they are named."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from spare.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").glob("*/README.md"))]
_LINE = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?(spare [a-z].*)$", re.MULTILINE)


def named() -> Iterator[tuple[str, list[str]]]:
    """Page and words of each line that calls `spare` in a block of commands."""
    for page in PAGES:
        for block in re.findall(r"```(?:console)?\n(.*?)```", page.read_text(), re.DOTALL):
            for line in _LINE.findall(block):
                yield page.name, shlex.split(line, comments=True)[1:]


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that is called, and what follows its name."""
    command: click.Command = main
    while isinstance(command, click.Group) and words:
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, f"no command {words[0]!r}"
        command, words = found, words[1:]
    return command, words


@pytest.mark.parametrize(("page", "words"), list(named()))
def test_commands_in_documents_have_these_names_and_options(page: str, words: list[str]) -> None:
    """No option that was renamed, and no example that was moved."""
    command, rest = command_of(words)
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}

    assert {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)} <= known, page
    for word in rest:
        if word.startswith("examples/"):
            assert (ROOT / word).exists(), page


def test_the_documents_name_many() -> None:
    """The look finds them."""
    assert len(list(named())) > 15
