"""Training without tensors: the real bookkeeping over parameters that are one hash, so that bits can be compared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch

from spare_runtime.ledger import Ledger
from spare_runtime.regroup import Facts
from spare_runtime.training import Training
from tests.chaos.core import Core


def mixed(*parts: object) -> str:
    """A hash over the texts of things."""
    return hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()[:16]


@dataclass
class Cell:
    """A parameter's copy."""

    value: str


@dataclass
class Part:
    """What one group puts into a reduction, and then what comes of it: the second buffer, W."""

    group: int
    step: int
    mask: int
    unseen: bool
    parameters: str
    joining: bool
    result: Reduced | None = None


@dataclass(frozen=True)
class Reduced:
    """The sum of all parts. Two reductions of one step never have the same bits: their order of adding differs."""

    bits: str
    step: int
    unseen: int
    overflown: bool


@dataclass
class Buffers:
    """L, as a mask, and W, in place of `spare_runtime.buffers.GradientBuffers`."""

    owner: SimTraining
    local: int = 0
    part: Part | None = None
    reduction: str = "simulated"

    def add(self, bit: int) -> None:
        """A micro-batch's gradient goes into L."""
        if self.local >> bit & 1:
            raise self.owner.core.violated(f"{self.owner.name} added micro-batch {bit} to its sum twice")
        self.local |= 1 << bit

    def fill(self, unseen: bool, empty: bool = False) -> list[Any]:
        """See GradientBuffers."""
        owner = self.owner
        if self.local != owner.held or empty != (owner.held == 0):
            raise owner.core.violated(f"{owner.name} says it holds {owner.held:b}, and holds {self.local:b}")
        self.part = Part(owner.group, owner.committed, self.local, unseen, owner.parameters, joining=not owner.whole)
        return [self.part]

    def all_have_seen(self) -> bool:
        """See GradientBuffers."""
        return self.reduced.unseen == 0

    @property
    def reduced(self) -> Reduced:
        """What is in W."""
        if self.part is None or self.part.result is None:
            raise self.owner.core.violated(f"{self.owner.name} commits a reduction that it does not hold")
        return self.part.result

    def loss(self) -> float:
        """See GradientBuffers."""
        return 1.0

    def sums(self) -> int:
        """See Buffers."""
        return self.local

    def add_sums(self, sums: int) -> None:
        """See Buffers."""
        if self.local & sums:
            raise self.owner.core.violated(f"{self.owner.name} takes over {sums:b}, and holds {self.local:b} itself")
        self.local |= sums

    def overflown(self) -> tuple[str, ...]:
        """See Buffers: whether the sum fits is a matter of its bits, the same for all who hold it."""
        return ("the sum does not fit",) if self.reduced.overflown else ()

    def scales(self) -> tuple[int, ...]:
        """See Buffers."""
        return ()

    def rescale(self) -> None:
        """See Buffers."""

    def expect(self, micro_batches: int) -> None:
        """See Buffers."""

    def disarm(self) -> None:
        """See Buffers."""

    def forget_sent(self) -> None:
        """See Buffers."""

    def apply(self, scale: float) -> None:
        """See GradientBuffers."""

    def attach(self) -> None:
        """See GradientBuffers."""

    def note_parameters(self) -> None:
        """See GradientBuffers."""

    def clear(self) -> None:
        """See GradientBuffers."""
        self.local = 0


class SimLedger(Ledger):
    """A ledger in memory; the next worker of the same incarnation goes on in it."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(None, 0, "")
        self.lines = lines

    def _write(self, entry: dict[str, object]) -> None:
        self.lines.append(json.dumps(entry))


@dataclass
class State:
    """The donor's state while it is given: the real one, no copy."""

    of: SimTraining
    step: int
    begun_again: int
    parameters: str
    scripted: int

    @property
    def torn(self) -> bool:
        """Whether it changed since it was offered."""
        return (self.of.committed, self.of.begun_again, self.of.parameters) != (
            self.step,
            self.begun_again,
            self.parameters,
        )


class Legacy(dict[str, Any]):
    """What a group that leaves holds of the step in flight, while it is given."""

    def __init__(self, of: SimTraining, told: dict[str, Any]) -> None:
        super().__init__(told)
        self._of, self._then = of, (of.committed, of.begun_again, of.held)
        self.waited = of.waits()
        """It was offered while its group waited for others."""

    @property
    def torn(self) -> bool:
        """Whether it changed since it was offered."""
        return (self._of.committed, self._of.begun_again, self._of.held) != self._then


@dataclass
class _Optimizer:
    owner: Any = field(repr=False)

    def step(self) -> None:
        """The parameters follow from what was reduced."""
        owner = self.owner
        reduced = owner.buffers.reduced
        if reduced.step != owner.committed:
            raise owner.core.violated(f"{owner.name} commits step {owner.committed} from a sum of step {reduced.step}")
        owner.parameters = mixed(owner.parameters, reduced.bits)
        owner.on_commit(owner, reduced.bits)


OnCommit = Callable[["SimTraining", str], None]
_MODEL = torch.nn.Linear(1, 1, bias=False)
"""Training wants one; nothing of it is used."""


class SimTraining(Training):
    """The real Training's masks and rules; parameters, buffers and optimizer are replaced."""

    def __init__(self, core: Core, group: int, name: str, on_commit: OnCommit, lines: list[str]) -> None:
        self.core, self.group, self.name, self.on_commit = core, group, name, on_commit
        self.ledger = SimLedger(lines)
        super().__init__(_MODEL, [_Optimizer(self)], None, self.ledger, digests=False)
        self.sum = Buffers(self)
        self.origin = 1
        """Epoch of the start that its history began with."""
        self.inherited = self.inherited_waiting = 0
        """Sums taken over since the last commit; those of groups that waited when they offered them."""
        self.waits: Callable[[], bool] = lambda: False
        """Whether its program waits for others in a reduction or barrier."""
        self.scripted = 0
        """Something that the script registers and counts up behind each commit, as it steps a scheduler."""
        self.buffers = cast(Any, self.sum)
        self.parameters = mixed("initial", name)
        """Each group begins with its own: the first exchange aligns them."""

    def facts(self, group: int, serves: str = "") -> Facts:
        """See Training."""
        return replace(super().facts(group, serves), checksum=self.parameters if self.whole else "")

    def state(self) -> Any:
        """See Training."""
        return State(self, self.committed, self.begun_again, self.parameters, self.scripted)

    def legacy(self) -> dict[str, Any]:
        """See Training."""
        return Legacy(self, super().legacy())

    def inherit(self, legacy: dict[str, Any]) -> int:
        """See Training."""
        count = super().inherit(legacy)
        self.inherited += bool(count)
        self.inherited_waiting += bool(count) and legacy.waited  # type: ignore[attr-defined]
        return count

    def begins(self, origin: int, checkpoint: str) -> None:
        """See Training."""
        super().begins(origin, checkpoint)
        self.origin = origin

    def load(self, state: Any) -> None:
        """See Training."""
        self.parameters, self.committed, self.whole = state.parameters, state.step, True
        self.begun_again, self.scripted = state.begun_again, state.scripted
        if self.scripted != self.committed:
            raise self.core.violated(
                f"{self.name} is given {self.committed} steps, of which the script's own code has seen {self.scripted}"
            )

    def digest(self) -> str:
        """See Training."""
        return self.parameters

    def copies(self) -> list[Any]:
        """See Training."""
        return [Cell(self.parameters)]

    def replace(self, values: Iterable[Any]) -> None:
        """See Training."""
        self.parameters = next(iter(values)).value
