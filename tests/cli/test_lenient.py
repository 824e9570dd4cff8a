"""Streams that nobody reads any more."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import time

import pytest

from spare.cli.lenient import Lenient, Outlet


@pytest.mark.parametrize(
    ("device", "why"), [("/dev/full", "No space left on device"), ("closed", "OSError(9, 'Bad file descriptor')")]
)
def test_what_cannot_be_written_is_told_once_and_forgotten(
    capfd: pytest.CaptureFixture[str], device: str, why: str
) -> None:
    """It goes nowhere; the program goes on."""
    below = io.TextIOWrapper(open("/dev/null" if device == "closed" else device, "wb", buffering=0))  # noqa: SIM115
    stream = Lenient(below, "the output")
    if device == "closed":
        below.close()
    for _ in range(3):
        print("x" * 10_000, file=stream, flush=True)
    assert stream.outlet.settle(10.0)
    below.close()

    assert capfd.readouterr().err.count(f"the output cannot be written any more ({why})") == 1


def test_a_reader_that_stands_still_holds_nobody_up() -> None:
    """What is too much for memory is dropped, oldest first, and that is said; the last line is there."""
    reading, writing = os.pipe()
    outlet = Outlet(writing, "the output", most=100_000)
    outlet.told = lambda lines: f"dropped {lines}"
    began = time.monotonic()
    for number in range(100_000):
        outlet.write(b"line %d\n" % number)
    assert time.monotonic() - began < 20.0, "no write waits"
    assert not outlet.settle(0.1)

    def end() -> None:
        outlet.settle(20.0)
        os.close(writing)

    threading.Thread(target=end, daemon=True).start()
    with open(reading, "rb") as stream:
        read = stream.read().decode().splitlines()

    expected, gaps = 0, 0
    for line in read:
        what, count = line.split()
        if what == "dropped":
            expected, gaps = expected + int(count), gaps + 1
        else:
            assert int(count) == expected
            expected += 1
    assert expected == 100_000
    assert gaps


def test_the_end_waits_for_a_reader_but_not_for_ever() -> None:
    """The exit code is that of the program, and what the reader missed is said where somebody may see it."""
    program = "\n".join(
        (
            "import spare.cli.lenient as lenient",
            "lenient.settle.__defaults__ = (0.3,)",
            "lenient.forgive()",
            "[print('x' * 9999) for _ in range(99)]",
            "raise SystemExit(3)",
        )
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.wait(30) == 3
        assert process.stderr is not None
        assert b"the output was not read for 0.3 s; its end is dropped" in process.stderr.read()
        assert process.stdout is not None
        process.stdout.read()


def test_a_closed_pipe_does_not_change_the_exit_code() -> None:
    """Python itself would exit with 120 when it cannot flush at the end."""
    lines = ("from spare.cli.lenient import forgive", "forgive()", "[print('x' * 9999) for _ in range(99)]")
    program = "; ".join([*lines, "raise SystemExit(3)"])
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()

        assert process.wait(30) == 3
