"""Which checkpoints count, and which are the newest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spare.api.checkpoint import Manifest, Name, Terms
from spare_runtime.checkpoint.folder import ABANDONED, MANIFEST, Folder
from spare_runtime.errors import CheckpointDamaged

TERMS = Terms(groups=2, micro_batches=2, micro_batch_size=3, seed=5)


def put(folder: Folder, origin: int, step: int, tag: str = "0" * 8, content: bytes = b"weights") -> Name:
    """A complete checkpoint."""
    name = Name(origin, step, tag)
    draft = folder.draft(name, "uid")
    (draft / "rank-0").mkdir(exist_ok=True)
    (draft / "rank-0" / "file").write_bytes(content)
    assert folder.publish(draft, Manifest(str(name), "job", origin, None, TERMS, 12 * step, {"w": ((2, 3), "float32")}))
    return name


def test_a_restart_is_newer_than_what_it_left_behind(tmp_path: Path) -> None:
    """Step 90 of an abandoned history does not win over step 82 of the one that was begun after it."""
    folder = Folder(tmp_path)
    older, newer = put(folder, 1, 90), put(folder, 5, 82)

    assert folder.complete() == [newer, older]


def test_a_manifest_comes_back_as_it_was(tmp_path: Path) -> None:
    """With the digests of the files in it."""
    folder = Folder(tmp_path)
    name = put(folder, 3, 40)

    manifest = folder.verify(name)

    assert (manifest.terms, manifest.samples, manifest.step) == (TERMS, 480, 40)
    assert manifest.model == {"w": ((2, 3), "float32")}
    assert list(manifest.files) == ["rank-0/file"]
    assert Manifest.of_text(manifest.to_text()) == manifest


@pytest.mark.parametrize(
    "harm",
    [
        *("shorter", "no manifest", "half a manifest", "a stranger's manifest", "a deep manifest", "gone"),
        *("a pipe", "a pipe for a manifest", "a folder"),
    ],
)
def test_what_is_not_whole_any_more_is_told_by_who_reads_it(tmp_path: Path, harm: str) -> None:
    """It stays in the list, or nobody would learn of it; it counts for nothing when old ones are removed."""
    folder = Folder(tmp_path)
    good, bad = put(folder, 1, 10), put(folder, 1, 20)
    place = tmp_path / str(bad)
    match harm:
        case "shorter":
            (place / "rank-0" / "file").write_bytes(b"w")
        case "no manifest":
            (place / MANIFEST).unlink()
        case "half a manifest":
            (place / MANIFEST).write_text((place / MANIFEST).read_text()[:100])
        case "a stranger's manifest":
            (place / MANIFEST).write_text((tmp_path / str(good) / MANIFEST).read_text())
        case "a deep manifest":
            (place / MANIFEST).write_text("[" * 100_000)
        case "a pipe" | "a pipe for a manifest":
            file = place / (MANIFEST if harm.endswith("manifest") else "rank-0/file")
            file.unlink()
            os.mkfifo(file)  # to open it would wait for somebody who writes
        case "a folder":
            (place / "rank-0" / "file").unlink()
            (place / "rank-0" / "file").mkdir()
        case _:
            (place / "rank-0" / "file").unlink()

    assert folder.complete() == [bad, good]
    with pytest.raises(CheckpointDamaged, match=str(bad)):
        folder.verify(bad)
    folder.verify(good)
    assert folder.prune(1, bad) == [good]


def test_a_changed_byte_is_found_before_anything_is_loaded(tmp_path: Path) -> None:
    """Of the right length, so only the digest tells."""
    folder = Folder(tmp_path)
    name = put(folder, 1, 10)
    (tmp_path / str(name) / "rank-0" / "file").write_bytes(b"Weights")

    assert folder.complete() == [name]
    with pytest.raises(CheckpointDamaged, match="rank-0/file has 7 bytes with digest"):
        folder.verify(name)


def test_one_that_is_complete_is_never_written_over(tmp_path: Path) -> None:
    """Two writers of one step: the first wins. One that is not whole gives way."""
    folder = Folder(tmp_path)
    name = put(folder, 1, 10)
    draft = folder.draft(name, "other")
    (draft / "file").write_bytes(b"later")
    manifest = Manifest(str(name), "job", 1, None, TERMS, 120, {})

    assert folder.publish(draft, manifest) is False
    assert list(folder.verify(name).files) == ["rank-0/file"]

    (tmp_path / str(name) / "rank-0" / "file").unlink()
    draft = folder.draft(name, "other")
    (draft / "file").write_bytes(b"later")
    assert folder.publish(draft, manifest) is True
    assert list(folder.verify(name).files) == ["file"]


def test_the_newest_are_kept(tmp_path: Path) -> None:
    """Counted over all histories; emptied folders go, and what is newer than one's own stays."""
    folder = Folder(tmp_path)
    names = [put(folder, 1, 10), put(folder, 1, 20), put(folder, 4, 12), put(folder, 4, 22), put(folder, 9, 1)]

    kept = folder.prune(2, names[3])

    assert kept == [names[3], names[2]]
    assert folder.complete() == [names[4], names[3], names[2]]
    assert sorted(p.name for p in tmp_path.iterdir()) == [names[2].attempt, names[4].attempt]


def test_only_what_was_left_long_ago_is_cleared_away(tmp_path: Path) -> None:
    """Another writer may be at work; one that died is not."""
    folder = Folder(tmp_path)
    name = put(folder, 1, 10)
    old, young = folder.draft(Name(1, 11, "0" * 8), "dead"), folder.draft(Name(1, 12, "0" * 8), "alive")
    long_ago = os.stat(old).st_mtime - 2 * ABANDONED
    os.utime(old, (long_ago, long_ago))

    folder.prune(3, name)

    assert not old.exists()
    assert young.exists()


@pytest.mark.parametrize("text", ["", "step-1", "epoch-1-00000000/step-0000000001", "epoch-00000001-0000000g/step-1"])
def test_other_names_are_no_checkpoints(text: str) -> None:
    """The text says what one looks like."""
    with pytest.raises(ValueError, match="no checkpoint's name"):
        Name.parse(text)
