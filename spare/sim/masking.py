"""Monte-Carlo of the masked failures: how many until the wipe-out, and how deep the steps are until then.

No time passes here: one random group after another fails, none comes back. Compared with the paper's mu and Sbar.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from spare.planner import Placement, WipeOut, healthy, lower_bound, place, reorder, whole_healthy, whole_reorder


def failures_to_wipe_out(placement: Placement, order: Sequence[int]) -> int:
    """The failures up to and including the one that leaves a shard without a host.

    Args:
        placement: who hosts what; its ring must be the identity, as ``place`` without topology makes it.
        order: shape (N,), when each group fails, a permutation of 0 to N - 1.
    """
    n = placement.groups
    # By layers: hosts of all shards in layer j are one rotation of the groups. A shard dies with its last host.
    layers = [[*order[n - offset :], *order[: n - offset]] for offset in placement.offsets]
    return min(map(max, *layers)) + 1 if len(layers) > 1 else min(layers[0]) + 1


def masked(placement: Placement, trials: int, seed: int) -> list[int]:
    """For each trial the number of failures up to the wipe-out; its mean is what mu approximates."""
    rng = Random(seed)
    order = list(range(placement.groups))
    found = []
    for _ in range(trials):
        rng.shuffle(order)
        found.append(failures_to_wipe_out(placement, order))
    return found


def mean_bound(groups: int, wipe_outs: Sequence[int]) -> float:
    """Mean of c(k) over all states before the wipe-outs: what Sbar with the lower bound approximates."""
    sums = [0]
    for k in range(max(wipe_outs)):
        sums.append(sums[-1] + lower_bound(groups, k))
    return sum(sums[count] for count in wipe_outs) / sum(wipe_outs)


def depths_whole(placement: Placement, trials: int, seed: int) -> list[float]:
    """For each trial the mean S over the states from health to the wipe-out, with the paper's three phases."""
    rng, found = Random(seed), list[float]()
    for _ in range(trials):
        schedule, live = whole_healthy(placement), set(range(placement.groups))
        depths = [1]
        try:
            for group in rng.sample(range(placement.groups), placement.groups):
                live.discard(group)
                schedule = whole_reorder(schedule, live).schedule
                depths.append(schedule.depth)
        except WipeOut:
            found.append(sum(depths) / len(depths))
    return found


def least_depth_by_arcs(redundancy: int, alive: Sequence[bool], start: int = 1) -> int:
    """The least S on consecutive stacks: what no order of the stacks can do better than.

    L shards in a row lie on L + r - 1 groups in a row. If more than S shards come on each of these that lives, S layers
    are not enough; if no such row exists they are, by Hall's theorem, because hosts of a shard are neighbours. A row
    that breaks the rule is one whose sum of 1 - S * alive exceeds r - 1, so the largest sum of a row decides.

    Args:
        redundancy: r.
        alive: shape (N,), whether each group lives.
        start: an S that is known to be needed.

    Raises:
        ValueError: not even all r layers are enough, so a shard has no host that lives.
    """
    depth = start
    while depth * sum(alive) < len(alive) or _largest_row([1 - depth * each for each in alive]) > redundancy - 1:
        if depth == redundancy:
            raise ValueError(f"{sum(alive)} live groups with all {redundancy} layers do not cover the shards")
        depth += 1
    return depth


def _largest_row(values: Sequence[int]) -> int:
    """The largest sum of neighbours on a ring; 0 for none (Kadane; a row past the end leaves out a least one)."""
    most = high = least = low = 0
    for value in values:
        high, low = max(0, high + value), min(0, low + value)
        most, least = max(most, high), min(least, low)
    return max(most, sum(values) - least)


def depths_by_arcs(groups: int, redundancy: int, trials: int, seed: int) -> list[float]:
    """As ``depths_whole`` on consecutive stacks, in the same trials, with the least S that is possible."""
    placement, rng, found = place(groups, redundancy, "Consecutive"), Random(seed), list[float]()
    for _ in range(trials):
        order = rng.sample(range(groups), groups)
        moment = {group: number for number, group in enumerate(order)}
        lost = failures_to_wipe_out(placement, [moment[group] for group in range(groups)])
        alive, depths = [True] * groups, [1]
        for group in order[: lost - 1]:
            alive[group] = False
            depths.append(least_depth_by_arcs(redundancy, alive, depths[-1]))
        found.append(sum(depths) / len(depths))
    return found


def depths_micro(placement: Placement, micro_batches: int, trials: int, seed: int) -> list[float]:
    """As ``depths_whole``, with micro-batches."""
    rng, found = Random(seed), list[float]()
    for _ in range(trials):
        schedule, live = healthy(placement, micro_batches), set(range(placement.groups))
        depths = [1.0]
        try:
            for group in rng.sample(range(placement.groups), placement.groups):
                live.discard(group)
                schedule = reorder(schedule, live).schedule
                depths.append(schedule.depth)
        except WipeOut:
            found.append(sum(depths) / len(depths))
    return found


def independent(groups: int, redundancy: int) -> Placement:
    """The placement that comes closest to the independence which the paper's mu assumes (Thm 4.1)."""
    return place(groups, redundancy, "Golomb")
