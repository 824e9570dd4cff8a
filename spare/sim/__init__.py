"""Pure: one training run as discrete events, many times over, to see what a strategy costs before anybody pays for it.

``run`` simulates one run of a ``Setting`` under a ``Strategy``; ``repeat`` does so for many seeds. The strategies ask
the planner that the product runs, not a copy of it. No clock; every generator is made from a seed that is passed in.
"""

from spare.sim.engine import run
from spare.sim.failures import Level
from spare.sim.microbatch import MicroBatches
from spare.sim.replicated import Replicated
from spare.sim.result import Estimate, Result, estimate
from spare.sim.setting import Setting
from spare.sim.strategy import Strategy
from spare.sim.whole_shards import WholeShards

__all__ = [
    "Estimate",
    "Level",
    "MicroBatches",
    "Replicated",
    "Result",
    "Setting",
    "Strategy",
    "WholeShards",
    "estimate",
    "run",
]
