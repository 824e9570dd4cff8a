"""The folder of a job's checkpoints: which are complete, and how one gets there whole or not at all.

A checkpoint is written into a hidden folder beside its place, flushed to the disk, given its manifest, and renamed: the
rename is the moment from which it exists. A crash, a kill or a full disk before leaves a hidden folder, which nobody
reads, and every earlier checkpoint as it was.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from spare.api.checkpoint import File, Manifest, Name
from spare_runtime.errors import CheckpointDamaged

MANIFEST = "manifest.json"
LISTED = 8
"""How many of the newest are told of: more than can be damaged at once without somebody having seen to it."""
ABANDONED = 600.0
"""Seconds after which a hidden folder that nobody writes to any more is removed."""
_WRITING = ".writing-"
_DAMAGED = ".damaged-"
_BLOCK = 1 << 20


class Folder:
    """Checkpoints below `path`, which all groups see."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # --- reading ------------------------------------------------------------------------------------------------------

    def complete(self) -> list[Name]:
        """The newest checkpoints, newest first. Each was complete when it was put there: what has happened to it since
        is found, and told, by who reads it; nobody would miss a damaged one that is passed over in silence."""
        return sorted(self._names(), reverse=True)[:LISTED]

    def _names(self) -> Iterator[Name]:
        for entry in self.path.glob("epoch-*/step-*"):
            with contextlib.suppress(ValueError):
                yield Name.parse(f"{entry.parent.name}/{entry.name}")

    def _whole(self, name: Name) -> bool:
        try:
            files = self.manifest(name).files
            return all(os.stat(self.path / str(name) / each).st_size == file.size for each, file in files.items())
        except (CheckpointDamaged, OSError):
            return False

    def manifest(self, name: Name) -> Manifest:
        """What a checkpoint says of itself.

        Raises:
            CheckpointDamaged: it has no readable manifest, or one of another name.
        """
        try:
            with _opened(self.path / str(name) / MANIFEST) as file:
                manifest = Manifest.of_text(file.read().decode())
        except (OSError, ValueError) as error:
            raise CheckpointDamaged(f"checkpoint {name} in {self.path}: {error}") from error
        if manifest.name != str(name):
            raise CheckpointDamaged(f"checkpoint {name} in {self.path}: its manifest is that of {manifest.name}")
        return manifest

    def __contains__(self, name: Name) -> bool:
        return self._whole(name)

    def verify(self, name: Name, below: str = "", progress: Callable[[], None] = lambda: None) -> Manifest:
        """Compare the files of a checkpoint, or of its folder `below`, with their digests; `progress` is called often.

        Raises:
            CheckpointDamaged: naming the first file that is not what was written.
        """
        manifest = self.manifest(name)
        for each, file in sorted(manifest.files.items()):
            if each.startswith(below):
                try:
                    found = digest(self.path / str(name) / each, progress)
                except OSError as error:
                    raise CheckpointDamaged(f"checkpoint {name} in {self.path}: {error}") from error
                if found != file:
                    raise CheckpointDamaged(
                        f"checkpoint {name} in {self.path}: {each} has {found.size} bytes with digest "
                        f"{found.sha256[:16]}, and {file.size} bytes with digest {file.sha256[:16]} were written"
                    )
        return manifest

    # --- writing ------------------------------------------------------------------------------------------------------

    def draft(self, name: Name, uid: str) -> Path:
        """The hidden folder in which the group of incarnation `uid` writes a checkpoint; made if it is not there."""
        path = self.path / name.attempt / f"{_WRITING}{name.step:010d}-{uid}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def publish(self, draft: Path, manifest: Manifest) -> bool:
        """Make a checkpoint of what lies in `draft`; False when there is such a one already, and `draft` is dropped.

        Args:
            draft: From `draft`; every file in it belongs to the checkpoint.
            manifest: Without its files.

        Raises:
            OSError: it cannot be written; nothing that was complete is lost.
        """
        files = {}
        for path in sorted(p for p in draft.rglob("*") if p.is_file()):
            _flush(path)
            files[str(path.relative_to(draft))] = digest(path)
        for folder in [p for p in draft.rglob("*") if p.is_dir()]:
            _flush(folder)
        name = Name.parse(manifest.name)
        with (draft / MANIFEST).open("w", encoding="utf-8") as file:
            file.write(replace(manifest, files=files).to_text())
            file.flush()
            os.fsync(file.fileno())
        _flush(draft)
        place = self.path / manifest.name
        try:
            os.rename(draft, place)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if self._whole(name):
                self.drop(draft)
                return False
            os.rename(place, place.with_name(f"{_DAMAGED}{place.name}-{time.time_ns()}"))  # never complete, or no more
            os.rename(draft, place)
        _flush(place.parent)
        _flush(self.path)
        return True

    def drop(self, draft: Path) -> None:
        """Remove a draft, or what is left of it."""
        shutil.rmtree(draft, ignore_errors=True)

    def prune(self, keep: int, mine: Name) -> list[Name]:
        """Remove all but the newest `keep` complete checkpoints, and what other writers left unfinished long ago.

        Args:
            keep: At least 1.
            mine: The newest that this job wrote; nothing newer than it is touched.
        """
        whole = [name for name in sorted(self._names(), reverse=True) if name <= mine and self._whole(name)]
        for name in whole[keep:]:
            # First it stops being a checkpoint, at once; then its files go.
            gone = self.path / name.attempt / f"{_DAMAGED}step-{name.step:010d}-{time.time_ns()}"
            with contextlib.suppress(OSError):  # another writer was quicker
                os.rename(self.path / str(name), gone)
                self.drop(gone)
        for left in [*self.path.glob(f"epoch-*/{_WRITING}*"), *self.path.glob(f"epoch-*/{_DAMAGED}*")]:
            with contextlib.suppress(OSError):
                if time.time() - _touched(left) > ABANDONED:
                    self.drop(left)
        for attempt in self.path.glob("epoch-*"):
            with contextlib.suppress(OSError):
                attempt.rmdir()  # where it is empty
        return whole[:keep]


def digest(path: Path, progress: Callable[[], None] = lambda: None) -> File:
    """Length and SHA-256 of a file; `progress` is called for each block.

    Raises:
        OSError: it cannot be read.
    """
    sha, size = hashlib.sha256(), 0
    with _opened(path) as file:
        while block := file.read(_BLOCK):
            sha.update(block)
            size += len(block)
            progress()
    return File(size, sha.hexdigest())


def _opened(path: Path) -> BinaryIO:
    """A file, to read it. What is none is not opened: a pipe that nobody writes to would be waited for without end.

    Raises:
        OSError: there is no such file, or it cannot be read.
    """
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def _flush(path: Path) -> None:
    """Have the disk hold a file's content, or a folder's entries."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _touched(folder: Path) -> float:
    """When anything in a folder was last written, seconds since 1970."""
    return max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
