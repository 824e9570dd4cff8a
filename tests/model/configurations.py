"""The configurations: what may fail in a small job, and which rule is left out where a counterexample is wanted."""

from __future__ import annotations

from tests.model.moves import options
from tests.model.state import Options

SOUND: dict[str, Options] = {
    name: options(**known)
    for name, known in {
        "crash": {"crash": 2, "steps": 3, "fine": 1},
        "crash-m2": {"crash": 2, "micro_batches": 2},
        "crash-4": {"crash": 2, "groups": 4},
        "link": {"crash": 2, "link": 1, "fine": 1},
        "operator": {"crash": 2, "operator": 1, "fine": 1},
        "fence": {"crash": 1, "false": 1, "rejoin": 1},
        "fence-2": {"false": 2, "groups": 4, "steps": 1},
        "cut": {"crash": 1, "cut": 1},
        "fence-operator": {"false": 1, "operator": 1, "link": 1},
        "join": {"crash": 2, "rejoin": 1, "spare": 1, "groups": 4},
        "join-race": {"crash": 1, "rejoin": 2, "spare": 2, "groups": 4},
        "join-late": {"crash": 1, "rejoin": 1, "spare": 1, "groups": 4, "early": 0},
        "revive": {"crash": 2, "revive": 1, "rejoin": 1},
        "drain": {"crash": 1, "drain": 1, "groups": 4},
        "drain-join": {"crash": 1, "drain": 1, "rejoin": 1, "spare": 1, "groups": 4, "steps": 1},
        "halt": {"crash": 1, "halt": 1},
        "hand": {"hand": 1, "micro_batches": 2, "steps": 1},
        "hand-crash": {"hand": 1, "crash": 1, "micro_batches": 2, "steps": 1},
        "hand-link": {"hand": 1, "link": 1, "micro_batches": 2, "steps": 1},
        "hand-twice": {"hand": 2, "steps": 1},
        "hand-false": {"hand": 1, "crash": 1, "false": 1, "micro_batches": 2},
        "hand-join": {"hand": 1, "rejoin": 1, "spare": 1, "groups": 4, "micro_batches": 2, "steps": 1},
        "halt-link": {"link": 1, "halt": 1, "operator": 1},
    }.items()
}
"""No rule is left out: nothing may be found."""

BROKEN: dict[str, Options] = {
    name: options(**known)
    for name, known in {
        "barrier": {"barrier": 0, "crash": 1, "link": 1, "steps": 1},
        "inc": {"inc": 0, "false": 1, "rejoin": 1},
        "reset": {"reset": 0, "crash": 1, "link": 1},
        "allc": {"allc": 0, "crash": 2, "rejoin": 1, "spare": 1, "groups": 4},
        "base": {"base": 0, "crash": 1, "rejoin": 1, "operator": 1, "spare": 1, "groups": 4, "steps": 1},
        "ans": {"ans": 0, "crash": 1, "rejoin": 1, "spare": 1, "groups": 4, "steps": 1},
        "wait": {"wait": 0, "crash": 1, "rejoin": 1, "spare": 1, "groups": 4, "steps": 1},
        "load": {"load": 0, "crash": 1, "rejoin": 1, "spare": 1, "groups": 4},
        "cas": {"cas": 0, "twin": 1, "false": 1, "steps": 1},
        "early": {"early": 2, "rejoin": 1, "spare": 1},
        "first": {"first": 0, "hand": 1, "false": 1, "micro_batches": 2, "steps": 1},
        "withdraw": {"withdraw": 0, "hand": 1, "steps": 1},
        "guard": {"guard": 0, "strict": 1, "crash": 1, "drain": 1, "rejoin": 1, "spare": 1},
    }.items()
}
"""One rule left out each: the counterexample must be found."""

REDUNDANT: dict[str, Options] = {"rid": options(rid=0, crash=2, link=1)}
"""A rule that the others make needless: with `reset` in force two reductions of one step are never held at once."""

WALK = options(
    crash=2, false=1, link=1, operator=1, rejoin=2, drain=1, halt=1, hand=1, revive=1, groups=4, steps=3, fine=1
)
"""Everything at once: too many states for all of them."""

QUICK = ("halt", "hand")
"""Small enough for every run of the tests."""
