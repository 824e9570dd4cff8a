"""The slow tests that have many cases run a covering part of them, unless every case is asked for."""

from __future__ import annotations

import signal
from collections import defaultdict

import hypothesis
import pytest

hypothesis.settings.register_profile(
    "busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
if hypothesis.settings.get_current_profile_name() == "default":
    hypothesis.settings.load_profile("busy")  # a busy machine is no reason to fail; in CI another one is there already

PART = 4
"""Cases of one slow test that run by default: a kill at each point of each step takes an hour, and spread is enough to
notice a change. `make test-every` runs them all."""


LONG = 900.0
"""Seconds: a test that is given more than this runs by `make test-every` only."""

SLOW = 300.0
"""Seconds that a slow test has unless it says otherwise: some are two runs, and the machine may be a busy one."""


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job; what tests start inherits it


def pytest_addoption(parser: pytest.Parser) -> None:
    """See pytest."""
    parser.addoption("--every", action="store_true", help="run every case of the slow tests, not a spread of them")


@pytest.hookimpl(trylast=True)  # after -m and -k: who names a case gets it
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep cases at even distances, the first and the last among them; the same ones in every run."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW))
    if config.getoption("--every") or "::" in " ".join(config.args):
        return
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("slow"):
            cases[item.nodeid.split("[")[0]].append(item)
    left_out = [item for every in cases.values() for item in every if item not in spread(every) or is_long(item)]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def spread(every: list[pytest.Item]) -> list[pytest.Item]:
    """At most PART of them."""
    last = len(every) - 1
    return every if last < PART else [every[last * number // (PART - 1)] for number in range(PART)]


def is_long(item: pytest.Item) -> bool:
    """Whether it may take very long, by its own deadline."""
    deadline = item.get_closest_marker("timeout")
    return deadline is not None and float(deadline.args[0]) > LONG
