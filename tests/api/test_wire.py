"""Messages go over the wire and come back; everything else is refused, by name."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spare.api import wire
from spare.api.wire import Address, Refused, groups_of, groups_text, read, stale
from spare.planner import healthy, place, reorder

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
COUNT = st.integers(0, 2**40)
SECONDS = st.floats(0, 1e9)
PHASES = st.sampled_from(
    ["starting", "rendezvous", "compute", "reduce", "barrier", "load", "failed", "done", "stopped"]
)
HOSTS = st.sampled_from(["10.0.0.7", "fd00::1", "::1", "pod-3.job.default.svc"])
ADDRESSES = st.builds(Address, HOSTS, st.integers(1, 65535)).map(str)
WHO = {"job": TEXT, "epoch": COUNT, "uid": TEXT}
FROM = WHO | {"group": COUNT}
LEGACIES = st.builds(wire.Legacy, group=COUNT, epoch=COUNT, serves=ADDRESSES)


@st.composite
def plans(draw: st.DrawFn) -> wire.Plan:
    """A plan with any numbers in it."""
    epoch = draw(st.integers(1, 10**6))
    n = draw(st.integers(1, 20))
    placement = place(n, draw(st.integers(1, n)))
    return wire.Plan(
        job=draw(TEXT),
        epoch=epoch,
        uid=draw(TEXT),
        digest=draw(TEXT),
        base=draw(st.integers(0, epoch)),
        group=draw(COUNT),
        admission=draw(st.integers(0, epoch)),
        members=groups_text(draw(st.sets(st.integers(0, n - 1)))),
        stores=tuple(draw(st.lists(ADDRESSES, min_size=1, max_size=3))),
        leader_group=draw(COUNT),
        placement=wire.PlacementRule(
            groups=n,
            redundancy=placement.redundancy,
            offsets=placement.offsets,
            strategy=placement.strategy,
            ring=draw(st.none() | st.permutations(range(n)).map(tuple)),
        ),
        micro_batches=draw(st.integers(1, 100)),
        schedule=tuple(draw(st.lists(st.tuples(COUNT, COUNT, COUNT), max_size=5))),
        drained=draw(st.booleans()),
        halt=draw(st.booleans()),
        legacies=tuple(draw(st.lists(LEGACIES, max_size=2))),
        reason=draw(TEXT),
    )


MESSAGES = st.one_of(
    plans(),
    st.builds(wire.Attach, token=TEXT, coordinator=TEXT, **WHO),
    st.builds(wire.Assemble, home=ADDRESSES, master=ADDRESSES, **WHO),
    st.builds(wire.Probe, nonce=COUNT, **WHO),
    st.builds(wire.Finish, **WHO),
    st.builds(wire.Stop, reason=TEXT, **WHO),
    st.builds(wire.Drain, grace=st.none() | SECONDS, **WHO),
    st.builds(wire.HandOn, **WHO),
    st.builds(wire.Leave, grace=SECONDS, reason=TEXT, serves=st.none() | ADDRESSES, **FROM),
    st.builds(wire.Left, step=COUNT, **FROM),
    st.builds(wire.Halted, step=COUNT, saved=st.booleans(), **FROM),
    st.builds(wire.Hello, token=TEXT, pid=COUNT, store=st.none() | ADDRESSES, step=COUNT, phase=PHASES, **FROM),
    st.builds(wire.Hello, home=ADDRESSES, master=ADDRESSES, **FROM),
    st.builds(
        wire.Alive,
        nonce=st.none() | COUNT,
        worker=st.sampled_from(["none", "running", "silent", "exited"]),
        silent_for=SECONDS,
        step=COUNT,
        phase=PHASES,
        micros=COUNT,
        still=SECONDS,
        **FROM,
    ),
    st.builds(wire.Running, step=COUNT, seconds=st.dictionaries(TEXT, SECONDS, max_size=4), patches=COUNT, **FROM),
    st.builds(wire.Committed, step=COUNT, loss=st.none() | st.floats(-1e9, 1e9), computed=COUNT, **FROM),
    st.builds(
        wire.Suspect, step=COUNT, phase=PHASES, error=TEXT, unreachable=st.lists(COUNT, max_size=3).map(tuple), **FROM
    ),
    st.builds(
        wire.Errored,
        step=COUNT,
        type=TEXT,
        text=TEXT,
        traceback=TEXT,
        micro=st.none() | st.tuples(COUNT, COUNT),
        ours=st.booleans(),
        **FROM,
    ),
    st.builds(wire.Exited, code=st.none() | COUNT, signal=st.none() | COUNT, tail=TEXT, **FROM),
    st.builds(wire.Done, step=COUNT, digest=TEXT, loss=st.none() | st.floats(-1e9, 1e9), **FROM),
    st.builds(wire.Refusal, what=TEXT, reason=TEXT, **FROM),
)
STOP: dict[str, Any] = {"kind": "stop", "protocol": 1, "job": "j", "epoch": 3, "uid": "u", "reason": "r"}
HELLO: dict[str, Any] = {"kind": "hello", "protocol": 1, "job": "j", "epoch": 0, "uid": "u", "group": 1}


def line(**fields: Any) -> bytes:
    """A message that nobody checked."""
    return json.dumps(fields).encode() + b"\n"


def refused(raw: bytes) -> str:
    """The reason why a line is refused."""
    with pytest.raises(Refused) as reason:
        read(raw)
    return str(reason.value)


@settings(deadline=None)
@given(MESSAGES)
def test_every_message_comes_back_as_it_was(message: wire.Message) -> None:
    """On one line, whatever texts are in it."""
    sent = message.line()

    assert sent.endswith(b"\n")
    assert sent.count(b"\n") == 1
    assert read(sent) == message


@settings(deadline=None)
@given(st.binary(max_size=200) | MESSAGES.flatmap(lambda m: st.integers(0, 200).map(lambda cut: m.line()[:cut])))
def test_anything_is_read_or_refused(raw: bytes) -> None:
    """Noise and torn messages never raise anything else."""
    with contextlib.suppress(Refused):
        read(raw)


@pytest.mark.parametrize("raw", [b"[" * 100_000, b'{"kind":' * 50_000, b"1" * 5_000, b"\xff\xfe", b"", b"null", b"[]"])
def test_hostile_lines_are_refused(raw: bytes) -> None:
    """Deeper than any parser goes, longer than any number, no text at all, or nothing."""
    assert "message" in refused(raw)


def test_an_unknown_kind_is_named() -> None:
    """With the known ones, so that the reader sees which version it talks to."""
    assert refused(line(**STOP | {"kind": "explode"})).startswith(
        "unknown message 'explode'; known are attach, assemble, plan"
    )


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_protocol_is_refused_naming_both(version: object) -> None:
    """Also a missing version: it is no version 1."""
    assert refused(line(**STOP | {"protocol": version})) == (
        f"message 'stop' speaks protocol {version!r}; this side speaks {wire.PROTOCOL}"
    )


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"epoch": -1}, "epoch"),
        ({"epoch": "three"}, "epoch"),
        ({"uid": None}, "uid"),
        ({"reason": 3}, "reason"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_malformed_message_names_the_field(change: dict[str, Any], named: str) -> None:
    """Unknown fields too: a sender of another version must not be half understood."""
    text = refused(line(**STOP | change))

    assert text.startswith("message 'stop' is malformed")
    assert named in text


def test_a_missing_field_is_named() -> None:
    """A stop without a reason leaves people in the dark."""
    assert "reason: Field required" in refused(line(**{k: v for k, v in STOP.items() if k != "reason"}))


def test_a_message_that_is_too_long_is_not_parsed() -> None:
    """The text says how long it was and what is allowed."""
    raw = line(**STOP | {"reason": "x" * wire.MAX_LINE})

    assert refused(raw) == f"a message of {len(raw)} bytes; at most {wire.MAX_LINE} are read"


@pytest.mark.parametrize("store", ["127.0.0.1:0", "[::1]:0", "127.0.0.1", "::1:29500", ":29500", "h:70000", "h:1 "])
def test_a_hello_with_a_useless_address_is_refused(store: str) -> None:
    """Port 0 is what one asks the kernel for, never what one announces."""
    text = refused(line(**HELLO | {"store": store}))

    assert "message 'hello' is malformed" in text
    assert repr(store) in text


@pytest.mark.parametrize(
    "change",
    [
        {"stores": ["127.0.0.1:65536"]},
        {"members": "3-1"},
        {"members": "0-999999999999"},
        {"legacies": [{"group": 1, "epoch": 1, "serves": "10.0.0.1:4000,nowhere"}]},
    ],
)
def test_a_plan_that_cannot_be_met_is_refused(change: dict[str, Any]) -> None:
    """No address of the leader, members out of order or more than the job has groups, no address of a leaver's rank."""
    good = json.loads(part_of_a_plan_for_a_thousand().line())

    assert read(line(**good))
    assert "message 'plan' is malformed" in refused(line(**good | change))


