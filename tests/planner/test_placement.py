"""The placement: who hosts what, by rule."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spare.planner import Placement, place
from tests.planner.oracles import hosts_of


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int]:
    n = draw(st.integers(1, 40))
    return n, draw(st.integers(1, n))


@given(sizes(), st.sampled_from(["Golomb", "Consecutive"]), st.randoms(use_true_random=False))
def test_every_shard_has_r_hosts_and_every_group_r_shards(
    size: tuple[int, int], strategy: str, rng: random.Random
) -> None:
    """Stacks and hosts are each other's inverse in every layer, with and without a topology."""
    n, r = size
    topology = [(rng.choice("abc"), rng.choice("xy")) for _ in range(n)]
    for placement in (place(n, r, strategy), place(n, r, strategy, topology)):
        for number in range(n):
            assert len(set(placement.stack(number))) == len(set(placement.hosts(number))) == r
            assert list(placement.hosts(number)) == hosts_of(placement, number)
            for layer, shard in enumerate(placement.stack(number)):
                assert placement.hosts(shard)[layer] == number


def test_the_convention_is_group_plus_offset() -> None:
    """On the identity ring group g hosts shards (g + offset) mod N, its own number first."""
    placement = place(8, 3, "Consecutive")

    assert placement.stack(7) == (7, 0, 1)
    assert placement.hosts(0) == (0, 7, 6)


def test_a_placement_is_rebuilt_from_its_rule() -> None:
    """(N, r, offsets, ring) is all that an agent needs."""
    original = place(60, 5, topology=[(str(g % 3),) for g in range(60)])
    rebuilt = Placement(60, 5, original.offsets, original.strategy, original.ring)

    assert rebuilt == original
    assert rebuilt.stacks == original.stacks


@pytest.mark.parametrize(("n", "r"), [(64, 4), (200, 5), (200, 9), (600, 10), (1000, 9), (10000, 14)])
def test_golomb_repeats_no_difference_where_there_is_room(n: int, r: int) -> None:
    """Two shards share at most one host: all differences of offsets are distinct mod N."""
    offsets = place(n, r).offsets
    differences = [(a - b) % n for a in offsets for b in offsets if a != b]

    assert len(differences) == len(set(differences))
    assert all(j * n <= r * offset < (j + 1) * n for j, offset in enumerate(offsets))


def test_golomb_falls_back_to_the_fewest_repeats() -> None:
    """N = 8, r = 3 has no three offsets in its arcs with distinct differences; a difference occurs twice at most."""
    offsets = place(8, 3).offsets
    differences = [(a - b) % 8 for a in offsets for b in offsets if a != b]

    assert max(differences.count(d) for d in differences) == 2


def test_consecutive_is_the_papers_rotation() -> None:
    """Offsets 0 to r-1: neighbours share r-1 hosts."""
    placement = place(12, 4, "Consecutive")

    assert placement.offsets == (0, 1, 2, 3)
    assert len(set(placement.hosts(5)) & set(placement.hosts(6))) == 3


def test_the_ring_follows_the_topology_widest_level_first() -> None:
    """Groups are sorted by zone, then rack, then node, then number."""
    topology = [("b", "1", "n"), ("a", "2", "n"), ("a", "1", "z"), ("a", "1", "n"), ("a", "1", "n")]

    assert place(5, 2, topology=topology).ring == (3, 4, 2, 1, 0)


def _zones(n: int, parts: list[int]) -> list[tuple[str, ...]]:
    """Zone of each group: sizes in the proportion of ``parts``, groups dealt at random."""
    names = [f"zone-{z}" for z, part in enumerate(parts) for _ in range(part * n // sum(parts))]
    names += ["zone-0"] * (n - len(names))
    random.Random(n).shuffle(names)
    return [(name,) for name in names]


@pytest.mark.parametrize("parts", [[1, 1], [1, 1, 1], [2, 1, 1], [1, 1, 1, 1, 1], [5, 2, 1]])
@pytest.mark.parametrize(("n", "r"), [(16, 4), (64, 6), (200, 5), (200, 9), (1000, 9)])
def test_a_zone_holds_no_more_than_its_share_of_hosts_and_one(n: int, r: int, parts: list[int]) -> None:
    """A zone of z groups holds at most ceil(r*z/N) + 1 hosts of any shard, for equal and unequal zones."""
    topology = _zones(n, parts)
    placement = place(n, r, topology=topology)
    for zone in {name for (name,) in topology}:
        inside = {g for g in range(n) if topology[g] == (zone,)}
        most = max(len(inside & set(placement.hosts(i))) for i in range(n))

        assert most <= -(-r * len(inside) // n) + 1


def test_two_shards_share_few_hosts_at_every_level_of_overlap() -> None:
    """With distinct differences every pair of shards shares at most one host (Thm 4.1's independence)."""
    placement = place(200, 9)

    assert max(len(set(placement.hosts(a)) & set(placement.hosts(b))) for a, b in combinations(range(200), 2)) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 1), "groups is 0; allowed is 1 or more"),
        ((4, 5), "redundancy is 5; allowed is 1 to groups, 4"),
        ((4, 0), "redundancy is 0"),
        ((4, 2, "golomb"), "strategy is 'golomb'; allowed are Golomb, Consecutive"),
        ((4, 2, "Golomb", [("a",)]), "topology has 1 entries; allowed is one per group, 4"),
    ],
)
def test_place_refuses_by_name_value_and_range(arguments: tuple[object, ...], words: str) -> None:
    """The error says which argument, what it was and what is allowed."""
    with pytest.raises(ValueError, match=words):
        place(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("offsets", "ring"),
    [((0, 0), (0, 1, 2)), ((1, 2), (0, 1, 2)), ((0, 3), (0, 1, 2)), ((0,), (0, 1, 2)), ((0, 1), (0, 1, 1))],
)
def test_a_placement_that_is_none_is_refused(offsets: tuple[int, ...], ring: tuple[int, ...]) -> None:
    """Offsets must be r distinct ones from 0 on, and the ring must hold every group once."""
    with pytest.raises(ValueError, match="allowed"):
        Placement(3, 2, offsets, "Golomb", ring)


@pytest.mark.parametrize("number", [-1, 8])
def test_numbers_outside_the_job_are_refused(number: int) -> None:
    """A negative number does not count from the end."""
    placement = place(8, 3)

    with pytest.raises(IndexError, match="group is"):
        placement.stack(number)
    with pytest.raises(IndexError, match="shard is"):
        placement.hosts(number)
