"""What members make of each other's facts: a table of cases, and properties over all reachable facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spare.planner import Placement, WipeOut, check_patch, check_ranges, healthy, mask_of, place, ranges_of, reorder
from spare_runtime.regroup import Facts, Outcome, outcome

PLACE, M = place(4, 2), 2
EVERY = (1 << 4 * M) - 1


def at(group: int, committed: int, held: int = 0, reduced: int | None = None, whole: bool = True) -> Facts:
    """Facts with the checksum that all have at this step."""
    return Facts(group, committed, reduced, whole, held, f"sum-at-{committed}")


def decide(*facts: Facts, placement: Placement = PLACE, m: int = M) -> dict[int, Outcome]:
    """The outcome at every member."""
    known = {f.group: f for f in facts}
    plan = reorder(healthy(placement, m), known).schedule
    return {g: outcome(g, known, placement, m, mask_of(plan.ranges(g), m)) for g in known}


def assigned(found: Mapping[int, Outcome]) -> int:
    """Everything that is given to somebody; nothing may be given twice."""
    union = 0
    for o in found.values():
        assert union & o.assigned == 0
        union |= o.assigned
    return union


def test_at_the_start_the_schedule_holds() -> None:
    """Nobody holds anything, so the plan's own schedule is the whole step."""
    found = decide(*(at(g, 0) for g in range(4)))

    assert assigned(found) == EVERY
    assert all((o.step, o.commit, o.load_from, o.align) == (0, False, None, None) for o in found.values())


def test_what_the_dead_held_is_computed_by_hosts() -> None:
    """Group 3 is gone: only its micro-batches are given out, and the others keep what they have."""
    dead = 0b11000000
    found = decide(at(0, 5, 0b00000011), at(1, 5, 0b00001100), at(2, 5, 0b00110000))

    assert assigned(found) == dead
    assert all(o.held and not o.commit and o.step == 5 for o in found.values())
    assert check_patch(PLACE, M, [0, 1, 2], dead, {g: ranges_of(o.assigned, M) for g, o in found.items()}) == ()


def test_who_is_one_behind_commits_what_it_holds_reduced() -> None:
    """It passed the reduction and not the barrier; somebody did, and computes the next step already."""
    found = decide(at(0, 6, held=0b1), at(1, 5, held=0b1100, reduced=3), at(2, 5, held=0b110000, reduced=3))

    assert [o.commit for o in found.values()] == [False, True, True]
    assert {o.step for o in found.values()} == {6}
    assert [o.held for o in found.values()] == [True, False, False], "what was held for step 5 is in its gradient"
    assert assigned(found) == EVERY & ~0b1


def test_all_who_hold_the_same_reduction_commit_it() -> None:
    """Somebody dead may have committed it, so everybody does."""
    found = decide(*(at(g, 5, held=1 << g, reduced=3) for g in (0, 1, 2)))

    assert all(o.commit and o.step == 6 and not o.held for o in found.values())
    assert assigned(found) == EVERY


def test_results_of_different_reductions_are_not_committed() -> None:
    """Nobody can have committed: in the later reduction one entered that then lacked the earlier result."""
    found = decide(at(0, 5, 0b11, reduced=3), at(1, 5, 0b1100, reduced=4), at(2, 5, 0b110000, reduced=4))

    assert not any(o.commit for o in found.values())
    assert all(o.held and o.step == 5 for o in found.values())
    assert assigned(found) == 0b11000000


def test_one_member_without_the_result_stops_the_commit() -> None:
    """The barrier needs all: who lacks the sum was not there, so nobody passed."""
    found = decide(at(0, 5, 0b11, reduced=3), at(1, 5, 0b1100), at(2, 5, 0b11110000, reduced=3))

    assert not any(o.commit for o in found.values())
    assert assigned(found) == 0


@pytest.mark.parametrize("reduced", [None, 3])
def test_a_joiner_counts_for_nothing_and_gets_nothing(reduced: int | None) -> None:
    """Not for the newest step, not for `all hold it`, not as a host; it loads from a member at the newest step."""
    found = decide(
        at(0, 0, whole=False), at(1, 4, 0b11, reduced=2), at(2, 5, 0b1100, reduced), at(3, 5, 0b110000, reduced)
    )

    assert found[0].assigned == 0
    assert not found[0].commit
    assert not found[0].held
    assert found[0].load_from == 2
    assert {o.step for o in found.values()} == {5}
    assert assigned(found) == EVERY & ~0b111100


