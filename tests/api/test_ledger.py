"""The audit finds every way in which a step can be wrong, and nothing in steps that are right."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spare.api.ledger import Audit, audit, whose

N, M = 2, 2
EVERY = 0b1111


def enters(step: int, epoch: int, mask: int) -> str:
    """A group enters a reduction."""
    return json.dumps({"step": step, "epoch": epoch, "enters": f"{mask:x}"})


def commits(step: int, epoch: int, computed: int, **more: object) -> str:
    """A group commits."""
    return json.dumps({"step": step, "commits": epoch, "computed": f"{computed:x}"} | more)


def whole_step(step: int, epoch: int = 1) -> dict[str, list[str]]:
    """Two groups, two micro-batches each."""
    return {
        "a": [enters(step, epoch, 0b0011), commits(step, epoch, 0b0011)],
        "b": [enters(step, epoch, 0b1100), commits(step, epoch, 0b1100)],
    }


def both(*parts: dict[str, list[str]]) -> dict[str, list[str]]:
    """Ledgers one after another."""
    return {name: [line for part in parts for line in part.get(name, [])] for name in ("a", "b")}


def judge(ledgers: dict[str, list[str]]) -> Audit:
    """The audit for two groups of two micro-batches."""
    return audit(ledgers, N, M)


def test_right_steps_have_no_problem() -> None:
    """Each micro-batch once, each step once, nothing repeated."""
    found = judge(both(whole_step(0), whole_step(1), whole_step(2, epoch=4)))

    assert found == Audit(steps=3, entries=12, lost=0, doubled=0, repeated=0, problems=())
    assert found.exact


def test_a_step_that_was_begun_again_counts_once() -> None:
    """What entered the reduction that nobody applied, in the same epoch, is neither in the step nor repeated work."""
    again = json.dumps({"step": 0, "begins_again": 1, "computed": "3"})
    first = {"a": [enters(0, 1, 0b0011), again], "b": [enters(0, 1, 0b1110), again]}

    assert judge(both(first, whole_step(0))) == Audit(1, 4, 0, 0, 0, ())


def skipping(step: int, left_out: dict[str, int], entered: dict[str, int]) -> dict[str, list[str]]:
    """A step of which each group says what its sum was left without."""
    return {
        name: [enters(step, 1, mask), commits(step, 1, mask, skipped=f"{left_out[name]:x}")]
        for name, mask in entered.items()
    }


def test_what_all_left_out_alike_is_named_and_not_lost() -> None:
    """Poison: (step, shard, index)."""
    found = judge(skipping(3, {"a": 0b0100, "b": 0b0100}, {"a": 0b0011, "b": 0b1000}))

    assert found.skipped == ((3, 1, 0),)
    assert (found.lost, found.doubled, found.entries) == (0, 0, 3)
    assert not [p for p in found.problems if "never committed" not in p]


@pytest.mark.parametrize(
    ("left_out", "entered"),
    [
        ({"a": 0b0100, "b": 0}, {"a": 0b0011, "b": 0b1000}),  # divided by different numbers
        ({"a": 0b1000, "b": 0b1000}, {"a": 0b0011, "b": 0b1100}),  # skipped, and counted all the same
    ],
)
def test_what_is_not_left_out_by_all_alike_is_found(left_out: dict[str, int], entered: dict[str, int]) -> None:
    """The sum would be divided by another number than its micro-batches."""
    found = judge(skipping(0, left_out, entered))

    assert any("what was skipped is counted, or not the same" in problem for problem in found.problems)


def test_no_ledger_at_all_is_no_problem() -> None:
    """A job of which nothing was committed lost nothing."""
    assert judge({}).exact


def test_a_missing_micro_batch_is_found() -> None:
    """The step, how many, and who entered with what."""
    found = judge({"a": [enters(0, 1, 0b0011), commits(0, 1, 0b0011)], "b": [enters(0, 1, 0b0100)]})

    assert (found.lost, found.doubled, found.entries) == (1, 0, 3)
    assert found.problems == ("step 0: 1 micro-batch missing, 0 more than once: {'a': '3', 'b': '4'}",)


def test_a_double_micro_batch_is_found() -> None:
    """Also when nothing is missing."""
    found = judge({"a": [enters(0, 1, 0b0111), commits(0, 1, 0b0111)], "b": [enters(0, 1, 0b1100)]})

    assert (found.lost, found.doubled, found.entries) == (0, 1, 5)
    assert not found.exact


def test_two_reductions_for_one_step_are_found() -> None:
    """Both were complete, and yet the groups may hold different bits."""
    found = judge(
        {
            "a": [enters(0, 1, 0b0011), enters(0, 2, 0b0011), commits(0, 1, 0b0011)],
            "b": [enters(0, 1, 0b1100), enters(0, 2, 0b1100), commits(0, 2, 0b1100)],
        }
    )

    assert found.problems == ("step 0 was committed from different reductions: {'a': 1, 'b': 2}",)


def test_a_commit_without_a_reduction_is_found() -> None:
    """Nobody entered the reduction that it names."""
    assert judge({"a": [commits(0, 3, 0)]}).lost == N * M


def test_a_second_commit_of_a_step_is_found() -> None:
    """One process takes an optimizer step once per step."""
    ledgers = whole_step(0)
    ledgers["a"].append(commits(0, 1, 0b0011))

    assert "step 0 was committed twice by a" in judge(ledgers).problems


def test_a_step_that_nobody_committed_is_found() -> None:
    """Step 1 of 0 to 2 is in no ledger."""
    assert judge(both(whole_step(0), whole_step(2))).problems == ("step 1 was never committed",)


def test_a_step_that_one_survivor_skipped_is_found() -> None:
    """All or none: who commits the steps before and after committed this one as well."""
    ledgers = both(whole_step(0), whole_step(1), whole_step(2))
    del ledgers["b"][3]

    assert judge(ledgers).problems == ("step 1 was committed by others and skipped by b",)


def test_a_group_that_died_or_joined_skipped_nothing() -> None:
    """Its ledger ends, or begins, in the middle of the job."""
    late = {"b": [enters(0, 1, 0b1100)], "a": [enters(0, 1, 0b0011), commits(0, 1, 0b0011)]}

    assert judge(both(late, whole_step(1))).exact


def test_different_parameters_are_found() -> None:
    """Digests are compared where they are written."""
    found = judge(
        {
            "a": [enters(0, 1, 0b0011), commits(0, 1, 0b0011, digest="x")],
            "b": [enters(0, 1, 0b1100), commits(0, 1, 0b1100, digest="y")],
        }
    )

    assert found.problems == ("parameters differ after step 0: {'a': 'x', 'b': 'y'}",)


def test_survivors_that_repeat_work_are_counted() -> None:
    """What two committing groups both computed, and what one computed again; neither makes the gradient wrong."""
    found = judge(
        {
            "a": [enters(0, 1, 0b0111), commits(0, 1, 0b0111, again=2)],
            "b": [enters(0, 1, 0b1000), commits(0, 1, 0b1100)],
        }
    )

    assert found.repeated == 2 + 1
    assert found.exact


def test_what_the_dead_computed_may_be_computed_by_survivors() -> None:
    """Group b died: its work is lost, and doing it again is the patch."""
    found = judge(
        {
            "a": [enters(0, 1, 0b0011), enters(0, 2, 0b1111), commits(0, 2, 0b1111)],
            "b": [enters(0, 1, 0b1100)],
        }
    )

    assert (found.repeated, found.exact) == (0, True)


@pytest.mark.parametrize("cut", range(1, len(commits(1, 1, 0b1100))))
def test_a_torn_last_line_was_not_written(cut: int) -> None:
    """The process died while it wrote: the step is the others'."""
    ledgers = both(whole_step(0), whole_step(1))
    ledgers["b"][-1] = ledgers["b"][-1][:cut]

    assert judge(ledgers) == Audit(steps=2, entries=8, lost=0, doubled=0, repeated=0, problems=())


