"""What Prometheus is told, read from the jobs at each scrape: a job costs nothing between two of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from spare.control.state import GroupState, State
from spare.coordinator.meter import Meter
from spare_operator.jobs import Jobs

LABELS: Final = ("namespace", "job")
BUCKETS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Seconds: a loss that closes connections takes a few hundredths, one told by silence five, one by a node a minute."""
_PHASES: Final = ("detect", "restart", "plan", "regroup", "patch", "total")
_KINDS: Final = {
    "active": (GroupState.ACTIVE, GroupState.DONE),
    "joining": (GroupState.STARTING, GroupState.READY, GroupState.JOINING),
    "lost": (GroupState.LOST, GroupState.LEFT),
}
Row = tuple[tuple[str, str], State, Meter]


class Collector:
    """A prometheus_client collector. `jobs` is None while this operator does not lead."""

    def __init__(self, leading: Callable[[], bool], jobs: Callable[[], Jobs | None]) -> None:
        self._leading, self._jobs = leading, jobs

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        yield _gauge("spare_operator_leading", "1 while this operator holds the lease", [((), float(self._leading()))])
        jobs = self._jobs()
        rows = list(_rows(jobs)) if jobs is not None else []
        yield _gauge("spare_jobs", "jobs that this operator works on", [((), float(len(rows)))])
        yield from _state_metrics(rows)
        yield from _meter_metrics(rows)
        yield _regroups(rows)


def page(registry: CollectorRegistry) -> bytes:
    """The page."""
    return generate_latest(registry)


def _rows(jobs: Jobs) -> Iterator[Row]:
    for job in jobs.running:
        training = job.training
        if training is not None and training.coordinator is not None:
            at = (job.key.namespace, job.key.name)
            yield at, training.coordinator.state, training.coordinator.meter


def _state_metrics(rows: list[Row]) -> Iterator[Metric]:
    yield _gauge("spare_job_epoch", "number of the newest plan", _each(rows, lambda s: s.plan.epoch if s.plan else 0))
    yield _gauge("spare_job_step", "steps committed", _each(rows, lambda s: s.step))
    yield _gauge(
        "spare_job_depth",
        "micro-batches of the most loaded group, divided by microBatches",
        _each(rows, lambda s: s.plan.schedule.depth if s.plan else 0.0),
    )
    groups = GaugeMetricFamily("spare_job_groups", "groups by state", labels=(*LABELS, "state"))
    for at, state, _ in rows:
        for kind, states in _KINDS.items():
            groups.add_metric((*at, kind), sum(here.state in states for here in state.groups))
    yield groups
    spares = GaugeMetricFamily("spare_job_spares", "spares that are wanted, and ready", labels=(*LABELS, "state"))
    for at, state, _ in rows:
        spares.add_metric((*at, "wanted"), len(state.spares))
        spares.add_metric((*at, "ready"), sum(here.state is GroupState.READY for here in state.spares))
    yield spares
    yield _counter("spare_job_spares_used", "places of groups that spares took", _each(rows, lambda s: s.taken))
    yield _counter("spare_job_losses", "losses of groups that were masked", _each(rows, lambda s: s.masked))
    yield _counter("spare_job_restarts", "restarts from a checkpoint", _each(rows, lambda s: s.restarts))
    yield _counter("spare_job_refused", "messages that were not acted on", _each(rows, lambda s: s.refused))


def _meter_metrics(rows: list[Row]) -> Iterator[Metric]:
    meters = [(at, meter) for at, _, meter in rows]
    yield _counter("spare_job_rejoins", "groups that came back", [(at, m.rejoined) for at, m in meters])
    yield _counter("spare_job_decisions", "decisions taken", [(at, m.decisions) for at, m in meters])
    yield _counter("spare_job_deciding_seconds", "spent deciding and planning", [(at, m.deciding) for at, m in meters])
    yield _gauge("spare_job_deciding_longest_seconds", "the longest decision", [(at, m.longest) for at, m in meters])
    yield _counter("spare_job_records", "plans written down", [(at, m.recorded) for at, m in meters])
    yield _counter("spare_job_recording_seconds", "spent waiting for it", [(at, m.recording) for at, m in meters])
    yield _gauge(
        "spare_job_queue_age_seconds",
        "age of the oldest signal when taken",
        [(at, m.waited) for at, m in meters],
    )
    yield _counter("spare_job_pushes", "parts of plans handed to connections", [(at, m.pushed) for at, m in meters])
    yield _counter("spare_job_acks", "of those, what agents' connections took", [(at, m.taken) for at, m in meters])


def _regroups(rows: list[Row]) -> Metric:
    """Seconds that answered failures took, by phase; `restart` is a wipe-out's wait for all to begin again."""
    family = HistogramMetricFamily(
        "spare_job_regroup_seconds", "what losing groups cost, by phase", labels=(*LABELS, "phase")
    )
    for at, state, _ in rows:
        seen: dict[str, list[float]] = {phase: [] for phase in _PHASES}
        for r in state.recoveries:
            found = r.decided if r.given_up is None else r.given_up
            spans: list[tuple[float | None, float | None]] = [(r.sign, found), (r.given_up, r.decided)]
            spans += [(r.decided, r.pushed), (r.pushed, r.running), (r.running, r.committed), (r.sign, r.committed)]
            for phase, (first, then) in zip(_PHASES, spans, strict=True):
                if first is not None and then is not None:
                    seen[phase].append(max(0.0, then - first))
        for phase, values in seen.items():
            buckets = [(str(top), float(sum(value <= top for value in values))) for top in BUCKETS]
            family.add_metric((*at, phase), [*buckets, ("+Inf", float(len(values)))], sum(values))
    return family


Cell = tuple[tuple[str, ...], float]


def _each(rows: Iterable[Row], value: Callable[[State], float]) -> list[Cell]:
    return [(at, float(value(state))) for at, state, _ in rows]


def _gauge(name: str, text: str, cells: Iterable[Cell]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=LABELS if name.startswith("spare_job_") else ())
    for at, value in cells:
        family.add_metric(at, float(value))
    return family


def _counter(name: str, text: str, cells: Iterable[Cell]) -> Metric:
    family = CounterMetricFamily(name, text, labels=LABELS)
    for at, value in cells:
        family.add_metric(at, float(value))
    return family
