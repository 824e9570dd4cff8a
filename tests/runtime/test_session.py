"""What a training script sees of its session: one group alone, so that every sum is its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from spare_runtime import Session

SCRIPT, ROOT = "tests.runtime.session_script", Path(__file__).parents[2]
M, STEPS = 3, 4
MODEL = torch.nn.Linear(2, 1)


@pytest.fixture(scope="module")
def run() -> dict[str, Any]:
    """What came of all scenes."""
    ran = subprocess.run([sys.executable, "-m", SCRIPT], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert ran.stdout, ran.stderr[-3000:]
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_a_session_trains_as_a_plain_loop_does(run: dict[str, Any]) -> None:
    """Bit for bit, dropout included."""
    assert run["plain"]["weights"] == run["reference"]


def test_every_micro_batch_comes_once_and_in_order(run: dict[str, Any]) -> None:
    """With the numbers of its samples, which go on from step to step."""
    expected = [[s, 0, i, 2 * (s * M + i), 2 * (s * M + i) + 2] for s in range(STEPS) for i in range(M)]

    assert run["plain"]["micros"] == expected


def test_a_session_tells_where_it_is(run: dict[str, Any]) -> None:
    """Group, groups, micro-batches, epoch, steps; and the loss once there is one."""
    assert run["plain"]["facts"] == [0, 1, M, 1, 0]
    assert run["plain"]["first"] is None
    assert all(isinstance(loss, float) for loss in run["plain"]["losses"])


def test_the_coordinator_hears_of_steps(run: dict[str, Any]) -> None:
    """From hello to done, in order. Of steps as short as these not each is told: done tells the last one."""
    kinds = run["plain"]["kinds"]

    assert [k for k in kinds if k != "committed"] == ["hello", "running", "done"]
    assert kinds[2] == "committed"
    assert kinds.count("committed") <= STEPS


def test_plans_in_mid_step_change_nothing_of_the_result(run: dict[str, Any]) -> None:
    """The urgent one is acted on before the next micro-batch, the boundary one at the commit; nothing is repeated."""
    found = run["replanned"]

    assert found["micros"] == [[s, i] for s in range(STEPS) for i in range(M)]
    assert found["epochs"] == [1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3]
    assert found["weights"] == run["reference"]
    assert [k for k in found["kinds"] if k != "committed"] == ["hello", "running", "running", "running", "done"]


@pytest.mark.parametrize(
    ("scene", "named"),
    [
        ("not_entered", "use the session inside `with Session(...) as session`"),
        ("outside", "session.backward() outside of `for micro in step`"),
        ("left_early", "the loop left step 0 before all its micro-batches were computed"),
        ("forgotten", "micro-batch 1 of shard 0 was not given to session.backward()"),
        ("twice", "micro-batch 0 of shard 0 was given to session.backward() before: add the parts of its loss"),
        ("cleared", "in the middle of a step (zero_grad()?)"),
        ("cleared_in_place", "in the middle of a step (zero_grad(set_to_none=False)"),
        ("graph", "create_graph"),
        ("a_float", "a tensor of one number that depends on the parameters, not float"),
        ("several", "not one of the sizes [3]"),
        ("detached", "not one that was detached, or computed without gradients"),
        ("again", "step 0 is not in flight; committed so far: 1"),
        ("anew", "step 0 is iterated anew, and micro-batch 0 of shard 0 is in its sum already"),
        ("second", "this process has had a session before, and a script opens one"),
    ],
)
def test_misuse_is_named(run: dict[str, Any], scene: str, named: str) -> None:
    """Whatever cannot be exactly once is an error at once, never a wrong gradient."""
    kind, text = run[scene]

    assert kind == "SessionMisuse"
    assert named in text


def test_micro_batches_have_samples(run: dict[str, Any]) -> None:
    """A size below 1 is refused before anything is connected."""
    assert run["tiny"] == ["ValueError", "micro_batch_size must be at least 1, not 0"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"optimizer": None}, "optimizer of Session must be one or several, each with step(), not NoneType None"),
        ({"optimizer": iter(MODEL.parameters())}, "optimizer of Session must be one or several, each with step()"),
        ({"optimizer": torch.optim.LBFGS(MODEL.parameters())}, "one whose step() needs no closure, not LBFGS"),
        ({"model": [MODEL]}, "model of Session must be a torch.nn.Module, not list"),
        ({"micro_batch_size": "16"}, "micro_batch_size of Session must be a whole number, not str '16'"),
        ({"micro_batch_size": 2.5}, "micro_batch_size of Session must be a whole number, not float 2.5"),
        ({"seed": True}, "seed of Session must be a whole number, not bool True"),
        ({"on_gradients": 1.0}, "on_gradients of Session must be a function, not float 1.0"),
    ],
)
def test_arguments_of_another_kind_are_refused_where_they_are_given(arguments: dict[str, Any], named: str) -> None:
    """Not in the first commit, in a line that no script has."""
    given = {"model": MODEL, "optimizer": torch.optim.SGD(MODEL.parameters(), lr=0.1), **arguments}

    with pytest.raises(TypeError, match=re.escape(named)):
        Session(**given)


def test_clearing_gradients_between_steps_is_fine(run: dict[str, Any]) -> None:
    """Both ways: the line need not be taken out of a script."""
    assert run["cleared_between_steps"] == ["nothing", ""]


def test_an_exception_in_the_loop_is_told_with_its_micro_batch(run: dict[str, Any]) -> None:
    """Type, text, step, shard and index, as the script's own error; and it goes on to the script."""
    found = run["script_error"]

    assert (found["type"], found["step"], found["micro"], found["ours"]) == ("KeyError", 1, [0, 2], False)
    assert "caf" in found["text"]
    assert found["kinds"][-1] == "errored"


def test_what_fails_behind_a_commit_is_told_with_the_step_that_it_belongs_to(run: dict[str, Any]) -> None:
    """The number that the script's own loop has then."""
    assert run["behind"] == 1


def test_an_error_after_the_last_step_is_told(run: dict[str, Any]) -> None:
    """As the runtime's own, which it is: the exit code alone would make it the script's."""
    kind, ours, text = run["at_the_end"]

    assert (kind, ours) == ("PlanTimeout", True)
    assert "for the other groups to finish" in text


def test_the_last_checkpoint_is_of_the_last_step(run: dict[str, Any]) -> None:
    """And not of what the script makes of the model after its loop, averaged weights say: a run may go on from it."""
    kept, saved = run["changed_after"]

    assert saved == kept