def test_joiners_do_not_stop_the_others_from_committing() -> None:
    """All with state hold the same reduction, whatever the joiner says."""
    found = decide(at(0, 0, whole=False), *(at(g, 5, reduced=3) for g in (1, 2, 3)))

    assert [o.commit for o in found.values()] == [False, True, True, True]
    assert {o.step for o in found.values()} == {6}
    assert found[0].assigned == 0
    assert assigned(found) == EVERY


def test_nobody_with_state_is_a_wipe_out() -> None:
    """Only a checkpoint helps; nobody commits or computes."""
    found = decide(*(at(g, 0, whole=False) for g in (0, 1, 3)))

    assert all(o.wiped_out and not o.commit and o.assigned == 0 for o in found.values())


def test_a_missing_micro_batch_without_a_host_is_a_wipe_out() -> None:
    """Both hosts of a shard are gone; at all survivors alike."""
    shard = PLACE.stack(0)[0]
    survivors = [g for g in range(4) if g not in PLACE.hosts(shard)]
    facts = {g: at(g, 5, held=1 << shard * M) for g in survivors[:1]} | {g: at(g, 5) for g in survivors[1:]}

    for g in survivors:
        with pytest.raises(WipeOut, match=f"shard {shard}"):
            outcome(g, facts, PLACE, M, 0)


def test_parameters_that_differ_are_aligned_before_the_first_step_only() -> None:
    """Later it is a defect, and the text says who has what."""
    first = decide(at(0, 0), replace(at(1, 0), checksum="other"), at(2, 0))
    later = decide(at(0, 7), replace(at(1, 7), checksum="other"), at(2, 7))

    assert all(o.align is not None and o.diverged is None for o in first.values())
    assert all(o.align is None for o in later.values())
    for o in later.values():
        assert o.diverged == "parameters differ after 7 steps: groups 0, 2 have sum-at-7; groups 1 have other"


def test_who_is_behind_is_not_taken_for_diverged() -> None:
    """Parameters of one step earlier are other ones, rightly."""
    assert all(o.diverged is None for o in decide(at(0, 6), at(1, 5, reduced=3), at(2, 6)).values())


@given(
    st.integers(0, 999), st.integers(0, 9**9), st.none() | st.integers(0, 999), st.booleans(), st.integers(0, 1 << 4000)
)
def test_facts_survive_the_store(group: int, committed: int, reduced: int | None, whole: bool, held: int) -> None:
    """As one line of text, however many micro-batches are held."""
    facts = Facts(group, committed, reduced, whole, held, "0123456789abcdef")

    assert Facts.of_text(facts.to_text()) == facts
    assert "\n" not in facts.to_text()


def test_what_a_group_holds_is_said_in_few_words() -> None:
    """Every member reads what all say: of 1,000 groups a mask for each would be gigabytes for the leader to send."""
    schedule = healthy(place(1000, 9), 64)
    held = 0
    for shard, first, count in schedule.ranges(500):
        held |= ((1 << count) - 1) << (shard * 64 + first)

    assert held.bit_count() == 64
    assert len(Facts(500, 7, None, True, held, "0123456789abcdef").to_text()) < 300


# --- properties -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """Facts as the protocol can produce them."""

    placement: Placement
    m: int
    facts: dict[int, Facts]

    def outcomes(self) -> dict[int, Outcome] | WipeOut:
        """At every member; all of them or none see a wipe-out."""
        try:
            return decide(*self.facts.values(), placement=self.placement, m=self.m)
        except WipeOut as wipe_out:
            for g in self.facts:
                with pytest.raises(WipeOut):
                    outcome(g, self.facts, self.placement, self.m, 0)
            return wipe_out


