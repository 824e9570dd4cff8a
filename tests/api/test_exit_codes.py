"""Documented exit codes are the code's (F56), and the masked ones are infrastructure's."""

from __future__ import annotations

from pathlib import Path

import pytest

from spare.api.exit_codes import Blame, ExitCode, blame, document, is_masked
from spare.api.reasons import ConditionType, EventReason

ROOT = Path(__file__).parents[2]


def test_the_documentation_is_the_table() -> None:
    """docs/exit-codes.md is what the table says, to the letter; `make docs` writes it."""
    assert (ROOT / "docs" / "exit-codes.md").read_text() == document()


def test_the_codes_that_others_rely_on() -> None:
    """These numbers are a promise to scripts, and 130, 137 and 143 are the shell's."""
    assert {code.name: code.value for code in ExitCode} == {
        "COMPLETE": 0,
        "USER_ERROR": 1,
        "USAGE": 2,
        "WIPE_OUT": 3,
        "STALLED": 4,
        "INEXACT": 5,
        "POISON": 6,
        "DEADLINE": 7,
        "SIGHUP": 129,
        "INTERRUPTED": 130,
        "SIGKILL": 137,
        "SIGTERM": 143,
    }


@pytest.mark.parametrize(
    ("code", "masked"),
    [(0, False), (1, False), (2, False), (7, False), (128, False), (137, True), (139, True), (143, True)],
)
def test_only_infrastructure_is_masked(code: int, masked: bool) -> None:
    """A script's own exit code ends the job; a death by a signal does not."""
    assert is_masked(code) is masked


@pytest.mark.parametrize(
    ("code", "signal", "whom"),
    [
        *((None, number, Blame.CRASH) for number in (4, 5, 6, 7, 8, 11, 31)),
        *((None, number, Blame.INFRASTRUCTURE) for number in (1, 2, 9, 15)),
        *((code, None, Blame.CRASH) for code in (134, 139, 255)),
        *((code, None, Blame.INFRASTRUCTURE) for code in (129, 137, 143)),
        *((code, None, Blame.SCRIPT) for code in (0, 1, 3, 128)),
    ],
)
def test_who_is_to_blame_for_an_end(code: int | None, signal: int | None, whom: Blame) -> None:
    """What a process does itself speaks against its micro-batch; what is done to it does not (out of memory)."""
    assert blame(code, signal) is whom


def test_codes_are_found_by_number() -> None:
    """And carry their meaning."""
    assert ExitCode(137) is ExitCode.SIGKILL
    assert ExitCode(3).meaning


@pytest.mark.parametrize("name", [*EventReason, *ConditionType])
def test_names_for_the_outside_are_camel_case_and_explained(name: EventReason | ConditionType) -> None:
    """Kubernetes demands CamelCase for reasons; people demand to know what they mean."""
    assert name.value.isalpha()
    assert name.value[0].isupper()
    assert name.meaning
    assert str(name) == name.value