def test_scripted_failures_are_no_entries() -> None:
    """They share the file, and bytes are as good as text."""
    lines = [json.dumps({"fault": "kill", "step": 0, "point": "step", "at": 1.0}).encode()]
    ledgers: dict[str, list[str | bytes]] = {"a": [*whole_step(0)["a"], *lines], "b": [*whole_step(0)["b"]]}

    assert audit(ledgers, N, M).exact


@settings(deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 5),
    st.data(),
)
def test_lost_and_doubled_are_counted_micro_batch_by_micro_batch(
    n: int, m: int, steps: int, data: st.DataObject
) -> None:
    """Against plain counting, for any groups that entered with any sets."""
    ledgers: dict[str, list[str]] = {f"g{g}": [] for g in range(n)}
    lost = doubled = entries = 0
    for step in range(steps):
        masks = [data.draw(st.integers(0, (1 << n * m) - 1)) for _ in range(n)]
        for g, mask in enumerate(masks):
            ledgers[f"g{g}"] += [enters(step, 1, mask), commits(step, 1, 0)]
        for bit in range(n * m):
            count = sum(mask >> bit & 1 for mask in masks)
            lost, doubled, entries = lost + (count == 0), doubled + max(0, count - 1), entries + count
    found = audit(ledgers, n, m)

    assert (found.steps, found.lost, found.doubled, found.entries) == (steps, lost, doubled, entries)
    assert found.exact == (lost == doubled == 0)


