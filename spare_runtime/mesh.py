"""The process group of the ranks inside one group: for the script's own parallelism (FSDP2, tensor, pipeline).

It is torch's default process group in each worker, with the ranks of its own group only: `fully_shard(model,
mesh=...)`, `torch.distributed.all_reduce(x)` and `init_device_mesh` all work on it. It lasts as long as the worker
does; a change of the job's membership does not touch it, for a group is lost as a whole.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from spare.planner.words import counted
from spare_runtime.config import Environment, read_environment
from spare_runtime.errors import SessionMisuse
from spare_runtime.siblings import home_store

dist: Any = torch.distributed  # its stubs know little of what its C++ part exports


def group_mesh(device_type: str | None = None, *, backend: str | None = None) -> DeviceMesh:
    """One-dimensional mesh of this group's ranks, connected on the first call. Every rank of the group must call it.

    Scripts that call `torch.distributed.init_process_group()` themselves, or `init_device_mesh` after it, need not call
    this; what they made is then used. It differs in that nothing listens beyond the job's own address and token.

    Args:
        device_type: Default: cuda where there is some, else cpu.
        backend: Of `init_process_group`; default: torch's for the device.

    Raises:
        RendezvousTimeout: a rank of the group did not come.
        SessionMisuse: the script's default process group has other ranks than the group.
        BadEnvironment: not started by a SPARe backend.
    """
    env = read_environment()
    device_type = device_type or ("cuda" if torch.cuda.is_available() else "cpu")
    if not torch.distributed.is_initialized():
        _begin(env, backend)
    if torch.distributed.get_world_size() != env.ranks:
        raise SessionMisuse(
            f"the default process group has {counted(torch.distributed.get_world_size(), 'rank')}; a group has "
            f"{env.ranks}: between groups gradients are reduced by the session, not by the script"
        )
    return init_device_mesh(device_type, (env.ranks,), mesh_dim_names=("group",))


def _begin(env: Environment, backend: str | None) -> None:
    store = home_store(env, "script") if env.ranks > 1 else dist.HashStore()
    torch.distributed.init_process_group(backend, store=store, rank=env.rank, world_size=env.ranks)
