"""A line of the ledger is there whole or not at all, also where the disk is full or a process died while it wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from spare_runtime.ledger import Ledger

FULL = """
import resource, sys
from spare_runtime.errors import LedgerUnwritable
from spare_runtime.ledger import Ledger
most = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
ledger, written = Ledger(sys.argv[1], 0, "uid"), 0
try:
    for step in range(100):
        ledger.committed(step, 1, 0xffff, 0, "d" * 64)
        written += 1
except LedgerUnwritable as error:
    print(error, file=sys.stderr)
print(written)
"""


def lines(folder: Path) -> list[str]:
    """Of the only ledger."""
    [book] = folder.glob("ledger/*.jsonl")
    return book.read_text().splitlines(keepends=True)


def test_a_full_disk_leaves_no_torn_line(tmp_path: Path) -> None:
    """A part of a line may still fit: it is taken off again, and the worker is told, so that it commits nothing."""
    command = [sys.executable, "-c", FULL, str(tmp_path), "1000"]

    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)

    found = lines(tmp_path)
    assert "cannot be written" in done.stderr
    assert len(found) == int(done.stdout) > 3
    assert all(line.endswith("\n") and json.loads(line)["step"] == step for step, line in enumerate(found))
    assert 1000 - sum(map(len, found)) < len(found[0]), "the next line did not fit"


def test_a_torn_line_of_an_earlier_process_is_taken_off(tmp_path: Path) -> None:
    """Else the first line of the next process would be glued to it, and both be lost."""
    first = Ledger(str(tmp_path), 0, "uid")
    first.entering(0, 1, 3)
    [book] = tmp_path.glob("ledger/*.jsonl")
    with book.open("a") as file:
        file.write('{"step":0,"comm')

    Ledger(str(tmp_path), 0, "uid").begins(2, "")

    assert [json.loads(line) for line in lines(tmp_path)][1:] == [{"origin": 2, "from": ""}]
    assert os.path.getsize(book) == sum(map(len, lines(tmp_path)))
