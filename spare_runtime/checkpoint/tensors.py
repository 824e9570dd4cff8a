"""A training state as files of torch.distributed.checkpoint, and back.

Each rank's state is a checkpoint of its own, without collectives: it is written by a background thread, whose
collectives would cross those of the training in the same process group. Tensors have speaking names (`model/0.weight`,
`optimizers/0/state/3/exp_avg`), so that torch's own tools read them; everything else is one entry, `plain`.
"""

from __future__ import annotations

import io
import shutil
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

PLAIN = "plain"
_MARK = "__tensor__"


def named(state: Any) -> tuple[Any, dict[str, Tensor]]:
    """A state with each tensor replaced by `{__tensor__: name}`, and the tensors by their names."""
    tensors: dict[str, Tensor] = {}

    def walk(value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, Tensor):
            name = "/".join(path)
            while name in tensors or name == PLAIN:  # the keys 0 and "0" of one dict
                name += "'"
            tensors[name] = value
            return {_MARK: name}
        if isinstance(value, dict):
            return {key: walk(each, (*path, str(key))) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(walk(each, (*path, str(at))) for at, each in enumerate(value))
        return value

    return walk(state, ()), tensors


def joined(plain: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of `named`."""
    if isinstance(plain, dict):
        if _MARK in plain:
            return tensors[plain[_MARK]]
        return {key: joined(each, tensors) for key, each in plain.items()}
    if isinstance(plain, list | tuple):
        return type(plain)(joined(each, tensors) for each in plain)
    return plain


def pack(plain: Any) -> Tensor:
    """What is no tensor, as one.

    Raises:
        ValueError: it holds something that is neither a plain value nor a tensor, and so could not be read back.
    """
    packed = io.BytesIO()
    try:
        torch.save(plain, packed)
        data = bytes(packed.getbuffer())
        torch.load(io.BytesIO(data), weights_only=True)
    except Exception as error:
        raise ValueError(f"the training state may hold plain values and tensors only: {error}") from error
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def write(path: Path, tensors: dict[str, Tensor], plain: Tensor) -> None:
    """Write one rank's state into a folder, and have the disk hold it.

    Raises:
        OSError: it cannot be written (a full disk).
    """
    dcp = library()
    writer = dcp.FileSystemWriter(path, single_file_per_rank=True, sync_files=True, thread_count=1)
    planner = dcp.DefaultSavePlanner(flatten_state_dict=False)
    try:
        dcp.save({**tensors, PLAIN: plain}, storage_writer=writer, planner=planner, no_dist=True)
    except (Exception, dcp.CheckpointException) as error:  # which derives from BaseException
        raise _told(error, f"{path} cannot be written{_short_of(path, [*tensors.values(), plain])}") from error


def _short_of(path: Path, tensors: Iterable[Tensor]) -> str:
    """Torch's own writer tells of a full disk as of a position in a file."""
    size = sum(tensor.nbytes for tensor in tensors)
    try:
        free = shutil.disk_usage(path).free
    except OSError:
        return ""
    return f" (on that disk {free} bytes are free, {size} are needed)" if free < size else ""


def read(path: Path) -> Any:
    """The state that `write` wrote, on the CPU.

    Raises:
        OSError: it cannot be read.
    """
    dcp = library()
    try:
        reader = dcp.FileSystemReader(path)
        entries = reader.read_metadata().state_dict_metadata
        tensors = {name: torch.empty(each.size, dtype=each.properties.dtype) for name, each in entries.items()}
        planner = dcp.DefaultLoadPlanner(flatten_state_dict=False)
        dcp.load(tensors, storage_reader=reader, planner=planner, no_dist=True)
        plain = tensors.pop(PLAIN)
        return joined(torch.load(io.BytesIO(plain.numpy().tobytes()), weights_only=True), tensors)
    except (Exception, dcp.CheckpointException) as error:
        raise _told(error, f"{path} cannot be read") from error


def _told(error: BaseException, what: str) -> OSError:
    """Torch wraps what goes wrong, and its text is a traceback of many lines."""
    inner: BaseException | None = error
    for each in getattr(error, "failures", {}).values():
        inner = each[0] if isinstance(each, tuple) else each
    if isinstance(inner, OSError) and inner.errno is not None:
        return OSError(inner.errno, f"{what}: {inner.strerror}")
    return OSError(f"{what}: {next(iter(str(inner).splitlines()), '') or type(inner).__name__}")


def library() -> Any:
    """torch.distributed.checkpoint; importing it takes a second or two, which only jobs with checkpoints spend."""
    import torch.distributed.checkpoint as checkpoint

    # It warns at each save and load that there are no collectives; that is what is wanted.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"torch\.distributed\.checkpoint")
    warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
    return checkpoint
