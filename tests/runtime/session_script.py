"""Sessions in a world of one group, each against an agent's end in this process; prints what came of each, as JSON.

Run as a script, because a session's process ends when its agent does.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from spare.api import wire
from spare_runtime import Micro, Session, member
from spare_runtime.checkpoint import tensors
from spare_runtime.checkpoint.folder import Folder
from spare_runtime.errors import PlanTimeout
from tests.runtime.lone_agent import AgentEnd, M

STEPS, RATE = 4, 0.25


def model() -> nn.Linear:
    """The same every time."""
    torch.manual_seed(0)
    return nn.Linear(2, 1, dtype=torch.float64)


def loss_of(m: nn.Module, micro: Micro) -> Tensor:
    """A loss with its own data and dropout."""
    x = torch.tensor([micro.step + 1.0, micro.index - 1.0], dtype=torch.float64)
    return (nn.functional.dropout(m(x), 0.5).sum() - 1) ** 2


@contextmanager
def training(**arguments: Any) -> Iterator[tuple[Session, nn.Linear, AgentEnd, torch.optim.Optimizer]]:
    """A session around a new model."""
    agent, m = AgentEnd(), model()
    optimizer = torch.optim.SGD(m.parameters(), lr=RATE)
    with Session(m, optimizer, seed=5, **arguments) as session:
        yield session, m, agent, optimizer


def plain() -> dict[str, Any]:
    """A whole run, and what the session tells of itself meanwhile."""
    micros, losses = [], []
    with training(micro_batch_size=2) as (session, m, agent, _):
        facts = [session.group, session.groups, session.micro_batches, session.epoch, session.committed]
        first = session.loss
        for step in session.steps(until=STEPS):
            for micro in step:
                micros.append([micro.step, micro.shard, micro.index, micro.samples.start, micro.samples.stop])
                session.backward(loss_of(m, micro))
            losses.append(session.loss)
    weights = [p.tolist() for p in m.parameters()]
    return {
        "facts": facts,
        "first": first,
        "micros": micros,
        "losses": losses,
        "weights": weights,
        "kinds": agent.kinds(),
    }


def replanned() -> dict[str, Any]:
    """An urgent plan and a boundary plan in the middle of steps: the same result, nothing computed again."""
    micros, epochs = [], []
    with training() as (session, m, agent, _):
        for step in session.steps(until=STEPS):
            for micro in step:
                if (micro.step, micro.index) == (1, 1):
                    agent.push(2, 2)
                if (micro.step, micro.index) == (2, 1):
                    agent.push(3, 2)
                micros.append([micro.step, micro.index])
                epochs.append(session.epoch)
                session.backward(loss_of(m, micro))
                if (micro.step, micro.index) in ((1, 1), (2, 1)):
                    wait_for_plan(session)
    return {"micros": micros, "epochs": epochs, "weights": [p.tolist() for p in m.parameters()], "kinds": agent.kinds()}


def wait_for_plan(session: Session) -> None:
    """Until the line's thread has seen it."""
    until = time.monotonic() + 20
    while not session._member.membership.has_seen_newer():
        assert time.monotonic() < until
        time.sleep(0.001)


def reference() -> list[Any]:
    """The same training without a session."""
    from spare_runtime.randomness import seed_all, seed_of

    m = model()
    optimizer = torch.optim.SGD(m.parameters(), lr=RATE)
    for step in range(STEPS):
        optimizer.zero_grad()
        for index in range(M):
            seed_all(seed_of(5, step, 0, index))
            loss_of(m, Micro(step, 0, index, range(1))).backward()  # type: ignore[no-untyped-call]
        for p in m.parameters():
            assert p.grad is not None
            p.grad *= 1 / M
        optimizer.step()
    return [p.tolist() for p in m.parameters()]


# --- misuse ---------------------------------------------------------------------------------------------------------


def not_entered() -> None:
    """A session that nobody entered."""
    AgentEnd()
    m = model()
    _ = Session(m, torch.optim.SGD(m.parameters(), lr=RATE)).committed


def outside() -> None:
    """A gradient that belongs to no micro-batch."""
    with training() as (session, m, _, _o):
        session.backward(m(torch.ones(2, dtype=torch.float64)).sum())


def left_early() -> None:
    """A loop that leaves a step half done."""
    with training() as (session, m, _, _o):
        for step in session.steps(until=STEPS):
            for micro in step:
                session.backward(loss_of(m, micro))
                break


def forgotten() -> None:
    """A micro-batch whose loss is never given."""
    with training() as (session, m, _, _o):
        for step in session.steps(until=STEPS):
            for micro in step:
                if micro.index != 1:
                    session.backward(loss_of(m, micro))


def twice() -> None:
    """A micro-batch with two losses, given one after the other."""
    with training() as (session, m, _, _o):
        for step in session.steps(until=STEPS):
            for micro in step:
                session.backward(loss_of(m, micro))
                session.backward(loss_of(m, micro))


def cleared() -> None:
    """Gradients thrown away after each micro-batch."""
    with training() as (session, m, _, optimizer):
        for step in session.steps(until=STEPS):
            for micro in step:
                session.backward(loss_of(m, micro))
                optimizer.zero_grad()


def cleared_in_place() -> None:
    """The same, where nobody sees it by the gradient's identity."""
    with training() as (session, m, _, optimizer):
        for step in session.steps(until=STEPS):
            for micro in step:
                session.backward(loss_of(m, micro))
                optimizer.zero_grad(set_to_none=False)


