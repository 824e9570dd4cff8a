"""What a training script sees: a session, its steps, their micro-batches (docs/training-script.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from inspect import signature
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from spare.api.checkpoint import Data, Terms
from spare_runtime.config import read_environment
from spare_runtime.errors import Departed, SessionMisuse
from spare_runtime.ledger import Ledger
from spare_runtime.loader import Dataset, Loader
from spare_runtime.member import Member
from spare_runtime.mesh import group_mesh
from spare_runtime.micro import Micro
from spare_runtime.randomness import seed_all, seed_of
from spare_runtime.training import REDUCTIONS, Stateful, Steppable, Training

__all__ = ["Micro", "Session", "Step"]

_SPOKEN_WITH: set[str | None] = set()
"""Agents that a session of this process was entered with. An agent has one worker, and that one membership."""


def _check(argument: str, expected: str, given: object, fits: bool) -> None:
    """Refuse an argument of another kind where it is given: the script has no line in the step that would fail."""
    if not fits:
        raise TypeError(f"{argument} of Session must be {expected}, not {type(given).__name__} {given!r:.80}")


def _is_called_alone(function: Callable[..., object]) -> bool:
    """Whether it can be called without arguments, as far as it tells."""
    try:
        signature(function).bind()
    except TypeError:
        return False
    except ValueError:  # it does not tell
        return True
    return True


def _shown(loss: object) -> str:
    if not isinstance(loss, Tensor):
        return f"{type(loss).__name__} {loss!r:.80}"
    if loss.numel() != 1:
        return f"one of the sizes {list(loss.shape)}"
    return "one that was detached, or computed without gradients"


class Step:
    """One optimizer step. Iterating gives this group's micro-batches; when it ends, the step is committed."""

    def __init__(self, session: Session, number: int) -> None:
        self.number = number
        self._session = session

    def __iter__(self) -> Iterator[Micro]:
        return self._session._micros(self.number)


