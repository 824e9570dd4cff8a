"""The run folder: documents are whole or absent, ledgers are found, a log's end can be quoted."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from spare.local.run_folder import RunFolder


def test_two_runs_of_one_second_have_folders_of_their_own(tmp_path: Path) -> None:
    """The name begins with job and time, and ends with something random."""
    now = datetime(2026, 3, 4, 5, 6, 7)

    first, second = (RunFolder.create(tmp_path / "runs", "gpt", now) for _ in range(2))

    assert first.name.startswith("gpt-20260304-050607-")
    assert first.name != second.name


def test_a_document_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Nothing but the document is left in the folder."""
    folder = RunFolder(tmp_path)

    folder.record("plan.json", "one")
    folder.record("plan.json", "two")

    assert (tmp_path / "plan.json").read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_what_was_removed_is_named_and_stays_removed(tmp_path: Path) -> None:
    """Also where another folder has its name since; ledgers that are not there yet are not missed."""
    path = tmp_path / "run"
    path.mkdir()
    folder = RunFolder(path)
    assert folder.removed() is None
    (path / "ledger").mkdir()
    assert folder.removed() is None
    (path / "ledger").rename(tmp_path / "elsewhere")
    assert folder.removed() == path / "ledger"

    path.rename(tmp_path / "moved")
    assert folder.removed() == path
    path.mkdir()
    assert folder.removed() == path


def test_a_document_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    """What fails half way is cleaned up."""
    folder = RunFolder(tmp_path)
    folder.record("plan.json", "one")

    with pytest.raises(UnicodeEncodeError):
        folder.record("plan.json", "\ud800")

    assert (tmp_path / "plan.json").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd"])
def test_a_document_stays_in_the_folder(tmp_path: Path, name: str) -> None:
    """Names with a path in them are refused."""
    with pytest.raises(ValueError, match="plain file name"):
        RunFolder(tmp_path).record(name, "text")


def test_ledgers_and_logs_are_read_where_they_are(tmp_path: Path) -> None:
    """By the name of the ledger; a log that does not exist is empty."""
    folder = RunFolder(tmp_path)
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / "group-0-abc.jsonl").write_bytes(b'{"step":0}\n{"st')
    folder.log(0).write_text("".join(f"line {n}\n" for n in range(1000)))

    assert folder.ledgers() == {"group-0-abc": [b'{"step":0}', b'{"st']}
    assert folder.tail(folder.log(0), 2) == "line 998\nline 999"
    assert folder.tail(folder.log(1)) == ""