def covered(placement: Placement, live: Iterable[int]) -> bool:
    """Each shard has a live host: no plan is made otherwise."""
    return all(set(placement.hosts(shard)) & set(live) for shard in range(placement.groups))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Members at c or one behind with W of c; disjoint held sets per step; joiners; results of up to two reductions."""
    n = draw(st.integers(1, 7))
    placement, m = place(n, draw(st.integers((n + 1) // 2, n))), draw(st.integers(1, 4))
    live = sorted(draw(st.sets(st.integers(0, n - 1), min_size=1)))
    assume(covered(placement, live))
    kinds = st.sampled_from(["newest", "newest", "newest", "behind", "joiner"])
    kind = {g: draw(kinds) for g in live}
    if "newest" not in kind.values() and "behind" in kind.values():
        kind = {g: "newest" if k == "behind" else k for g, k in kind.items()}
    c = draw(st.integers(1, 9))
    owner = {step: [draw(st.integers(-2, n - 1)) for _ in range(n * m)] for step in (c - 1, c)}
    uniform = draw(st.booleans())
    results = st.just(7) if uniform else st.sampled_from([None, 6, 7])
    facts = {}
    for g in live:
        step = c if kind[g] == "newest" else c - 1
        held = sum(1 << bit for bit, who in enumerate(owner[step]) if who == g)
        if kind[g] == "joiner":
            facts[g] = at(g, 0, whole=False)
        elif kind[g] == "behind":
            facts[g] = at(g, c - 1, held, reduced=5)
        else:
            facts[g] = at(g, c, held, reduced=draw(results))
    return World(placement, m, facts)


def held_and_step(world: World, found: Mapping[int, Outcome]) -> tuple[dict[int, int], int]:
    """What counts of each member's local sum, and the step that all agree on."""
    steps = {o.step for o in found.values()}
    assert len(steps) == 1, "members disagree about the step in flight"
    return {g: world.facts[g].held if o.held else 0 for g, o in found.items()}, steps.pop()


@given(worlds())
def test_the_step_is_complete_and_nothing_is_computed_twice(world: World) -> None:
    """What is held and what is given out are disjoint, and together the whole step, by the judge of the planner."""
    found = world.outcomes()
    whole = [g for g, f in world.facts.items() if f.whole]
    if isinstance(found, WipeOut) or not whole:
        return
    held, _ = held_and_step(world, found)
    union = 0
    for mask in held.values():
        assert union & mask == 0
        union |= mask
    missing = (1 << world.placement.groups * world.m) - 1 & ~union
    given_out = {g: ranges_of(o.assigned, world.m) for g, o in found.items() if o.assigned}

    assert assigned(found) == missing, "a held micro-batch is given out, or one is missing"
    assert set(given_out) <= set(whole), "a joiner is given something"
    assert check_patch(world.placement, world.m, whole, missing, given_out) == ()
    if not union:
        assert check_ranges(world.placement, world.m, given_out) == ()


@given(worlds(), st.data())
def test_poison_is_given_to_nobody_unless_somebody_holds_it(world: World, data: st.DataObject) -> None:
    """All leave out the same of the step in flight; what is in a sum already stays; the rest is complete as ever."""
    n = world.placement.groups * world.m
    skips = data.draw(st.dictionaries(st.integers(0, 11), st.integers(0, (1 << n) - 1), max_size=12))
    schedules = {
        g: mask_of(reorder(healthy(world.placement, world.m), world.facts).schedule.ranges(g), world.m)
        for g in world.facts
    }
    try:
        found = {g: outcome(g, world.facts, world.placement, world.m, schedules[g], skips) for g in world.facts}
    except WipeOut:
        return
    if not any(f.whole for f in world.facts.values()):
        return
    held, step = held_and_step(world, found)
    union = 0
    for mask in held.values():
        union |= mask
    left_out = skips.get(step, 0) & ~union

    assert {o.skipped for o in found.values()} == {left_out}
    assert assigned(found) == (1 << n) - 1 & ~union & ~left_out


@given(worlds())
def test_steps_are_committed_where_the_model_says(world: World) -> None:
    """The exchange of the protocol's model, written down once more from the model's text."""
    found = world.outcomes()
    if isinstance(found, WipeOut):
        return
    full = [f for f in world.facts.values() if f.whole]
    if not full:
        assert all(o.wiped_out for o in found.values())
        return
    c = max(f.committed for f in full)
    behind = [f.group for f in full if f.committed < c]
    up = not behind and all(f.reduced is not None for f in full) and len({f.reduced for f in full}) == 1
    source = full[0].group if up else next(f.group for f in full if f.committed == c)
    for g, o in found.items():
        mine = world.facts[g]
        assert o.step == c + up
        assert o.commit == (mine.whole and (g in behind or up))
        assert o.held == (mine.whole and mine.committed == o.step)
        assert o.load_from == (None if mine.whole else source)
        assert (o.align, o.diverged, o.wiped_out) == (None, None, False)


