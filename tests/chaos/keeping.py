"""Checkpoints without files: the real bookkeeping over a folder in memory, which outlives processes as a disk does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from spare.api import wire
from spare.api.checkpoint import Manifest, Name
from spare_runtime.checkpoint.keeper import Keeper
from spare_runtime.checkpoint.writer import Failed, Saved
from spare_runtime.config import Environment
from spare_runtime.errors import CheckpointDamaged
from spare_runtime.training import Training
from tests.chaos.process import Process


class Vault:
    """What is on the disk: the state and the manifest of each checkpoint that is complete."""

    path = Path("/vault")

    def __init__(self) -> None:
        self.kept: dict[str, tuple[Any, Manifest]] = {}
        self.damaged: set[str] = set()
        """Those that cannot be read."""

    def complete(self) -> list[Name]:
        """See Folder."""
        return sorted(map(Name.parse, self.kept), reverse=True)

    def __contains__(self, name: Name) -> bool:
        return str(name) in self.kept


class SimWriter:
    """Writes for a while; a process that dies meanwhile leaves nothing."""

    def __init__(self, vault: Vault, process: Process, came: Callable[[Saved | Failed], None]) -> None:
        self._vault, self._process, self._came = vault, process, came
        self.busy = False

    def begin(self, state: Any, manifest: Manifest) -> None:
        """See Writer."""
        self.busy = True
        seconds = self._process.core.random.choice((0.001, 0.02, 0.3))
        self._process.node.after(seconds, self._written, state, manifest, seconds)

    def _written(self, state: Any, manifest: Manifest, seconds: float) -> Saved:
        self.busy = False
        self._vault.kept[manifest.name] = (state, manifest)
        saved = Saved(Name.parse(manifest.name), 0.0, seconds, 1)
        self._came(saved)
        return saved

    def save(self, state: Any, manifest: Manifest, deadline: float, *how: object) -> Saved:
        """See Writer."""
        self._process.at = "saving"
        self._process.sleep(0.01)
        return self._written(state, manifest, 0.01)


class SimKeeper(Keeper):
    """The real one on a vault."""

    def __init__(
        self,
        vault: Vault,
        on_begin: Callable[[Any, str], None],
        process: Process,
        env: Environment,
        rank: int,
        ranks: int,
        clock: Any,
    ) -> None:
        super().__init__(env, rank, ranks, clock)
        self._vault, self._process = vault, process
        self._folder = cast(Any, vault)
        self._on_begin = on_begin
        self._writer = cast(Any, SimWriter(vault, process, self._came))

    def begin(self, plan: wire.Plan, training: Training) -> None:
        """See Keeper."""
        if not plan.checkpoint:
            return
        self._process.at = "loading the checkpoint"
        self._process.sleep(self._process.core.random.choice((0.001, 0.05)))
        if plan.checkpoint in self._vault.damaged:
            raise CheckpointDamaged(f"checkpoint {plan.checkpoint} is damaged")
        state, manifest = self._vault.kept[plan.checkpoint]
        self._on_begin(state, plan.checkpoint)
        training.load(state)
        self.begun_from, self._newest = manifest, Name.parse(plan.checkpoint)
