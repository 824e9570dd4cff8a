"""What the environment says is read once, and every slip is named."""

from __future__ import annotations

import pytest

from spare_runtime.config import BadEnvironment, read_environment

GOOD = {"SPARE_JOB": "j", "SPARE_GROUP": "3", "SPARE_UID": "u", "SPARE_TOKEN": "secret"}


def test_what_is_not_said_has_a_default() -> None:
    """Loopback, a port from the kernel, no ledger, no scripted failures."""
    env = read_environment(GOOD)

    assert (env.group, env.bind, env.port, env.directory, env.faults) == (3, "127.0.0.1", 0, None, "")
    assert env.announce_fd is None
    assert env.parent is None


def test_the_token_is_not_shown() -> None:
    """Environments are printed by accident; secrets are not."""
    assert "secret" not in repr(read_environment(GOOD))


@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_missing_variable_is_named(name: str) -> None:
    """All four of them are needed."""
    with pytest.raises(BadEnvironment, match=name):
        read_environment({k: v for k, v in GOOD.items() if k != name})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("SPARE_GROUP", v) for v in ("-1", "x", "1.5", "inf", "nan")),
        *(("SPARE_PORT", v) for v in ("-1", "http", "70000")),
        *(("SPARE_ANNOUNCE_FD", v) for v in ("x", "-1")),
        *(("SPARE_PARENT", v) for v in ("x", "1.5")),
        *(("SPARE_HEARTBEAT", v) for v in ("0", "-1", "often", "nan")),
        ("SPARE_SEED", "half"),
    ],
)
def test_a_useless_value_is_named(name: str, value: str) -> None:
    """With the variable and the value, not as a traceback of Python's own."""
    with pytest.raises(BadEnvironment, match=f"{name}='{value}'"):
        read_environment(GOOD | {name: value})