class Session:
    """Membership of one training process in a SPARe job: a context manager around the training loop.

    Between two steps every group holds the same parameters. If they differ at the start, those of the lowest group
    are taken, as in data-parallel training. Buffers that are no parameters (running statistics) are each group's own.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: Steppable | Iterable[Steppable],
        *,
        micro_batch_size: int | None = None,
        on_gradients: Callable[[], None] | None = None,
        seed: int | None = None,
        reduction: str = "float",
    ) -> None:
        """Nothing is connected before the session is entered.

        Args:
            model: Those of its parameters that require a gradient when the session is entered are trained; one that
                gets into an optimizer later is refused at the next commit.
            optimizer: One or several, anything with a `step()`; the session calls it at each commit.
            micro_batch_size: Samples in a micro-batch; gives `Micro.samples` its length. Default: 1, for scripts that
                find their data by step, shard and index; only one that says it can be gone on with from a checkpoint
                of another division into groups and micro-batches.
            on_gradients: Called with the reduced gradient in place, before the optimizers step: for clipping.
            seed: Of the job; default: the job file's.
            reduction: `float` sums gradients in their own dtype, so that the last bits depend on who computed what.
                `exact` sums them in fixed point: final weights are, bit for bit, those of a run without failures. See
                docs/exact-mode.md for its cost. The same on every group.

        Raises:
            TypeError: an argument is not of its kind: of what a mistake would show in the first step, or never.
            ValueError: micro_batch_size is less than 1, or there is no such reduction.
            BadEnvironment: not started by a SPARe backend.
        """
        optimizers = list(optimizer) if isinstance(optimizer, Iterable) else [optimizer]
        _check("model", "a torch.nn.Module", model, isinstance(model, torch.nn.Module))
        for each in optimizers:
            _check("optimizer", "one or several, each with step()", each, callable(getattr(each, "step", None)))
            _check("optimizer", "one whose step() needs no closure", each, _is_called_alone(each.step))
        _check("on_gradients", "a function", on_gradients, on_gradients is None or callable(on_gradients))
        for name, number in (("micro_batch_size", micro_batch_size), ("seed", seed)):
            _check(name, "a whole number", number, number is None or type(number) is int)
        if micro_batch_size is not None and micro_batch_size < 1:
            raise ValueError(f"micro_batch_size must be at least 1, not {micro_batch_size}")
        if reduction not in REDUCTIONS:
            raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}, not {reduction!r}")
        self._reduction = reduction
        self._model = model
        self._optimizers: list[Steppable] = optimizers
        self._micro_batch_size = micro_batch_size
        self._data: list[Data] = []
        self._on_gradients = on_gradients
        self._env = read_environment()
        self.seed = self._env.seed if seed is None else seed
        self._inside: Member | None = None
        self._hand: Micro | None = None
        self._given = False
        self._loaders: list[Loader] = []
        self._registered: dict[str, Stateful] = {}

    def __enter__(self) -> Self:
        env = self._env
        if env.agent in _SPOKEN_WITH:
            raise SessionMisuse(
                "this process has had a session before, and a script opens one: for more steps call its steps() again"
            )
        _SPOKEN_WITH.add(env.agent)
        group, rank = None if env.spare is not None else env.group, env.rank if env.ranks > 1 else None
        ledger = Ledger(env.directory, group, env.uid, rank)
        training = Training(self._model, self._optimizers, self._on_gradients, ledger, env.digests, self._reduction)
        training.registered = self._registered
        self._inside = Member(env, training, ledger)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._finish()
            elif isinstance(error, Departed):
                pass  # it has said so
            elif isinstance(error, Exception | SystemExit):  # an exit is told now: the interpreter's end may take long
                self._member.tell_error(error, self._hand)
        finally:
            self._member.leave()
            for loader in self._loaders:
                loader.close()

    def _finish(self) -> None:
        try:
            self._member.finish()
        except Exception as error:  # raised again; nobody else would tell of it
            self._member.tell_error(error, None)
            raise

    @property
    def _member(self) -> Member:
        if self._inside is None:
            raise SessionMisuse("use the session inside `with Session(...) as session`")
        return self._inside

    # --- what it tells ----------------------------------------------------------------------------------------------

    @property
    def committed(self) -> int:
        """Steps committed so far."""
        return self._member.training.committed

    @property
    def loss(self) -> float | None:
        """Mean loss over all micro-batches of the last committed step, the same on every group."""
        return self._member.training.loss

    @property
    def group(self) -> int:
        """This group's number; once it is known it never changes.

        Raises:
            SessionMisuse: this process was started as a spare, whose group is known when the session is entered.
        """
        if self._inside is None and self._env.spare is not None:
            raise SessionMisuse("a spare has no group before its session is entered: ask for it inside the session")
        return self._env.group if self._inside is None else self._inside.env.group

    @property
    def rank(self) -> int:
        """This process's number among the ranks of its group."""
        return self._env.rank

    @property
    def ranks(self) -> int:
        """P: ranks of each group, podsPerGroup * procPerPod."""
        return self._env.ranks

    @property
    def mesh(self) -> DeviceMesh:
        """The ranks of this group, for parallelism inside it: `spare_runtime.group_mesh()`."""
        return group_mesh()

    @property
    def groups(self) -> int:
        """N: groups of a healthy job, and shards of a step."""
        return self._member.plan.placement.groups

    @property
    def micro_batches(self) -> int:
        """m: micro-batches of one shard in one step."""
        return self._member.plan.micro_batches

    @property
    def epoch(self) -> int:
        """Number of the plan that this group runs under."""
        return self._member.plan.epoch

    # --- the loop ---------------------------------------------------------------------------------------------------

    def steps(self, until: int) -> Iterator[Step]:
        """The steps from the first that is not committed yet to number `until` - 1.

        When it ends, this group has the training state after the last step, also if it came too late for any step of
        its own: what follows the loop may save it.

        Raises:
            SessionMisuse: the loop body left a step unfinished.
            Departed: this group leaves, or the job ended before it had the state; the script ends with 0.
        """
        self._member.keeper.agree(self._terms())  # also where all steps are committed already
        self._member.begins(until)
        while self.committed < until:
            number = self.committed
            self._member.keeper.agree(self._terms())
            self._member.between_steps()
            yield Step(self, number)
            if self.committed == number:
                raise SessionMisuse(f"the loop left step {number} before all its micro-batches were computed")
        self._member.arrive()

    def backward(self, loss: Tensor, **arguments: Any) -> None:
        """Compute the gradient of this micro-batch's mean loss and add it to the step's sum. Once for each micro-batch.

        Args:
            loss: One number; its mean over all N * m micro-batches is what the step minimises.
            arguments: Passed on to `loss.backward`.

        Raises:
            SessionMisuse: outside of a micro-batch, twice in one, not with one number that depends on a parameter, or
                gradients were thrown away in mid-step.
        """
        if self._hand is None:
            raise SessionMisuse("session.backward() outside of `for micro in step`")
        if self._given:
            raise SessionMisuse(
                f"micro-batch {self._hand.index} of shard {self._hand.shard} was given to session.backward() before: "
                "add the parts of its loss and give their sum"
            )
        if arguments.get("create_graph"):
            raise SessionMisuse("create_graph makes new gradients instead of adding to the session's sum")
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
            raise SessionMisuse(
                "session.backward() takes the micro-batch's mean loss, a tensor of one number that depends on the "
                f"parameters, not {_shown(loss)}"
            )
        training = self._member.training
        training.buffers.check_attached(empty=training.held == 0)
        loss.backward(**arguments)  # type: ignore[no-untyped-call]
        training.buffers.add_loss(loss)
        self._given = True

    def loader(
        self,
        dataset: Dataset,
        *,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        workers: int = 0,
        prefetch: int = 2,
        name: str | None = None,
        split: bool = False,
    ) -> Loader:
        """Batches of a map-style data set by micro-batch, `loader[micro]`: each sample once per pass, in seeded order.

        Arguments are those of `spare_runtime.loader.Loader`, and `name`: what the data are called in a checkpoint,
        which can only be gone on from with the same ones (default: the name of their class). `split`: each rank of this
        group gets its own part of every micro-batch's samples, as data parallelism inside the group (FSDP) wants it;
        else all get all of them, as tensor parallelism does.

        Raises:
            ValueError: they cannot be split evenly.
        """
        size, ranks = self._micro_batch_size or 1, self._env.ranks
        if split and size % ranks:
            raise ValueError(f"split=True: {size} samples of a micro-batch cannot be split evenly among {ranks} ranks")
        part = slice(self._env.rank, None, ranks) if split else slice(None)
        how: Any = {"collate": collate_fn, "workers": workers, "prefetch": prefetch, "part": part}
        loader = Loader(dataset, self._upcoming, self.seed, **how)
        self._loaders.append(loader)
        self._data.append(Data(name or type(dataset).__qualname__, len(dataset)))
        return loader

    def register(self, name: str, thing: Stateful) -> None:
        """Let the state of `thing` (a scheduler, a counter, ...) travel with the training state to a group that joins.

        To be called before the session is entered, by every group alike.

        Args:
            name: Its name in the state.
            thing: Has state_dict() and load_state_dict(); its state holds plain values and tensors.

        Raises:
            SessionMisuse: the session is entered already, or the name is taken.
        """
        if self._inside is not None or name in self._registered:
            taken = "is taken" if name in self._registered else "comes too late: register before entering the session"
            raise SessionMisuse(f"register({name!r}): the name {taken}")
        self._registered[name] = thing

    def _terms(self) -> Terms:
        size = self._micro_batch_size
        if size is None and self._data:
            size = 1  # a loader counts in samples
        return Terms(self.groups, self.micro_batches, size, self.seed, tuple(self._data))

    def _upcoming(self) -> Iterator[Micro]:
        member = self._member
        for step, bit in member.training.upcoming(member.schedule()):
            yield self._micro(step, bit)

    def _micro(self, step: int, bit: int) -> Micro:
        member, size = self._member, self._micro_batch_size or 1
        begun, used = member.training.anchor
        first = used + ((step - begun) * member.micro_batches + bit) * size
        shard, index = divmod(bit, member.plan.micro_batches)
        return Micro(step, shard, index, range(first, first + size))

    def _micros(self, number: int) -> Iterator[Micro]:
        member, training = self._member, self._member.training
        if number != training.committed:
            raise SessionMisuse(f"step {number} is not in flight; committed so far: {training.committed}")
        if self._hand is not None and self._given:
            raise SessionMisuse(
                f"step {number} is iterated anew, and micro-batch {self._hand.index} of shard {self._hand.shard} is in "
                "its sum already: do not leave `for micro in step` behind session.backward()"
            )
        for bit in member.work(number):
            yield from self._give(bit)

    def _give(self, bit: int) -> Iterator[Micro]:
        micro = self._micro(self.committed, bit)
        seed_all(seed_of(self.seed, micro.step, micro.shard, micro.index))
        self._hand, self._given = micro, False
        yield micro
        if not self._given:
            raise SessionMisuse(f"micro-batch {micro.index} of shard {micro.shard} was not given to session.backward()")
        self._hand = None