# --- addresses and groups -------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(HOSTS, st.integers(1, 65535))
def test_addresses_survive_being_text(host: str, port: int) -> None:
    """IPv6 hosts are not cut at their first colon."""
    assert Address.parse(str(Address(host, port))) == Address(host, port)


def test_an_ipv6_address_is_written_in_brackets() -> None:
    """And read from them, and carried by a message."""
    address = Address.parse("[fd00::1]:29500")

    assert address == ("fd00::1", 29500)
    assert str(address) == "[fd00::1]:29500"
    assert read(wire.Hello(**HELLO | {"store": str(address)}).line()).store == "[fd00::1]:29500"  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "fd00::1:29500", "[]:1", "h:0", "h:65536", "h:٣", "h:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    """The text shows what was given."""
    with pytest.raises(ValueError, match="address"):
        Address.parse(text)


@settings(deadline=None)
@given(st.sets(st.integers(0, 2000)))
def test_groups_survive_being_text(groups: set[int]) -> None:
    """Ascending, whatever the order they came in."""
    assert groups_of(groups_text(groups)) == tuple(sorted(groups))


@pytest.mark.parametrize(
    ("groups", "text"), [((), ""), ((5,), "5"), ((0, 1, 2, 3, 5), "0-3,5"), ((11, 2, 10, 0), "0,2,10-11")]
)
def test_groups_are_written_as_ranges(groups: tuple[int, ...], text: str) -> None:
    """Numbers and not names are in order: 10 comes after 2."""
    assert groups_text(groups) == text


@pytest.mark.parametrize("text", ["3-1", "1,1", "5,3", "0-3,3", "x", "1-", "-1", "1,,2", "0-3, 5", "1_0", "+1"])
def test_what_is_no_set_of_groups_is_refused(text: str) -> None:
    """A rank is a place in the ascending list, so another order would be another job."""
    with pytest.raises(ValueError, match=r"."):
        groups_of(text)


# --- who is it for --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "uid", "epoch", "named"),
    [
        ("other", "u", 0, ("'j'", "'other'")),
        ("j", "v", 0, ("'u'", "'v'")),
        ("j", "u", 4, ("epoch 3", "epoch 4")),
    ],
)
def test_a_stale_message_names_both_sides(job: str, uid: str, epoch: int, named: tuple[str, str]) -> None:
    """Another job, another incarnation, or an older epoch: what it says, and what this side is."""
    reason = stale(wire.Stop(**STOP), job=job, uid=uid, epoch=epoch)

    assert reason is not None
    assert all(part in reason for part in named)


def test_a_message_of_this_or_a_later_epoch_is_taken() -> None:
    """Only older ones are stale."""
    assert stale(wire.Stop(**STOP), job="j", uid="u", epoch=3) is None
    assert stale(wire.Stop(**STOP), job="j", uid="u", epoch=2) is None


# --- texts of people and programs -----------------------------------------------------------------------------------


def test_an_error_of_the_script_can_always_be_told() -> None:
    """Its text may hold what is no Unicode (a file's name) or be as long as a tensor; the report still arrives."""
    told = wire.Errored(
        **HELLO | {"kind": "errored"}, step=1, type="OSError", text="caf\udce9 " + "x" * 10**7, traceback="\ud800"
    )
    heard = read(told.line())

    assert isinstance(heard, wire.Errored)
    assert heard.text.startswith("caf? xxx")
    assert len(told.line()) < wire.MAX_LINE // 10


# --- sizes ----------------------------------------------------------------------------------------------------------


def part_of_a_plan_for_a_thousand(lost: int = 300) -> wire.Plan:
    """The busiest group's part when `lost` of 1,000 groups are gone."""
    placement = place(1000, 9)
    schedule = reorder(healthy(placement, 32), range(lost, 1000)).schedule
    ranges = max((schedule.ranges(g) for g in schedule.live), key=len)
    return wire.Plan(
        job="namespace/name/00000000-0000-0000-0000-000000000000",
        epoch=301,
        uid="0" * 36,
        digest="0" * 64,
        base=301,
        group=999,
        admission=1,
        members=groups_text(schedule.live),
        stores=("[fd00::1]:29500",),
        leader_group=lost,
        placement=wire.PlacementRule(groups=1000, redundancy=9, offsets=placement.offsets, strategy="Golomb"),
        micro_batches=32,
        schedule=tuple(ranges),
        reason="groups 0-299 lost",
    )


def test_one_group_s_part_of_a_large_plan_is_small() -> None:
    """A push costs the same per pod whatever the size of the job: 4 KB at 1,000 groups of which 300 are lost."""
    assert len(part_of_a_plan_for_a_thousand().line()) < 4096
