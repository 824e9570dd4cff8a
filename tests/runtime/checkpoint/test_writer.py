"""A state is written as it was when it was copied, whatever training does meanwhile, and comes back the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from spare.api.checkpoint import Manifest, Name, Terms
from spare_runtime.checkpoint import tensors
from spare_runtime.checkpoint.folder import Folder
from spare_runtime.checkpoint.writer import Failed, Saved, Writer

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
