"""What a benchmark prints is kept as it was printed, and only if it ended well."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import record


def test_output_is_kept_and_that_of_a_failure_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that breaks leaves the record of the last good one as it is."""
    monkeypatch.setattr(record, "FOLDER", tmp_path / "benchmarks")
    script = "import sys; print('median 7'); sys.exit(int(sys.argv[1]))"

    assert record.main("one", [sys.executable, "-c", script, "0"]) == 0
    kept = (tmp_path / "benchmarks" / "one.txt").read_text()
    assert record.main("one", [sys.executable, "-c", script.replace("7", "9"), "3"]) == 3

    head, command, *rest = kept.splitlines()
    assert "torch" in head
    assert command.startswith("$ python -c ")
    assert rest == ["median 7"]
    assert (tmp_path / "benchmarks" / "one.txt").read_text() == kept
    assert capsys.readouterr().out == "median 7\nmedian 9\n"
