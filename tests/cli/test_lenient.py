"""Streams that nobody reads any more."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys

import pytest

from spare.cli.lenient import Lenient


def test_a_full_device_is_told_once_and_forgotten(capfd: pytest.CaptureFixture[str]) -> None:
    """What cannot be written goes nowhere; the program goes on."""
    full = io.TextIOWrapper(open("/dev/full", "wb"), encoding="utf-8")  # noqa: SIM115  # taken over below
    with Lenient(full, "the output") as stream:
        for _ in range(3):
            print("x" * 10_000, file=stream, flush=True)

    assert capfd.readouterr().err.count("the output cannot be written any more (No space left on device)") == 1


def test_any_other_failure_is_raised() -> None:
    """A descriptor that was closed under it is a defect."""
    stream = Lenient(io.TextIOWrapper(open("/dev/null", "wb", buffering=0)), "the output")  # noqa: SIM115
    os.close(stream.fileno())

    with pytest.raises(OSError, match="Bad file descriptor"):
        print("x", file=stream, flush=True)
    with contextlib.suppress(OSError):
        stream.close()


def test_a_closed_pipe_does_not_change_the_exit_code() -> None:
    """Python itself would exit with 120 when it cannot flush at the end."""
    lines = ("from spare.cli.lenient import forgive", "forgive()", "[print('x' * 9999) for _ in range(99)]")
    program = "; ".join([*lines, "raise SystemExit(3)"])
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()

        assert process.wait(30) == 3
