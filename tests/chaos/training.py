"""Training without tensors: the real bookkeeping over parameters that are one hash, so that bits can be compared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

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


@dataclass
class Buffers:
    """L, as a mask, and W, in place of `spare_runtime.buffers.GradientBuffers`."""

    owner: SimTraining
    local: int = 0
    part: Part | None = None

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
        self.part = Part(
            owner.group, owner.committed, self.local, unseen, owner.parameters, joining=not owner.whole
        )
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

    def apply(self, scale: float) -> None:
        """See GradientBuffers."""

    def attach(self) -> None:
        """See GradientBuffers."""

    def note_parameters(self) -> None:
        """See GradientBuffers."""

    def clear(self) -> None:
        """See GradientBuffers."""
        self.local = 0


class SimLedger:
    """A ledger in memory, of the real one's format."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def entering(self, step: int, epoch: int, held: int) -> None:
        """See Ledger."""
        self.lines.append(json.dumps({"step": step, "epoch": epoch, "enters": f"{held:x}"}))

    def committed(self, step: int, reduction: int, computed: int, again: int, digest: str | None) -> None:
        """See Ledger."""
        entry = {"step": step, "commits": reduction, "computed": f"{computed:x}", "again": again, "digest": digest}
        self.lines.append(json.dumps({key: value for key, value in entry.items() if value}| {"step": step}))


@dataclass
class State:
    """The donor's state while it is given: the real one, no copy."""

    of: SimTraining
    step: int
    parameters: str


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
        owner.on_commit(owner.committed, owner.parameters, reduced.bits)


class SimTraining(Training):
    """The real Training's masks and rules; model, buffers and optimizer are replaced."""

    def __init__(self, core: Core, group: int, name: str, lines: list[str], on_commit: Any) -> None:
        self.core, self.group, self.name, self.on_commit = core, group, name, on_commit
        self.parameters = mixed("initial", name)
        """Each group begins with its own: the first exchange aligns them."""
        self._setup(lines)

    def _setup(self, lines: list[str]) -> None:
        self.buffers = cast(Any, Buffers(self))
        self.whole = True
        self.committed = 0
        self.loss: float | None = None
        self.held = self.todo = 0
        self.reduced: int | None = None
        self.registered = {}
        self._computed = self._again = 0
        self._optimizers = [_Optimizer(self)]
        self._on_gradients = None
        self._ledger, self._digests = cast(Ledger, SimLedger(lines)), False

    def facts(self, group: int, serves: str = "") -> Facts:
        """See Training."""
        proof = self.parameters if self.whole else ""
        return Facts(group, self.committed, self.reduced, self.whole, self.held, proof, serves)

    def state(self) -> Any:
        """See Training."""
        return State(self, self.committed, self.parameters)

    def load(self, state: Any) -> None:
        """See Training."""
        self.parameters, self.committed, self.whole = state.parameters, state.step, True

    def digest(self) -> str:
        """See Training."""
        return self.parameters

    def copies(self) -> list[Any]:
        """See Training."""
        return [Cell(self.parameters)]

    def replace(self, values: Iterable[Any]) -> None:
        """See Training."""
        self.parameters = next(iter(values)).value
