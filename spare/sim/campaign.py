"""Many runs: every case with several seeds, in as many processes as wanted. The results do not depend on how many."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import Any, Literal

from spare.planner import place
from spare.sim.engine import run
from spare.sim.failures import topology
from spare.sim.microbatch import MicroBatches
from spare.sim.replicated import Replicated
from spare.sim.result import Estimate, Result, estimate
from spare.sim.setting import Setting
from spare.sim.strategy import Strategy
from spare.sim.whole_shards import WholeShards

Kind = Literal["checkpoint", "replication", "whole", "micro"]
Progress = Callable[[int, int], None]
"""Called with (runs done, runs in all)."""


@dataclass(frozen=True)
class Plan:
    """Which strategy, as plain values that travel to another process.

    Attributes:
        kind: checkpoint only, replication, the paper's whole shards, or ours.
        redundancy: r; of no effect for "checkpoint".
        options: ``layout`` and ``redo`` of Replicated; ``placement`` ("Golomb", "Consecutive") of the other two;
            ``micro_batches`` and ``fetch`` of MicroBatches; ``aware``: whether the placement follows the topology.
    """

    kind: Kind
    redundancy: int = 1
    options: dict[str, Any] = field(default_factory=dict)

    def build(self, setting: Setting) -> Strategy:
        """The strategy itself. Raises TypeError for an unknown option."""
        options = dict(self.options)
        if self.kind == "checkpoint":
            return Replicated(setting.groups, 1, **options)
        if self.kind == "replication":
            return Replicated(setting.groups, self.redundancy, **options)
        rule = options.pop("placement", "Consecutive" if self.kind == "whole" else "Golomb")
        known = topology(setting) if options.pop("aware", False) else None
        placement = place(setting.groups, self.redundancy, rule, known)
        if self.kind == "whole":
            return WholeShards(placement, **options)
        return MicroBatches(placement, **options)


@dataclass(frozen=True)
class Case:
    """One line of a table: a setting, a strategy, and how many runs."""

    label: str
    setting: Setting
    plan: Plan
    runs: int


@dataclass(frozen=True)
class Outcome:
    """What the runs of a case gave."""

    case: Case
    results: tuple[Result, ...]

    @property
    def ratio(self) -> Estimate:
        """TTT / T0; infinite if a run was given up, for it would have taken longer still."""
        if not all(result.complete for result in self.results):
            return Estimate(float("inf"), 0.0, len(self.results))
        return estimate([result.ratio for result in self.results])

    @property
    def availability(self) -> Estimate:
        """Share of the time that counts."""
        return estimate([result.availability for result in self.results])

    @property
    def depth(self) -> Estimate:
        """Mean layers per step, patch included."""
        return estimate([result.mean_depth + result.mean_patch for result in self.results])

    def to_json(self) -> list[dict[str, Any]]:
        """One flat mapping per run."""
        return [
            {"case": self.case.label, "redundancy": self.case.plan.redundancy, **result.to_json()}
            for result in self.results
        ]


def repeat(cases: Sequence[Case], seed: int, workers: int = 1, progress: Progress | None = None) -> list[Outcome]:
    """Simulate all runs of all cases; run j of each case has the seed ``seed + j``.

    Args:
        cases: what to simulate.
        seed: of the first run of each case.
        workers: processes; 1 works in this one.
        progress: called after each run.
    """
    jobs = [(case.setting, case.plan, seed + number) for case in cases for number in range(case.runs)]
    results: list[Result] = []
    with closing(_all(jobs, workers)) as arriving:
        for result in arriving:
            results.append(result)
            if progress is not None:
                progress(len(results), len(jobs))
    outcomes, start = [], 0
    for case in cases:
        outcomes.append(Outcome(case, tuple(results[start : start + case.runs])))
        start += case.runs
    return outcomes


def _all(jobs: Sequence[tuple[Setting, Plan, int]], workers: int) -> Generator[Result]:
    if workers == 1:
        yield from map(_one, jobs)
        return
    before = set(multiprocessing.active_children())
    # Spawned, not forked: the caller may have threads. No more processes than runs.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(jobs)), context, _leave_quietly) as pool:
        # Not `map`, which cancels what is left: over that a thread of Python's trips when the workers go (3.11).
        left = [pool.submit(_one, job) for job in jobs][::-1]
        try:
            while left:
                yield left.pop().result()
        except BaseException:  # Ctrl-C, above all: nobody waits for runs whose results are not wanted
            for worker in set(multiprocessing.active_children()) - before:
                worker.terminate()
            raise


def _leave_quietly() -> None:
    """Ctrl-C reaches the workers, too: they go at once. And they go with whoever started them, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    if parent is not None:
        Thread(target=_go_with, args=(parent,), daemon=True).start()


def _go_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _one(job: tuple[Setting, Plan, int]) -> Result:
    setting, plan, seed = job
    return run(setting, plan.build(setting), seed)
