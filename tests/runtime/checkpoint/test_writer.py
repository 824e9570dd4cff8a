"""A state is written as it was when it was copied, whatever training does meanwhile, and comes back the same."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from spare.api import wire
from spare.api.checkpoint import Manifest, Name, Terms, tag_of
from spare_runtime.checkpoint import tensors
from spare_runtime.checkpoint.claim import KEPT, PathTaken, hold
from spare_runtime.checkpoint.folder import Folder
from spare_runtime.checkpoint.keeper import Keeper
from spare_runtime.checkpoint.writer import Failed, Saved, Writer
from spare_runtime.config import read_environment
from tests.runtime.plans import plan

TERMS = Terms(groups=2, micro_batches=2, micro_batch_size=None, seed=0)


def manifest(step: int, ranks: int = 1) -> Manifest:
    """Of a small job."""
    return Manifest(str(Name(1, step, "0" * 8)), "job", 1, None, TERMS, 4 * step, {}, ranks)


def a_state() -> dict[str, Any]:
    """All that a state may hold: scalars and empty tensors, odd dtypes, views, keys of both kinds, tied tensors."""
    tied = torch.randn(3, 4)
    return {
        "model": {"a.weight": tied, "b.weight": tied, "buffer": torch.arange(6).reshape(2, 3).t()},
        "optimizers": [{"state": {0: {"step": torch.tensor(3.0), "m": torch.randn(5).bfloat16()}, "0": torch.ones(1)}}],
        "registered": {"plan": {"last": [1, 2.5, None, True, "x"], "pair": (1, 2)}, "empty": torch.empty(0, 3)},
        "plain": torch.tensor([1 + 2j]),
        "committed": 7,
    }


def same(a: Any, b: Any) -> bool:
    """Equal to the last bit, types of containers included."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    """Written, verified, read."""
    told: list[Saved | Failed] = []
    writer, state = Writer(Folder(tmp_path), 3, "uid", told.append), a_state()

    done = writer.save(state, manifest(7), 60.0)

    assert isinstance(done, Saved)
    assert told == [done]
    assert done.size > 0
    name = Folder(tmp_path).complete()[0]
    Folder(tmp_path).verify(name)
    assert same(tensors.read(tmp_path / str(name) / "rank-0"), state)


def test_what_training_does_meanwhile_is_not_in_it(tmp_path: Path) -> None:
    """The copy is made before `begin` returns; the memory for it is used again for the next one."""
    writer, state = Writer(Folder(tmp_path), 3, "uid", lambda _: None), a_state()
    kept = state["model"]["a.weight"].clone()

    writer.begin(state, manifest(7))
    state["model"]["a.weight"].zero_()
    writer.wait(60.0)
    first = tensors.read(tmp_path / str(Folder(tmp_path).complete()[0]) / "rank-0")
    again = writer.save(state, manifest(8), 60.0)

    assert torch.equal(first["model"]["a.weight"], kept)
    assert isinstance(again, Saved)
    second = tensors.read(tmp_path / str(Folder(tmp_path).complete()[0]) / "rank-0")
    assert second["model"]["a.weight"].count_nonzero() == 0


def test_the_ranks_of_a_group_write_one_checkpoint(tmp_path: Path) -> None:
    """Each its own part; it is complete once rank 0 has found them all."""
    told: list[Saved | Failed] = []
    writers = [Writer(Folder(tmp_path), 3, "uid", told.append, rank) for rank in range(3)]

    for rank, writer in enumerate(writers):
        writer.begin({"model": torch.full((4,), float(rank))}, manifest(5, ranks=3))
    for writer in writers:
        assert isinstance(writer.wait(60.0), Saved)

    assert len(told) == 1
    [name] = Folder(tmp_path).complete()
    Folder(tmp_path).verify(name)
    for rank in range(3):
        assert tensors.read(tmp_path / str(name) / f"rank-{rank}")["model"].tolist() == [rank] * 4


def test_a_state_that_cannot_be_read_back_is_not_written(tmp_path: Path) -> None:
    """An object in it would need pickle to come back."""
    done = Writer(Folder(tmp_path), 3, "uid", lambda _: None).save({"thing": Writer}, manifest(1), 60.0)

    assert isinstance(done, Failed)
    assert "plain values and tensors only" in done.error
    assert Folder(tmp_path).complete() == []


def test_a_path_that_is_no_folder_is_told(tmp_path: Path) -> None:
    """Training goes on: it is an answer, no exception."""
    (tmp_path / "file").write_text("")

    done = Writer(Folder(tmp_path / "file"), 3, "uid", lambda _: None).save(a_state(), manifest(1), 60.0)

    assert isinstance(done, Failed)
    assert "Not a directory" in done.error


def of(job: str, origin: int, step: int) -> Manifest:
    """Of one of two jobs on one path."""
    return Manifest(str(Name(origin, step, tag_of(job))), job, origin, None, TERMS, 4 * step, {}, 1)


def test_a_job_that_began_later_on_the_same_path_fences_the_first_off(tmp_path: Path) -> None:
    """The first is told by whom, and leaves nothing; also once it has begun again, with a later epoch than the other's.
    What the other saves is not touched."""
    first, second = (Writer(Folder(tmp_path), 1, uid, lambda _: None) for uid in ("a", "b"))
    assert isinstance(first.save(a_state(), of("team/one/1", 1, 10), 60.0), Saved)
    assert isinstance(second.save(a_state(), of("team/two/2", 2, 12), 60.0), Saved)

    for refused in (first.save(a_state(), of("team/one/1", *at), 60.0) for at in ((1, 20), (7, 30))):
        assert isinstance(refused, Failed)
        assert f"job team/two/2 has begun to save in {tmp_path} since job team/one/1 did" in refused.error
    assert isinstance(second.save(a_state(), of("team/two/2", 2, 14), 60.0), Saved)

    assert Folder(tmp_path).complete() == [Name(2, 14, tag_of("team/two/2"))]
    assert not list(tmp_path.rglob(".writing-*"))


def test_of_two_jobs_that_begin_at_one_moment_one_holds_the_path(tmp_path: Path) -> None:
    """Neither saw the other before it claimed the path: both know the same one of them afterwards."""
    tags = sorted(tag_of(f"team/{name}/1") for name in "ab")
    for tag in tags:
        (tmp_path / f".claim-00000003-{tag}").write_text(tag)

    hold(tmp_path, tags[1], "the one")
    with pytest.raises(PathTaken, match=f"job {tags[1]} has begun"):
        hold(tmp_path, tags[0], "the other")


def test_claims_of_jobs_that_are_long_over_are_cleared_away(tmp_path: Path) -> None:
    """Each run of a job leaves one, and one only."""
    for number in range(KEPT + 10):
        hold(tmp_path, f"{number:08x}", f"job {number}")
        hold(tmp_path, f"{number:08x}", f"job {number}")

    assert len(list(tmp_path.iterdir())) == KEPT


def test_who_waits_for_a_save_can_be_called_away_and_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a job others may have to be met while the last checkpoint is written: it goes on meanwhile."""
    writer, go_on, write = Writer(Folder(tmp_path), 3, "uid", lambda _: None), threading.Event(), tensors.write
    monkeypatch.setattr(tensors, "write", lambda *told: go_on.wait(60) and write(*told))

    assert writer.save(a_state(), manifest(7), 60.0, unless=lambda: True) is None
    assert writer.busy
    go_on.set()
    done = writer.save(a_state(), manifest(7), 60.0)

    assert isinstance(done, Saved)
    assert [str(name) for name in Folder(tmp_path).complete()] == [manifest(7).name]


