"""`python -m tests.chaos SEEDS`: run so many seeds; print the first that fails, and the command that replays it."""

from __future__ import annotations

import argparse
import collections
import gc
import sys
import time

from spare.api.exit_codes import ExitCode
from tests.chaos.seeds import play


def main() -> int:
    """Exit code 1 when a seed fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("seeds", nargs="?", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    parser.add_argument("--go-on", action="store_true", help="do not stop at the first that fails")
    told = parser.parse_args()
    seeds = range(told.first, told.first + told.seeds) if told.seed is None else range(told.seed, told.seed + 1)
    gc.disable()  # worlds are cyclic and short: one collection now and then
    began, said = time.perf_counter(), 0.0
    ends: collections.Counter[str] = collections.Counter()
    events = faults = virtual = failed = restarts = rejoined = handed = waited = 0
    for count, seed in enumerate(seeds, 1):
        verdict, log = play(seed, trace=told.trace)
        if count % 50 == 0:
            gc.collect()
        for line in log:
            print(line)  # noqa: T201
        ends[name(verdict.exit_code) if verdict.violation is None else "VIOLATION"] += 1
        events, faults, virtual = events + verdict.events, faults + verdict.faults, virtual + int(verdict.seconds)
        restarts, rejoined = restarts + verdict.restarts, rejoined + verdict.rejoined
        handed, waited = handed + verdict.handed_on, waited + verdict.handed_waiting
        if verdict.violation is not None:
            failed += 1
            print(f"seed {seed}: {verdict.violation}")  # noqa: T201
            print(f"again, with its trace: python -m tests.chaos --seed {seed} --trace")  # noqa: T201
            if not told.go_on:
                break
        took = time.perf_counter() - began
        if took - said > 10.0:
            said = took
            cpu = count / time.process_time()
            line = f"{count} seeds, {count / took:.0f}/s, {cpu:.0f} a CPU second, {dict(ends)}"
            print(line, file=sys.stderr, flush=True)  # noqa: T201
    took = time.perf_counter() - began
    speed = f"{count / took:.1f}/s, {count / time.process_time():.1f} a CPU second"
    seen = f"{faults} mishaps, {rejoined} groups came back, {handed} sums handed on, {waited} by who waited"
    seen += f", {restarts} restarts"
    ended = dict(sorted(ends.items()))
    print(f"{count} seeds in {took:.0f} s, {speed}: {ended}; {seen}, {events} events, {virtual} virtual seconds")  # noqa: T201
    return 1 if failed else 0


def name(code: int | None) -> str:
    """Of an exit code."""
    return ExitCode(code).name.lower() if code is not None else "none"


if __name__ == "__main__":
    sys.exit(main())
