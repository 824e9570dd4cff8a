"""Tensors of which each rank of the group holds a part (`DTensor`: FSDP2, tensor parallelism): our sums, checksums and
transfers work on these parts, for rank j meets nobody but the other groups' ranks j."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from spare_runtime.errors import SessionMisuse

_PART = "__part__"


def _distributed(tensor: object) -> Any:
    """The tensor, if it is one of which every rank holds a part; else None."""
    library: Any = sys.modules.get("torch.distributed.tensor")  # importing it takes long, and who has one has done so
    kind = getattr(library, "DTensor", None)  # absent, too, while another thread is at importing it
    return tensor if kind is not None and isinstance(tensor, kind) else None


def local(tensor: Tensor) -> Tensor:
    """The part that this rank holds, not a copy; of any other tensor, itself."""
    whole = _distributed(tensor)
    part: Tensor = tensor if whole is None else whole._local_tensor
    return part


def like(whole: Tensor, part: Tensor) -> Tensor:
    """`part` as this rank's part of a tensor that is distributed as `whole` is. No copy, nothing is communicated."""
    spread = _distributed(whole)
    if spread is None:
        return part
    how: dict[str, Any] = {"shape": whole.shape, "stride": whole.stride(), "run_check": False}
    put: Tensor = type(spread).from_local(part, spread.device_mesh, spread.placements, **how)
    return put


def taken_apart(state: Any) -> Any:
    """A state as it travels: instead of each distributed tensor, the part that this rank holds, marked as one."""
    if (whole := _distributed(state)) is not None:
        return {_PART: whole._local_tensor, "shape": list(state.shape)}
    if isinstance(state, dict):
        return {key: taken_apart(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(taken_apart(value) for value in state) if type(state) in (list, tuple) else state
    return state


def put_together(state: Any, whole: Tensor | None, what: str) -> Any:
    """The inverse of `taken_apart`, here.

    Args:
        state: As it travelled.
        whole: A tensor that is distributed here as the parts in `state` were there.
        what: What it is the state of, for the error.

    Raises:
        SessionMisuse: a part of a tensor of another shape.
    """
    if isinstance(state, dict) and _PART in state:
        part = state[_PART]
        mine = list(whole.shape) if whole is not None else None
        if whole is None or mine != state["shape"] or local(whole).shape != part.shape:
            raise SessionMisuse(f"{what} is a part of a tensor of shape {state['shape']}; here it is {mine}")
        return like(whole, part)
    if isinstance(state, dict):
        return {key: put_together(value, whole, what) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(put_together(value, whole, what) for value in state)
    return state


def model_state(model: torch.nn.Module, state: dict[str, Any]) -> dict[str, Any]:
    """A model's state as it travelled, put together as this rank's parts of this model. Raises SessionMisuse."""
    own = model.state_dict()
    return {name: put_together(value, own.get(name), name) for name, value in state.items()}


def optimizer_state(optimizer: Any, state: dict[str, Any]) -> dict[str, Any]:
    """An optimizer's state as it travelled; what it keeps of a parameter is distributed as the parameter is.

    Raises:
        SessionMisuse: it has distributed tensors, and is not of torch's form or of other parameters.
    """
    kept = state.get("state")
    if not isinstance(kept, dict) or not hasattr(optimizer, "param_groups"):
        return state
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    put = {}
    for index, value in kept.items():
        whole = parameters[index] if isinstance(index, int) and index < len(parameters) else None
        put[index] = put_together(value, whole, f"the optimizer's state of parameter {index}")
    return {**state, "state": put}
