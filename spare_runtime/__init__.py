"""The pod side of SPARe: `Session` for training scripts, and the agent beside each worker.

```python
with spare_runtime.Session(model, optimizer) as session:
    for step in session.steps(until=1000):
        for micro in step:
            session.backward(loss_of(model, batch_of(micro.step, micro.shard, micro.index)))
```

The agent needs no torch, so torch is imported only when `Session` is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spare_runtime.mesh import group_mesh
    from spare_runtime.session import Micro, Session, Step

__all__ = ["Micro", "Session", "Step", "group_mesh"]


def __getattr__(name: str) -> object:
    if name == "group_mesh":
        from spare_runtime.mesh import group_mesh

        return group_mesh
    if name in __all__:
        from spare_runtime import session

        return getattr(session, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
