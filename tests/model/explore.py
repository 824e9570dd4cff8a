"""Every state that can be reached, breadth first, so that the first violation found has the shortest story."""

from __future__ import annotations

import collections
import gc
import random
import time
from dataclasses import dataclass, field

from tests.model.moves import Moves
from tests.model.state import Options, State, Violation

_MOST = 6_000_000
"""States of one depth after which there is no memory for more."""


@dataclass
class Explored:
    """What came of a configuration."""

    violation: str | None = None
    story: list[str] = field(default_factory=list)
    """What led to it."""
    complete: bool = False
    """All states were seen."""
    states: int = 0
    moves: int = 0
    depth: int = 0
    seconds: float = 0.0
    ends: dict[str, int] = field(default_factory=dict)


def explore(options: Options, seconds: float = 1e9) -> Explored:
    """All states of a configuration, or those reached in so many seconds."""
    moves, found, began = Moves(options), Explored(), time.perf_counter()
    first = moves.initial()
    seen, parents = {hash(first)}, [(-1, "start")]
    frontier: list[tuple[int, State]] = [(0, first)]
    gc.disable()  # nothing here is cyclic: half the time
    try:
        while frontier and found.violation is None:
            following: list[tuple[int, State]] = []
            for i, s in frontier:
                found.violation = _from(moves, s, i, seen, parents, following, found)
                if found.violation is not None:
                    found.story = _story(parents, i)
                    break
            frontier = following
            found.depth += 1
            if time.perf_counter() - began > seconds or len(following) > _MOST:
                break
        else:
            found.complete = found.violation is None
    finally:
        gc.enable()
    found.states, found.seconds = len(seen), time.perf_counter() - began
    return found


def _from(
    moves: Moves,
    s: State,
    i: int,
    seen: set[int],
    parents: list[tuple[int, str]],
    following: list[tuple[int, State]],
    found: Explored,
) -> str | None:
    """Look at what may follow one state; what is wrong, if something is."""
    try:
        out = moves.of(s)
    except Violation as violation:
        return str(violation)
    if all(move.fault for move in out):
        end = moves.good_end(s)
        if end is None:
            return stuck(s)
        found.ends[end] = found.ends.get(end, 0) + 1
    for label, _, after in out:
        found.moves += 1
        key = hash(after)
        if key not in seen:
            seen.add(key)
            following.append((len(parents), after))
            parents.append((i, label))
    return None


def stuck(s: State) -> str:
    """Nothing can happen any more, and the job has not ended."""
    left = ", ".join(f"{g}: {x.at.name}, plan {x.plan}, step {len(x.history)}" for g, x in enumerate(s.groups))
    return f"stuck: {left}"


def _story(parents: list[tuple[int, str]], i: int) -> list[str]:
    story = []
    while i > 0:
        i, label = parents[i][0], parents[i][1]
        story.append(label)
    return story[::-1]


def walk(options: Options, walks: int, seed: int = 1) -> Explored:
    """Random walks to the end, for configurations with too many states."""
    moves, rng, found = Moves(options), random.Random(seed), Explored()
    began, ends = time.perf_counter(), collections.Counter[str]()
    for _ in range(walks):
        s, rate = moves.initial(), rng.choice((0.02, 0.1, 0.3, 1.0))
        story: list[str] = []
        while True:
            try:
                out = moves.of(s)
            except Violation as violation:
                found.violation, found.story = str(violation), story
                return found
            if all(move.fault for move in out):
                end = moves.good_end(s)
                if end is None:
                    found.violation, found.story = stuck(s), story
                    return found
                ends[end] += 1
                if not out or rng.random() < 0.5:
                    break
            label, _, s = rng.choices(out, [rate if move.fault else 1.0 for move in out])[0]
            story.append(label)
            found.states += 1
    found.ends, found.moves, found.seconds = dict(ends), walks, time.perf_counter() - began
    return found