def test_each_rank_of_the_groups_is_audited_by_itself() -> None:
    """Rank 1 of one group reduces with rank 1 of the other: the same micro-batches again, and none of them twice."""
    a, b = whole_step(0)["a"], whole_step(0)["b"]
    right = {"group-0.0-x": a, "group-0.1-x": a, "group-1.0-x": b, "group-1.1-x": b}

    assert judge(right) == Audit(steps=1, entries=4, lost=0, doubled=0, repeated=0, problems=())

    lost = judge(right | {"group-1.1-x": []})
    assert lost.lost == 2
    assert "rank 1: step 0: 2 micro-batches missing" in lost.problems[0]


def test_a_step_that_only_some_ranks_committed_is_a_problem() -> None:
    """All or none holds for the ranks of a group, too."""
    one, two = both(whole_step(0)), both(whole_step(0), whole_step(1))
    found = judge({"group-0.0-x": two["a"], "group-0.1-x": one["a"], "group-1.0-x": two["b"], "group-1.1-x": one["b"]})

    assert found.problems == ("step 1 was committed by other ranks, and by no group's rank 1",)


def test_a_ledger_s_name_tells_group_and_rank() -> None:
    """Without a rank it is of a group of one."""
    assert whose("group-12-0123456789ab") == (12, 0)
    assert whose("group-12.3-0123456789ab") == (12, 3)
    with pytest.raises(ValueError, match="no name of a ledger"):
        whose("worker-1")


def begins(origin: int, begun_from: str) -> str:
    """A group begins the history of a start or restart."""
    return json.dumps({"origin": origin, "from": begun_from})


def begun(origin: int, begun_from: str) -> dict[str, list[str]]:
    """Both do."""
    return {name: [begins(origin, begun_from)] for name in ("a", "b")}


def name(origin: int, step: int) -> str:
    """A checkpoint."""
    return f"epoch-{origin:08d}-00000000/step-{step:010d}"


def test_after_a_restart_the_newest_history_counts() -> None:
    """Steps 2 and 3 are given up and computed again; a step that is twice in one history is still wrong."""
    first = both(*(whole_step(step) for step in range(4)))
    second = both(begun(3, name(1, 2)), *(whole_step(step, epoch=3) for step in range(2, 5)))

    found = judge(both(first, second))

    assert found == Audit(steps=5, entries=20, lost=0, doubled=0, repeated=0, problems=(), abandoned=2)
    assert "committed twice" in str(judge(both(first, second, whole_step(4, epoch=3))).problems)


def test_a_restart_of_a_restart() -> None:
    """Each history goes back as far as its checkpoint says, also beyond the one before."""
    parts = [*(whole_step(step) for step in range(6)), begun(3, name(1, 4)), whole_step(4, 3), whole_step(5, 3)]
    parts += [begun(5, name(1, 2)), *(whole_step(step, 5) for step in (2, 3))]

    found = judge(both(*parts))

    assert (found.steps, found.abandoned, found.problems) == (4, 6, ())


def test_a_run_that_goes_on_from_another_begins_where_that_one_ended() -> None:
    """And nowhere else: a step between the checkpoint and the first commit is lost."""
    assert judge(both(begun(2, name(1, 7)), whole_step(7, 2), whole_step(8, 2))).exact
    found = judge(both(begun(2, name(1, 7)), whole_step(8, 2)))
    assert "step 7 was never committed" in found.problems
    assert "begins with step 8" in str(found.problems)


def test_a_restart_that_never_committed_leaves_what_its_checkpoint_holds() -> None:
    """The job ended right then."""
    found = judge(both(*(whole_step(step) for step in range(4)), begun(3, name(1, 3))))

    assert (found.steps, found.abandoned, found.problems) == (3, 1, ())
