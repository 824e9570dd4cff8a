"""Who computes what under the next plan: the planner's answer for what the job file says of wipe-outs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from spare.api.spec import OnWipeOut
from spare.control.config import Config
from spare.planner.fetch import reorder_fetching
from spare.planner.reorder import Reorder, reorder
from spare.planner.schedule import Schedule
from spare.planner.shards import by_whole_shards


def reordered(
    config: Config,
    schedule: Schedule,
    live: Iterable[int],
    able: Collection[int],
    speeds: Mapping[int, int] | None = None,
) -> Reorder:
    """The next schedule; with Fetch, a shard without a host among those that are able is computed by others.

    Args:
        config: Of the job.
        schedule: So far.
        live: Members of the next plan.
        able: Those that have the training state.
        speeds: Of slow groups, see `planner.reorder`; None: as they are in the schedule.

    Raises:
        WipeOut: a shard has no live host, and nothing is fetched.
    """
    now = tuple(live)

    def change(schedule: Schedule) -> Reorder:
        if config.on_wipe_out is OnWipeOut.FETCH:
            return reorder_fetching(schedule, now, config.redundancy, able, speeds)
        return reorder(schedule, now, speeds)

    return by_whole_shards(schedule, change) if config.whole_shards else change(schedule)
