"""docs/paper.md: text around numbers that all come from results on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spare.sim import tables


def page(paper: Mapping[str, Any], beyond: Mapping[str, Any], folder: str) -> str:
    """The page.

    Args:
        paper, beyond: what `spare simulate paper` and `spare simulate beyond` wrote.
        folder: where the pictures lie, relative to the page.
    """
    ours, theirs = beyond["parameters"], paper["parameters"]
    return f"""{_HEAD}

## In short

{tables.short_table(paper, beyond)}

SPARe's numbers are met. Replication's are met only by readings of what a failure costs it that were chosen after seeing
them. The formulas of mu and of the mean depth hold where shards are placed independently of each other; on consecutive
stacks, which the table has, they do not. Each goal stands below as met or **missed**.

## The table

{theirs["steps"]:,} steps a run, {theirs["runs"]} runs of each case; mean and 95 % interval (Student's) over the runs.
The paper leaves open what a failure costs replication, and its numbers speak against a rate that falls as groups go:
"nothing again", "one layer again", "one layer for each" and "constant rate" are readings of that (see the assumptions).
SPARe at a constant rate was run at the paper's r only.

{tables.main_table(paper)}

Goal: each within 10 %.

{_list(tables.goals(paper))}

Gain of SPARe over replication, 1 - TTT/TTT:

{tables.gain_table(paper)}

![TTT against r]({folder}/against-r.png)

## mu and mean depth

mu against {theirs["trials"]:,} random orders of failure each. The formula assumes that two shards share no more than
one host; the "Golomb" placement keeps that, consecutive stacks do not. It puts an integral in the place of a sum over
k = 0, 1, ...: so it lies half a failure below the mean number up to the wipe-out with the last one, and half a failure
above that of those masked. Both are compared; "masked before a wipe-out" is how the paper defines mu.

{tables.mu_table(paper)}

Over every r, with the independent placement (the paper gives one figure for its formula: 1.13 %):

{tables.mu_errors_table(paper)}

Mean depth to the wipe-out, whole shards, no patch; {theirs["depth_trials"]} trials of the scheduler each:

{tables.depth_table(paper)}

Goals: mu within 2 %, depth within 4 %.

{_list(tables.formula_goals(paper))}

So the formulas hold for the placement that they assume. On consecutive stacks, which the table above uses, steps are
deeper than they say, and no scheduler can change that: neighbours host nearly the same shards, so L shards in a row
lie on L + r - 1 groups in a row, and a stretch that has lost more groups than the average needs S >= L / (its live
groups). The least S that satisfies all stretches is the column "least possible" (computed from the same trials, without
the scheduler), and the scheduler reaches exactly it. Sbar takes c(k), the bound for the ring as a whole. Which
placement the paper's own simulation of the depth had is not said.

![mu and mean depth]({folder}/masking.png)
{_ASSUMPTIONS.replace("IMPLIED", tables.implied_cost())}
{tables.sweep_table(paper)}

## Beyond the paper

The same setting, our departures switched on one after the other; {ours["steps"]:,} steps a run. A plus adds to the line
above; the two lines with r = 3 have replacement and no drain notices, for at r = 5 nothing is left to fetch. Numbers
with ± have several runs, the others one.

{tables.ladder_table(paper, beyond)}

{_list(tables.beyond_goals(beyond))}

![Departures]({folder}/departures.png)

Racks of 20 groups at N = 200, r = 5, replacement after 10 minutes; a twentieth of the failures takes a whole rack:

{tables.racks_table(beyond)}

## What it costs to simulate

10,000 steps at N = 1,000 on one core, and where the time goes: [profile.txt]({folder}/profile.txt).
"""


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}." for line in lines)


_HEAD = """# The paper's results, simulated again, and ours

This page is written by `make simulate-paper`: `spare simulate paper` and `beyond` run everything, and `spare simulate
page` makes the page of their results, which lie in [simulation/](simulation/): `paper.json` and `beyond.json`, and one
line for each run in the CSV files. The paper is J. Lee et al., "SPARe", ICML 2026, arXiv 2603.00357. Why the simulator
is built so: [decision 5](decisions/0005-simulator.md).

TTT is the time to train, T0 the same with neither failures nor redundancy nor saves. Availability is the share of TTT
in steps that count, patches included: not restarts, saves, regroups, and work that a wipe-out took back."""

_ASSUMPTIONS = """
## Assumptions

The paper's setting: 600,000 GPUs, a failure in 300 s (Weibull, shape 0.78), Tr = 3600 s, Ts = 60 s, 64 s a layer,
shrink and controller 0.1 s each, Normal(1, 0.05) on every duration. What it does not give, and what is taken here:

- All-reduce "2 to 10 s growing with N": linear, 2 s at N = 200, 6 s at 600, 10 s at 1,000.
- Weibull gaps are those between failures of the whole system, and are stretched by N / live groups.
- One draw of the jitter for each layer, all-reduce, save and so on, not one for each group.
- A failure during compute is noticed at the step's all-reduce; several in one step are answered together.
- Nothing fails during a restart. A wipe-out goes back to the last save; saves are Tc* = f(mu m) apart.
- Replication: every group computes the r shards of its stack, placed as SPARe's, so that the paper's mu holds for both.
- What a failure costs replication: the survivors hold copies of everything, so nothing is to be computed again. The
  paper's own numbers say otherwise: TTT/T0 times availability, minus r layers and an all-reduce, leaves IMPLIED
  for each failure, where a layer is 64 s. So one layer again: once for all that a step notices together, or for each of
  them.
- That division takes the failures to come every 300 s, however many groups are gone. Where they become rarer, as
  victims "uniform over the active GPUs" suggests and as is assumed above, replication at N = 200 stays more than 10 %
  below the paper's 6.07: on the way to a wipe-out it loses mu = 31 of its 200 groups (at N = 1,000 it is 9 %), and with
  them as large a share of the failures that follow. "Constant rate" is the same without that, for SPARe as well.
- All readings are in the table. Those with a layer, and the constant rate, were chosen *after* seeing the paper's
  numbers, so that their agreement proves little.

One of them changed at a time, at N = 200, where failures weigh most; "as assumed" has one layer again for replication:
"""
