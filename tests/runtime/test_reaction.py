"""What a worker does about a plan: the cases of the protocol, one by one and all together."""

from __future__ import annotations

import itertools

import pytest

from spare_runtime.reaction import Reaction, reaction
from tests.runtime.plans import UID, plan

IGNORE, KEEP, ACT, STOP = Reaction.IGNORE, Reaction.KEEP, Reaction.ACT, Reaction.STOP

COMPUTING = {"epoch": 4, "seen": 4, "admission": 1, "waiting": False}
FAILED = COMPUTING  # a failed collective waits for a base above its epoch, and for nothing else
IN_RENDEZVOUS = COMPUTING | {"waiting": True}
IDLE = {"epoch": 0, "seen": 0, "admission": None, "waiting": True}


@pytest.mark.parametrize(
    ("state", "epoch", "base", "admission", "expected"),
    [
        pytest.param(IDLE, 1, 1, 1, ACT, id="the first plan starts the worker"),
        pytest.param(IDLE, 7, 3, 7, ACT, id="a joiner acts on the boundary plan that admits it"),
        pytest.param(IDLE, 7, 7, None, IGNORE, id="who was never in waits for a plan that admits it"),
        pytest.param(COMPUTING, 5, 5, 1, ACT, id="an urgent plan is acted on in mid-step"),
        pytest.param(COMPUTING, 6, 5, 1, ACT, id="a boundary plan after an urgent one that was missed is urgent"),
        pytest.param(COMPUTING, 5, 4, 1, KEEP, id="a boundary plan waits for the commit"),
        pytest.param(COMPUTING, 5, 2, 1, KEEP, id="also with an old base"),
        pytest.param(COMPUTING, 5, 4, 5, ACT, id="another admission epoch: the state is dropped at once"),
        pytest.param(COMPUTING, 5, 5, None, STOP, id="removed by an urgent plan"),
        pytest.param(COMPUTING, 5, 4, None, KEEP, id="let go by a boundary plan, at the commit"),
        pytest.param(COMPUTING, 4, 4, 1, IGNORE, id="the same plan again"),
        pytest.param(COMPUTING, 3, 3, 1, IGNORE, id="an older plan"),
        pytest.param(COMPUTING, 3, 3, None, IGNORE, id="an older plan cannot remove anybody"),
        pytest.param(COMPUTING | {"seen": 6}, 5, 5, 1, IGNORE, id="older than the newest that is known"),
        pytest.param(COMPUTING | {"seen": 6}, 7, 5, 1, ACT, id="newer than the newest, urgent for who is behind"),
        pytest.param(FAILED, 5, 4, 1, KEEP, id="a boundary plan does not answer a failure"),
        pytest.param(FAILED, 5, 5, 1, ACT, id="an urgent plan answers a failure"),
        pytest.param(IN_RENDEZVOUS, 5, 4, 1, ACT, id="who waits moves on to a boundary plan"),
        pytest.param(IN_RENDEZVOUS, 5, 5, 1, ACT, id="who waits moves on to an urgent plan"),
        pytest.param(IN_RENDEZVOUS, 5, 4, None, STOP, id="who waits is let go at once"),
        pytest.param(IN_RENDEZVOUS, 4, 4, 1, IGNORE, id="who waits ignores the plan that it waits in"),
    ],
)
def test_each_case(
    state: dict[str, int | bool | None], epoch: int, base: int, admission: int | None, expected: Reaction
) -> None:
    """The rules of the regroup, as a table."""
    told = plan(epoch, base, admission)

    assert reaction(told, uid=UID, **state) is expected  # type: ignore[arg-type]


@pytest.mark.parametrize("epoch", [1, 5, 9])
def test_another_incarnation_s_plan_is_not_for_us(epoch: int) -> None:
    """Neither does it start us, nor wake us from a wait, nor remove us."""
    for state in (COMPUTING, IN_RENDEZVOUS, IDLE):
        for admission in (1, epoch, None):
            told = plan(epoch, epoch, admission, uid="incarnation-b")

            assert reaction(told, uid=UID, **state) is IGNORE


def as_the_model_says(number: int, base: int, admission: int | None, state: dict[str, int | bool | None]) -> Reaction:
    """The delivery of a plan, written down as in the model of the protocol."""
    epoch, seen = state["epoch"], state["seen"]
    assert isinstance(epoch, int)
    assert isinstance(seen, int)
    idle = epoch == 0
    if number <= seen:
        return IGNORE
    if admission is None and idle:
        return IGNORE
    urgent = base > epoch
    if urgent or idle or state["waiting"] or (admission is not None and admission != state["admission"]):
        return ACT if admission is not None else STOP
    return KEEP


def test_all_states_and_plans_agree_with_the_model() -> None:
    """Every plan up to epoch 4 in every state that can be."""
    for epoch, waiting in itertools.product(range(4), (True, False)):
        if epoch == 0 and not waiting:
            continue
        for seen, mine in itertools.product(range(epoch, 4), range(1, epoch + 1) if epoch else (None,)):
            state = {"epoch": epoch, "seen": seen, "admission": mine, "waiting": waiting}
            for number in range(1, 5):
                for base, admission in itertools.product(range(1, number + 1), (None, *range(1, number + 1))):
                    told = plan(number, base, admission)

                    assert reaction(told, uid=UID, **state) is as_the_model_says(  # type: ignore[arg-type]
                        number, base, admission, state
                    ), (state, number, base, admission)