def graph() -> None:
    """A gradient of which a gradient is wanted."""
    with training() as (session, m, _, _o):
        for step in session.steps(until=STEPS):
            for micro in step:
                session.backward(loss_of(m, micro), create_graph=True)


def given(loss: Callable[[Any], Any]) -> None:
    """Something else than the loss is given to backward."""
    with training() as (session, m, _, _o):
        for step in session.steps(until=STEPS):
            for micro in step:
                session.backward(loss(loss_of(m, micro)))


def again(most: int | None) -> None:
    """A step that is iterated twice, each time as far as so many micro-batches; None: to its end."""
    with training() as (session, m, _, _o):
        for step in session.steps(until=STEPS):
            for _again in range(2):
                for micro in islice(step, most):
                    session.backward(loss_of(m, micro))


def tiny() -> None:
    """Micro-batches without samples."""
    with training(micro_batch_size=0):
        pass


def cleared_between_steps() -> None:
    """As a script for one process does it: no misuse."""
    with training() as (session, m, _, optimizer):
        for step in session.steps(until=STEPS):
            optimizer.zero_grad(set_to_none=step.number % 2 == 0)
            for micro in step:
                session.backward(loss_of(m, micro))
    assert [p.tolist() for p in m.parameters()] == reference()


def script_error() -> dict[str, Any]:
    """What the coordinator hears of an exception in the loop."""
    try:
        with training() as (session, m, agent, _o):
            for step in session.steps(until=STEPS):
                for micro in step:
                    if (micro.step, micro.index) == (1, 2):
                        raise KeyError("caf\udce9")
                    session.backward(loss_of(m, micro))
    except KeyError:
        agent.wait(lambda message: isinstance(message, wire.Errored))
    told = next(m for m in agent.messages if isinstance(m, wire.Errored))
    return {
        "type": told.type,
        "text": told.text,
        "step": told.step,
        "micro": told.micro,
        "ours": told.ours,
        "kinds": agent.kinds(),
    }


def second() -> None:
    """A session after another one, in one script."""
    with training() as (session, m, _, optimizer):
        for step in session.steps(until=1):
            for micro in step:
                session.backward(loss_of(m, micro))
    with Session(m, optimizer):
        pass


def behind() -> int:
    """Of an exception in what the script does behind the commit of step 1: the step that is told."""
    try:
        with training() as (session, m, agent, _o):
            for step in session.steps(until=STEPS):
                for micro in step:
                    session.backward(loss_of(m, micro))
                if step.number == 1:
                    raise KeyError("scheduler")
    except KeyError:
        agent.wait(lambda message: isinstance(message, wire.Errored))
    return next(m for m in agent.messages if isinstance(m, wire.Errored)).step


def changed_after() -> list[Any]:
    """Parameters after the last step, and those in the last checkpoint, where the script changes them in between."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SPARE_CHECKPOINT"] = folder
        with training() as (session, m, _, _o):
            for step in session.steps(until=2):
                for micro in step:
                    session.backward(loss_of(m, micro))
            kept = [p.tolist() for p in m.parameters()]
            with torch.no_grad():
                for p in m.parameters():
                    p.zero_()
        del os.environ["SPARE_CHECKPOINT"]
        [name] = Folder(Path(folder)).complete()
        saved = tensors.read(Path(folder) / str(name) / "rank-0")["model"]
    return [kept, [value.tolist() for value in saved.values()]]


def at_the_end() -> list[Any]:
    """What the coordinator hears of an error of the session's own after the last step."""
    vars(member)["PLAN_DEADLINE"], agent = 0.2, AgentEnd(finish=False)
    m = model()
    try:
        with Session(m, torch.optim.SGD(m.parameters(), lr=RATE)) as session:
            for step in session.steps(until=1):
                for micro in step:
                    session.backward(loss_of(m, micro))
    except PlanTimeout:
        agent.wait(lambda message: isinstance(message, wire.Errored))
    told = next(m for m in agent.messages if isinstance(m, wire.Errored))
    return [told.type, told.ours, told.text]


def raised(scene: Callable[[], None]) -> list[str]:
    """Type and text of what a scene raises."""
    try:
        scene()
    except Exception as error:  # noqa: BLE001  # the test's to judge
        return [type(error).__name__, str(error)]
    return ["nothing", ""]


MISUSE = (
    not_entered,
    outside,
    left_early,
    forgotten,
    twice,
    cleared,
    cleared_in_place,
    graph,
    tiny,
    second,
)
NO_LOSS = {"a_float": float, "several": lambda loss: loss.repeat(3), "detached": lambda loss: loss.detach()}

if __name__ == "__main__":
    found = {scene.__name__: raised(scene) for scene in (*MISUSE, cleared_between_steps)}
    found |= {"again": raised(partial(again, None)), "anew": raised(partial(again, 1))}
    found |= {name: raised(partial(given, loss)) for name, loss in NO_LOSS.items()}
    ran: dict[str, Any] = {
        "plain": plain(),
        "replanned": replanned(),
        "reference": reference(),
        "script_error": script_error(),
    }
    ran |= {"behind": behind(), "changed_after": changed_after(), "at_the_end": at_the_end()}
    print(json.dumps(found | ran), flush=True)  # noqa: T201
    sys.stderr.flush()
    os._exit(0)
