"""Keep what a benchmark prints, with when and on what it ran: `python benchmarks/record.py NAME COMMAND...`.

The command runs as it is, and is seen as it runs; what it writes to standard output goes into docs/benchmarks/NAME.txt,
once it has ended well. So no figure in the documents is copied by hand.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"


def machine() -> str:
    """Processor, cores and load."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return f"{os.cpu_count()} x {model}, load {os.getloadavg()[0]:.1f} at the start"


def main(name: str, command: list[str]) -> int:
    """Run it; returns its exit code."""
    shown = shlex.join(["python" if part == sys.executable else part for part in command])
    versions = f"Python {platform.python_version()}, torch {version('torch')}"
    text = f"{time.strftime('%Y-%m-%d %H:%M')}, {machine()}, {versions}\n$ {shown}\n"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            text += line
    if process.returncode == 0:
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / f"{name}.txt").write_text(text)
    return process.returncode


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python benchmarks/record.py NAME COMMAND...")
    sys.exit(main(sys.argv[1], [sys.executable if sys.argv[2] == "python" else sys.argv[2], *sys.argv[3:]]))