def a_keeper(path: Path) -> tuple[Keeper, Any, list[Any]]:
    """That of group 1, what it saves after three steps, and what it tells."""
    told: list[Any] = []
    env = read_environment(
        {"SPARE_JOB": "j", "SPARE_GROUP": "1", "SPARE_UID": "u", "SPARE_TOKEN": "t"} | {"SPARE_CHECKPOINT": str(path)}
    )
    keeper, line = Keeper(env), SimpleNamespace(report=lambda kind, **what: (kind, what), send=told.append)
    keeper.attach(line)  # type: ignore[arg-type]
    keeper.agree(TERMS)
    model = torch.nn.Linear(2, 1)
    return keeper, SimpleNamespace(whole=True, committed=3, anchor=(0, 0), model=model, state=a_state), told


def full(*_: Any) -> None:
    """No room is left on the disk."""
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_save_that_is_not_done_in_time_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By who waits for it; one that is not this group's to write is as safe as it can make it."""
    keeper, training, told = a_keeper(tmp_path)
    monkeypatch.setattr(tensors, "write", lambda *_: threading.Event().wait(60))

    assert not keeper.save_now(plan(writer=1), training, 0.05)
    assert told == [(wire.Unsaved, {"step": 3, "error": "it was not written within 0 s"})]
    assert keeper.save_now(plan(writer=0), SimpleNamespace(whole=False, committed=3), 0.05)  # type: ignore[arg-type]


def test_a_save_that_fails_again_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of the training it is tried twice, and more often where others fail meanwhile. A later one is news."""
    keeper, training, told = a_keeper(tmp_path)
    monkeypatch.setattr(tensors, "write", full)

    for _ in range(3):
        assert not keeper.save_now(plan(writer=1), training, 60.0)
    training.committed = 4
    assert not keeper.save_now(plan(writer=1), training, 60.0)

    assert [(kind, what["step"]) for kind, what in told] == [(wire.Unsaved, 3), (wire.Unsaved, 4)]


def test_a_disk_without_room_is_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's writer tells of a position in a file that it did not expect."""
    (tmp_path / "file").touch()
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=7))

    with pytest.raises(OSError, match=r"cannot be written \(on that disk 7 bytes are free, 49 are needed\)"):
        tensors.write(tmp_path / "file" / "below", {"a": torch.zeros(12)}, torch.zeros(1, dtype=torch.uint8))