@given(worlds())
def test_who_commits_holds_the_result_and_ends_at_the_common_step(world: World) -> None:
    """After the outcome is carried out everybody with state has committed the same number of steps."""
    found = world.outcomes()
    if isinstance(found, WipeOut):
        return
    for g, o in found.items():
        mine = world.facts[g]
        if o.commit:
            assert mine.reduced is not None
        if mine.whole:
            assert mine.committed + o.commit == o.step


@given(worlds(), st.data())
def test_another_failure_while_patching_repeats_nothing(world: World, data: st.DataObject) -> None:
    """Members compute a part of what they were given, one dies, and the next exchange gives out the rest only."""
    found = world.outcomes()
    whole = [g for g, f in world.facts.items() if f.whole]
    if isinstance(found, WipeOut) or len(whole) < 2:
        return
    held, step = held_and_step(world, found)
    dead = data.draw(st.sampled_from(whole))
    assume(covered(world.placement, set(whole) - {dead}))
    later = {}
    for g in set(whole) - {dead}:
        done = found[g].assigned & data.draw(st.integers(0, (1 << world.placement.groups * world.m) - 1))
        later[g] = at(g, step, held[g] | done)
    again = World(world.placement, world.m, dict(sorted(later.items()))).outcomes()
    assert not isinstance(again, WipeOut)
    union = 0
    for f in later.values():
        union |= f.held

    assert all(o.held and o.step == step for o in again.values())
    assert assigned(again) == (1 << world.placement.groups * world.m) - 1 & ~union


# --- a step that is begun again, because its sum did not fit (docs/exact-mode.md) -----------------------------------


def test_all_who_hold_a_sum_that_does_not_fit_begin_again() -> None:
    """The step stays the same, nothing that was held counts, and all of it is computed again."""
    found = decide(*(replace(at(g, 5, held=1 << g, reduced=3), overflown=True) for g in (0, 1, 2)))

    assert all(o.commit and o.step == 5 and not o.held for o in found.values())
    assert assigned(found) == EVERY


def test_who_has_not_begun_again_yet_is_behind() -> None:
    """It holds the sum that did not fit; what it held for it is dropped, what the others hold by now is kept."""
    newer = replace(at(0, 5, held=0b1), begun_again=1)
    found = decide(newer, *(replace(at(g, 5, held=0b11 << 2 * g, reduced=3), overflown=True) for g in (1, 2)))

    assert [o.commit for o in found.values()] == [False, True, True]
    assert [o.held for o in found.values()] == [True, False, False]
    assert {o.step for o in found.values()} == {5}
    assert assigned(found) == EVERY & ~0b1


def test_a_joiner_loads_from_who_has_begun_again() -> None:
    """Its scales are the newer ones."""
    facts = [replace(at(0, 5, reduced=3), overflown=True), replace(at(1, 5), begun_again=1), at(2, 0, whole=False)]

    assert decide(*facts, placement=place(4, 3))[2].load_from == 1


def test_groups_that_sum_in_different_ways_are_refused() -> None:
    """A joiner as well; the text says who does what."""
    facts = [replace(at(g, 5), reduction="exact") for g in (0, 1, 2)]
    found = decide(*facts, replace(at(3, 0, whole=False), reduction="float"))

    assert all(o.mixed is not None for o in found.values())
    assert "groups 0, 1, 2 have reduction='exact'; groups 3 have reduction='float'" in str(found[0].mixed)
    assert decide(*facts)[0].mixed is None


@given(st.builds(Facts, *[st.integers(0, 9)] * 2, st.none() | st.integers(0, 9), st.booleans(), st.integers(0, 1 << 99),
       *[st.text(max_size=5)] * 2, st.integers(0, 3), st.booleans(), st.sampled_from(["float", "exact"])))  # fmt: skip
def test_facts_survive_their_text(facts: Facts) -> None:
    """Large masks included."""
    assert Facts.of_text(facts.to_text()) == facts
