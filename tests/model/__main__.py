"""`python -m tests.model [NAME ...]`: explore configurations (default: all), print states and counterexamples."""

from __future__ import annotations

import sys

from tests.model.configurations import BROKEN, REDUNDANT, SOUND, WALK
from tests.model.explore import Explored, explore, walk
from tests.model.heirs import RULES, explore_heirs
from tests.model.ranks import ORDERS, explore_ranks


def main(names: list[str]) -> int:
    """Exit code 1 when something is not as it must be."""
    wrong = 0
    for name, options in {**SOUND, **REDUNDANT}.items():
        if not names or name in names:
            wrong += show(name, explore(options), sound=True)
    for name, options in BROKEN.items():
        if not names or f"without-{name}" in names:
            wrong += show(f"without-{name}", explore(options), sound=False)
    for order in ORDERS:
        if not names or f"ranks-{order}" in names:
            wrong += show(f"ranks-{order}", explore_ranks(order), sound=order != "none")
    for rule in RULES:
        if not names or f"heirs-{rule}" in names:
            offers = (0b11, 0b01) if rule == "unequal" else (0b11, 0b11)
            wrong += show(f"heirs-{rule}", explore_heirs(rule, offers), sound=rule == "built")
    if not names or "walk" in names:
        wrong += show("walk", walk(WALK, 3000), sound=True)
    return 1 if wrong else 0


def show(name: str, found: Explored, *, sound: bool) -> bool:
    """Print what was found; whether it is not as it must be."""
    result = found.violation or ("complete" if found.complete else "not complete")
    print(  # noqa: T201
        f"{name}: {result}; {found.states} states, {found.moves} moves, depth {found.depth}, {found.seconds:.0f} s, "
        f"ends {found.ends}",
        flush=True,
    )
    wrong = (found.violation is None) is not sound
    for number, line in enumerate(found.story if wrong or not sound else [], 1):
        print(f"    {number:2} {line}")  # noqa: T201
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
