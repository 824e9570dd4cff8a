"""The course of one run: steps, what strikes them, and what the strategy makes of it.

Time passes only in ``_spend``, which lets every event due meanwhile happen at its own moment, in order. Failures that
strike during compute are answered at the step's all-reduce, all at once, as in the paper; one that strikes an
all-reduce breaks it, and one that strikes a patch is answered after it. Nothing strikes during a restart, which brings
everybody back: the paper does not say, and with a failure in five minutes a restart of an hour would never end.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from random import Random

from spare.planner import WipeOut, checkpoint_period
from spare.sim.account import Account
from spare.sim.failures import Failures
from spare.sim.result import Result
from spare.sim.setting import Setting
from spare.sim.strategy import Strategy

Progress = Callable[[int], None]
"""Called with the number of steps that are committed; it may go back."""


HOPELESS = 10_000
"""Restarts in a row; a job that gets to a save less often takes 200 times T0 anyhow, if time passes at all."""


class TimeRanBackwards(Exception):
    """An event lies in the past: the engine is wrong."""


def run(
    setting: Setting, strategy: Strategy, seed: int, progress: Progress | None = None, limit: float = 200.0
) -> Result:
    """Simulate one run to its last step.

    Args:
        setting: sizes, durations, failures.
        strategy: its state is made fresh first.
        seed: of every draw of this run; equal arguments give equal results.
        progress: called now and then.
        limit: give up after so many times T0, or after ``HOPELESS`` restarts without a save between: a job that
            restarts faster than it trains never ends.

    Returns:
        The result; ``complete`` is False if it was given up.

    Cost: about 10 us a step and 30 us a failure, plus the planner's time for each failure and join.
    """
    return _Run(setting, strategy, seed).to_the_end(progress, limit)


class _Restart(Exception):
    """Unwinds to the loop: the strategy has no answer to this failure."""


class _Run:
    def __init__(self, setting: Setting, strategy: Strategy, seed: int) -> None:
        self._setting, self._strategy = setting, strategy
        self._rng = Random(seed)
        self._failures = Failures(setting, self._rng)
        self._account = Account()
        self._now, self._step, self._seed = 0.0, 0, seed
        self._saved_step, self._last_save = 0, 0.0
        self._live = set(range(setting.groups))
        self._fallen: list[int] = []
        self._announced: list[int] = []
        self._arriving: deque[tuple[float, int]] = deque()
        self._arrived: list[int] = []
        self._count = dict.fromkeys(("failures", "lost groups", "wipe-outs", "saves", "joins", "fetches"), 0)
        self._depths = self._live_sum = self._patch_layers = 0.0
        self._in_vain = 0  # restarts since the last save
        self._done = 0  # steps done, those done again included
        self._failing = self._failures.gap()
        expected = max(1.0, strategy.masked) * setting.between_failures
        self._period = (
            checkpoint_period(setting.save, expected, setting.restart) if setting.period is None else setting.period
        )

    def to_the_end(self, progress: Progress | None, limit: float) -> Result:
        self._strategy.fresh()
        end = limit * self._setting.ideal
        while self._step < self._setting.steps and self._now < end and self._in_vain < HOPELESS:
            try:
                self._boundary()
                self._one_step()
                if progress is not None and self._step % 64 == 0:
                    progress(self._step)
            except _Restart:
                self._restart()
        self._account.keep()
        return Result(
            strategy=self._strategy.name,
            groups=self._setting.groups,
            seed=self._seed,
            complete=self._step >= self._setting.steps,
            ideal=self._setting.ideal * self._step / self._setting.steps,
            total=self._now,
            seconds=self._account.kept(),
            counts=dict(self._count),
            mean_depth=self._depths / max(1, self._done),
            mean_patch=self._patch_layers / max(1, self._done),
            mean_live=self._live_sum / max(1, self._done),
        )

    def _boundary(self) -> None:
        """Between two steps: announced groups leave, replacements join, a save if it is due."""
        leaving = sorted(g for g in set(self._announced) if g in self._live)
        self._announced = []
        if leaving:
            self._remove(leaving)
            self._leave(leaving)
            self._spend("regroup", self._long(self._setting.controller) + self._long(self._setting.shrink))
        if self._arrived:
            joining, self._arrived = sorted(self._arrived), []
            self._leave_fallen()
            self._rescale(len(self._live) + len(joining))
            self._live.update(joining)
            self._strategy.join(joining)
            self._count["joins"] += len(joining)
            self._spend("join", self._long(self._setting.join))
        # Due when waiting for another step would pass the period: saves are a period apart, from start to start.
        if self._step > self._saved_step and self._now - self._last_save >= self._period - self._setting.save:
            self._save()

    def _save(self) -> None:
        started = self._now
        self._spend("save", self._long(self._setting.save))
        # Who dies during a save takes no state along, every group holds all of it; without an answer the save is lost.
        self._leave_fallen()
        self._account.keep()
        self._saved_step, self._last_save = self._step, started
        self._count["saves"] += 1
        self._in_vain = 0

    def _one_step(self) -> None:
        """Compute, and as often as something fails: regroup, patch, reduce again."""
        self._leave_fallen()
        self._strategy.begin()
        depth = self._strategy.depth
        self._spend("compute", self._layers(depth))
        while True:
            if self._fallen:
                self._regroup()
                continue
            length = self._long(self._setting.reduction)
            self._spend("reduce", length)
            if not self._fallen:
                break
            self._account.add("reduce", -length)
            self._account.add("lost", length)
        self._step += 1
        self._done += 1
        self._depths += depth
        self._live_sum += len(self._live)

    def _regroup(self) -> None:
        fallen, self._fallen = self._fallen, []
        try:
            layers = self._strategy.lose(fallen)
        except WipeOut as wiped:
            raise _Restart from wiped
        self._fetch()
        self._spend("regroup", self._long(self._setting.controller) + self._long(self._setting.shrink))
        self._patch_layers += layers
        if layers:
            self._spend("patch", self._layers(layers))

    def _leave_fallen(self) -> None:
        """Groups that died between two steps: nothing of a step is missing."""
        if self._fallen:
            fallen, self._fallen = self._fallen, []
            self._leave(fallen)
            self._spend("regroup", self._long(self._setting.controller) + self._long(self._setting.shrink))

    def _leave(self, groups: list[int]) -> None:
        try:
            self._strategy.leave(groups)
        except WipeOut as wiped:
            raise _Restart from wiped
        self._fetch()

    def _fetch(self) -> None:
        fetched = self._strategy.fetches()
        if fetched:
            self._count["fetches"] += fetched
            self._spend("fetch", self._long(self._setting.fetch))

    def _restart(self) -> None:
        """Back to the last save, with everybody."""
        self._account.roll_back()
        self._count["wipe-outs"] += 1
        self._in_vain += 1
        length = self._long(self._setting.restart)
        self._account.add("restart", length)
        self._account.keep()
        self._rescale(self._setting.groups)
        self._now += length
        if self._setting.process == "trace":
            while self._failing < self._now:
                self._failing = self._failures.gap()
        elif self._failing < math.inf:
            self._failing += length
        else:  # nobody was left to fail
            self._failing = self._now + self._failures.gap()
        self._live = set(range(self._setting.groups))
        self._fallen, self._announced, self._arrived = [], [], []
        self._arriving.clear()
        self._step, self._last_save = self._saved_step, self._now
        self._strategy.fresh()

    def _spend(self, kind: str, seconds: float) -> None:
        """Let time pass, and everything that is due in it happen.

        Raises:
            _Restart: failures are noticed at once, and this one has no answer: the rest of ``seconds`` is not spent.
        """
        end = self._now + seconds
        while True:
            arrival = self._arriving[0][0] if self._arriving else math.inf
            due = min(self._failing, arrival)
            if due > end:
                break
            if due < self._now:
                raise TimeRanBackwards(f"an event of {due} s at {self._now} s")
            self._account.add(kind, due - self._now)
            self._now = due
            if arrival <= self._failing:
                self._arrived.append(self._arriving.popleft()[1])
            else:
                self._fail()
        self._account.add(kind, end - self._now)
        self._now = end

    def _fail(self) -> None:
        victims = list(self._failures.victims(self._live))
        self._failing = self._next_failure()
        if not victims:
            return
        self._count["failures"] += 1
        if self._setting.announced and self._rng.random() < self._setting.announced:
            self._announced += victims
            return
        self._remove(victims)
        self._fallen += victims
        if not self._live or (self._setting.notice == "at once" and not self._strategy.survives(self._fallen)):
            raise _Restart

    def _remove(self, groups: list[int]) -> None:
        """From the set of those that can fail; replacements are ordered."""
        self._rescale(len(self._live) - len(groups))
        self._live.difference_update(groups)
        self._count["lost groups"] += len(groups)
        if self._setting.replacement is not None:
            ready = self._now + self._setting.replacement
            self._arriving.extend((ready, group) for group in groups)

    def _rescale(self, live: int) -> None:
        """The number of live groups changes: what is left of the gap passes at the new rate."""
        if self._setting.rate_falls and self._setting.process != "trace" and self._failing < math.inf:
            ratio = len(self._live) / live if live and self._live else math.inf
            self._failing = self._now + (self._failing - self._now) * ratio

    def _next_failure(self) -> float:
        if self._setting.process == "trace":
            return self._failures.gap()
        slower = self._setting.groups / len(self._live) if self._setting.rate_falls else 1.0
        return self._now + self._failures.gap() * slower

    def _long(self, seconds: float) -> float:
        """A duration with the jitter; never below 0."""
        jitter = self._setting.jitter
        return max(0.0, seconds * self._rng.gauss(1.0, jitter)) if jitter else seconds

    def _layers(self, layers: float) -> float:
        """The time of so many layers; each has its own jitter, and so has a part of one."""
        whole, compute = int(layers), self._setting.compute
        total = sum(self._long(compute) for _ in range(whole))
        rest = layers - whole
        return total + (self._long(compute * rest) if rest > 1e-12 else 0.0)
