"""The protocol's model, as far as there is time for it at every run; `make model` explores all configurations."""

from __future__ import annotations

from typing import get_args

import pytest

from spare.api import wire
from tests.model.configurations import BROKEN, QUICK, REDUNDANT, SOUND, WALK
from tests.model.explore import explore, walk
from tests.model.heirs import explore_heirs
from tests.model.ranks import explore_ranks
from tests.model.state import OUT, PHASE, At

SLOW = ("allc", "first", "inc", "load", "base", "early", "cas", "reset")
"""Counterexamples that take more than a few seconds to be found."""

SECONDS = 8.0
"""For each of those with too many states; the level that is begun by then is finished, so that it takes about twice."""


@pytest.mark.parametrize("name", QUICK)
def test_no_interleaving_breaks_a_rule(name: str) -> None:
    """Every state of these; each ends finished, halted, or in a wipe-out."""
    found = explore(SOUND[name])

    assert found.violation is None, found.story
    assert found.complete


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name in SOUND if name not in QUICK])
def test_no_interleaving_of_more_breaks_a_rule(name: str) -> None:
    """The first levels of each, as far as SECONDS allow; `make model` goes to the end."""
    found = explore(SOUND[name], seconds=SECONDS)

    assert found.violation is None, found.story


@pytest.mark.parametrize("name", [name for name in BROKEN if name not in SLOW])
def test_each_rule_is_needed(name: str) -> None:
    """Left out, it has a counterexample; the model is no model that finds none."""
    assert explore(BROKEN[name]).violation is not None


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SLOW)
def test_each_rule_is_needed_though_it_takes_long(name: str) -> None:
    """The same for those whose story is longer."""
    assert explore(BROKEN[name]).violation is not None


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", REDUNDANT)
def test_a_rule_that_others_make_needless(name: str) -> None:
    """Kept as a second lock."""
    assert explore(REDUNDANT[name], seconds=SECONDS).violation is None


@pytest.mark.parametrize(("order", "sound"), [("none", False), ("before", True), ("after", True), ("all", True)])
def test_where_the_barrier_inside_a_group_stands(order: str, sound: bool) -> None:
    """Somewhere, else one rank commits a step that its group's other ranks never can."""
    found = explore_ranks(order)

    assert (found.violation is None) is sound, found.story


@pytest.mark.parametrize(
    ("rule", "offers", "sound"),
    [
        ("built", (3, 3), True),
        ("built", (3, 1), True),
        ("built", (3, 3, 3), True),
        ("alone", (3, 3), False),
        ("unequal", (3, 1), False),
    ],
)
def test_all_ranks_of_an_heir_take_over_alike(rule: str, offers: tuple[int, ...], sound: bool) -> None:
    """Whatever of it is withdrawn, late or superseded: they agree first, and compare what they got."""
    found = explore_heirs(rule, offers)

    assert (found.violation is None) is sound, found.story
    assert not sound or (found.complete and found.states > 50)


def test_random_walks_with_everything_at_once() -> None:
    """Too many states for all of them: some, to the end."""
    found = walk(WALK, 60)

    assert found.violation is None, found.story


def test_model_and_program_name_the_same_states() -> None:
    """Every phase of a worker is a state of the model, and the other way round."""
    assert {PHASE[at] for at in At if at is not At.DEAD} == set(get_args(wire.Phase)) - {"done", "commit"}
    assert At.DEAD in OUT
