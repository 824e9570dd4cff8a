"""Wire messages between the coordinator, the agents and the workers: one JSON object a line, UTF-8.

The coordinator dials each agent and opens with `attach`; the agent answers with `hello`. From then on plans, probes and
orders go down, reports go up, on the same connection. An agent passes plans and orders on to its workers, and the
workers' reports up, unchanged. A group is one or several pods (an agent each) of one or several ranks (a worker each);
they share the group's number and incarnation.

Every message carries the protocol version, the job, the epoch that its sender is in and the incarnation (`uid`) of the
agent it is about. `read` refuses what it does not know by name; `stale` tells why a message of an older epoch or of
another incarnation is not for us (docs/protocol.md, rule 4). Nothing here reads a socket.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from spare.api.assembling import Assemble as Assemble
from spare.api.checkpoint import Name
from spare.api.envelope import PROTOCOL as PROTOCOL
from spare.api.envelope import Envelope as _Message
from spare.api.envelope import FromGroup as _Report
from spare.api.envelope import Phase as Phase
from spare.api.envelope import Said as Said
from spare.api.keeping import Renew as Renew
from spare.api.keeping import Save as Save
from spare.api.keeping import Saved as Saved
from spare.api.keeping import Unreadable as Unreadable
from spare.api.keeping import Unsaved as Unsaved
from spare.api.notation import Address as Address
from spare.api.notation import groups_of as groups_of
from spare.api.notation import groups_text as groups_text

MAX_LINE: Final = 4 * 1024 * 1024
"""Longest message, bytes. A plan for one group of 1,000 takes a few kilobytes; longer lines are an attack or a bug."""


class Refused(Exception):
    """A message that this side must not act on. The text says what it was and why."""


# --- down: coordinator to agent, agent to worker --------------------------------------------------------


class Attach(_Message):
    """First message on a connection. `uid` is the agent that the dialler means to reach."""

    kind: Literal["attach"] = "attach"
    token: str
    """The job's secret; both sides compare it."""
    coordinator: str
    """Incarnation of the coordinator, for the logs."""
    term: int = Field(default=0, ge=0)
    """Growing with every change of leader: agents refuse who was deposed without knowing it (field case F63)."""


class PlacementRule(BaseModel):
    """The placement by rule: what `spare.planner.Placement` needs to be built again, not its table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    groups: int = Field(ge=1)
    redundancy: int = Field(ge=1)
    offsets: tuple[int, ...]
    strategy: str
    ring: tuple[int, ...] | None = None
    """Group at each ring position; absent when it is 0, 1, 2, ..."""


class Legacy(BaseModel):
    """What a group that leaves in the middle of a step holds of it, and gives to the group that is told of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: int = Field(ge=0)
    """Who leaves."""
    epoch: int = Field(ge=0)
    """Epoch under which it offers it."""
    serves: str
    """Addresses at which its ranks give it, once, separated by commas: the heir's rank j takes over the j-th."""


class Plan(_Message):
    """A plan, as one group sees it (docs/protocol.md). Written down before it is pushed."""

    kind: Literal["plan"] = "plan"
    digest: str
    """SHA-256 over the whole plan: two plans of one epoch can never meet in a rendezvous."""
    base: int = Field(ge=0)
    """Epoch of the newest urgent ancestor, itself included: whoever is in an older one acts at once."""
    group: int = Field(ge=0)
    admission: int | None = None
    """Epoch that admitted this incarnation; absent: the group is not a member, and must stop."""
    origin: int = Field(default=1, ge=1)
    """Epoch of the start or restart that the training state comes from. Who was admitted by it begins with that state;
    who was admitted later is a joiner and loads the state from a member."""
    members: str
    """Live groups, as in `groups_text`; a group's rank is its place in this ascending list."""
    stores: tuple[str, ...] = ()
    """Addresses of the leader's stores, one for each of its ranks: at the j-th the ranks j of all members meet."""
    leader_group: int = -1
    placement: PlacementRule
    micro_batches: int = Field(ge=1)
    schedule: tuple[tuple[int, int, int], ...] = ()
    """(shard, first, count): the micro-batches that this group computes in a step."""
    drained: bool = False
    """The group is no member because it asked to leave: its worker and agent end with 0."""
    halt: bool = False
    """Every member stops at the commit at which this plan takes effect, and saves where there is a place for it."""
    writer: int = -1
    """The group that writes checkpoints; -1: none."""
    checkpoint: str = ""
    """What who is admitted by `origin` begins with, see `spare.api.checkpoint.Name`; empty: step 0."""
    legacies: tuple[Legacy, ...] = ()
    """What this group takes over of the step in flight before it says what it holds."""
    skipped: tuple[tuple[int, int, int], ...] = ()
    """(step, shard, index) of micro-batches that are left out of the sum, for they killed groups."""
    reason: str
    """Why this plan was made, for people."""


class Probe(_Message):
    """Asks for a sign of life at once, answered by `alive` with the same nonce."""

    kind: Literal["probe"] = "probe"
    nonce: int


class Finish(_Message):
    """Every member has committed the last step: workers may leave their session."""

    kind: Literal["finish"] = "finish"


class Drain(_Message):
    """Leave at the end of a step, as after SIGTERM to the agent."""

    kind: Literal["drain"] = "drain"
    grace: float | None = Field(default=None, ge=0)
    """Seconds until it must have left; absent: the agent's own grace."""


class HandOn(_Message):
    """From an agent to its worker: its grace is nearly over. Compute no more, and offer what is held of the step."""

    kind: Literal["hand-on"] = "hand-on"


class Stop(_Message):
    """End the worker and the agent now."""

    kind: Literal["stop"] = "stop"
    reason: str


# --- up: worker to agent, agent to coordinator ----------------------------------------------------------


class Hello(_Report):
    """Who the agent is. Sent when attached, once for each rank, and again when a worker is ready (store, pid known)."""

    kind: Literal["hello"] = "hello"
    token: str = ""
    pid: int = 0
    """Process of the worker; 0 before it has said hello to its agent."""
    store: str | None = None
    """Address of this rank's own rendezvous store; absent until the worker is ready."""
    home: str | None = None
    """See `Assemble`; said by the agent of pod 0 where a group has several pods."""
    master: str | None = None
    hand: str = ""
    """For its agent: file in which the worker says which micro-batch it has in hand."""
    checkpoints: tuple[str, ...] = ()
    """The newest complete ones that the worker has found, newest first."""
    step: int = Field(default=0, ge=0)
    """Steps committed."""
    phase: Phase = "starting"


class Alive(_Report):
    """Heartbeat of an agent about one of its workers, and its answer to a probe (then with the nonce)."""

    kind: Literal["alive"] = "alive"
    nonce: int | None = None
    worker: Literal["none", "running", "silent", "exited"]
    """`silent`: the process is there, but is stopped, and has said nothing for `silent_for` seconds."""
    silent_for: float = 0.0
    step: int = Field(default=0, ge=0)
    phase: Phase = "starting"
    micros: int = 0
    """Micro-batches computed in this step."""
    still: float = 0.0
    """Seconds since phase, step or micros last changed: how long the worker has made no progress."""


class Running(_Report):
    """The exchange of `epoch` is complete and the group goes on. Seconds spent in each part."""

    kind: Literal["running"] = "running"
    step: int
    seconds: dict[str, float] = Field(default_factory=dict)
    """abort, store, exchange: what a regroup consists of, on this group."""
    patches: int = 0
    """Micro-batches of the step in flight that this group computes beyond what it held."""


class Committed(_Report):
    """The group has committed steps; `step` counts the committed ones. Of many short ones not each is reported."""

    kind: Literal["committed"] = "committed"
    step: int
    loss: float | None = None
    """Mean over the step's micro-batches; the same on every group."""
    computed: int = 0
    """Micro-batches that this group computed for it, and for those before it that were not reported."""
    seconds: float = 0.0
    """How long it computed them; waiting for others is not in it."""


class Suspect(_Report):
    """A collective or a rendezvous of `epoch` failed here. The group now waits for a plan with base > epoch."""

    kind: Literal["suspect"] = "suspect"
    step: int
    phase: Phase
    error: Said
    unreachable: tuple[int, ...] = ()


class Errored(_Report):
    """The training script raised: text and place of the exception. No failure to mask."""

    kind: Literal["errored"] = "errored"
    step: int
    type: Said
    text: Said
    traceback: Said = ""
    micro: tuple[int, int] | None = None
    """(shard, index) of the micro-batch in hand."""
    ours: bool = False
    """Raised by the runtime (a deadline passed, states differ), not by the user's code."""
    inside: bool = False
    """A connection between ranks of this group broke: another of them has died, and the group is lost with it."""


OUT_OF_MEMORY: Final = "out of memory"
"""In place of the last lines of a worker that the kernel has killed for that."""


class Exited(_Report):
    """The worker's process has ended."""

    kind: Literal["exited"] = "exited"
    code: int | None = None
    signal: int | None = None
    micro: tuple[int, int, int] | None = None
    """(step, shard, index) of the micro-batch that it had in hand."""
    tail: Said = ""
    """The last lines it wrote on stderr."""


class Done(_Report):
    """The group has committed the last step, and waits for `finish` or another plan."""

    kind: Literal["done"] = "done"
    step: int
    digest: str
    """SHA-256 over all parameters."""
    loss: float | None = None


class Leave(_Report):
    """The group was asked to go (SIGTERM, an eviction, `drain`) and wants a plan without it."""

    kind: Literal["leave"] = "leave"
    grace: float = Field(ge=0)
    """Seconds left until it is killed."""
    reason: Said
    serves: str | None = None
    """Address at which this rank gives what it holds of the step in flight. Set when the grace is nearly over: the
    group waits for others or computes no more, and asks for an urgent plan. Each of its ranks says so."""


class Left(_Report):
    """Last words of a group that was let go: it takes part in nothing any more, and ends with 0."""

    kind: Literal["left"] = "left"
    step: int = Field(ge=0)
    """Steps that it had committed."""


class Halted(_Report):
    """The group has committed the last step before a halt, and ends with 0."""

    kind: Literal["halted"] = "halted"
    step: int = Field(ge=0)
    """Steps committed; the same on every group."""
    saved: bool = False
    """A checkpoint of that step has been written, as far as it was this group's to write."""


class Refusal(_Report):
    """The agent or worker did not act on a message, and why."""

    kind: Literal["refusal"] = "refusal"
    what: Said
    reason: Said


Down = Attach | Assemble | Plan | Probe | Finish | Drain | HandOn | Save | Renew | Stop
_Kept = Saved | Unsaved | Unreadable
Up = Hello | Alive | Running | Committed | Suspect | Errored | Exited | Done | Leave | Left | Halted | _Kept | Refusal
Message = Down | Up

_KINDS: Final[dict[str, type[_Message]]] = {
    cls.model_fields["kind"].default: cls
    for cls in (
        *(Attach, Assemble, Plan, Probe, Finish, Drain, HandOn, Save, Renew, Stop),
        *(Hello, Alive, Running, Committed, Suspect, Errored, Exited, Done, Leave, Left, Halted, Refusal),
        *(Saved, Unsaved, Unreadable),
    )
}


def read(line: bytes) -> Message:
    """The message in one line.

    Raises:
        Refused: not JSON, of an unknown kind, of another protocol version, or with wrong fields; the text names which.
    """
    if len(line) > MAX_LINE:
        raise Refused(f"a message of {len(line)} bytes; at most {MAX_LINE} are read")
    try:
        raw: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Refused(f"not a message (no JSON): {line[:80]!r}") from error
    kind = raw.get("kind") if isinstance(raw, dict) else None
    cls = _KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise Refused(f"unknown message {kind!r}; known are {', '.join(_KINDS)}")
    if raw.get("protocol") != PROTOCOL:
        raise Refused(f"message {kind!r} speaks protocol {raw.get('protocol')!r}; this side speaks {PROTOCOL}")
    try:
        message = cls.model_validate(raw)
        for address in _addresses(message):
            Address.parse(address)
        for name in _checkpoints(message):
            Name.parse(name)
        if isinstance(message, Plan) and message.admission is not None:
            if not message.stores:
                raise ValueError("stores: a member is told where to meet")
            groups_of(message.members, message.placement.groups)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise Refused(f"message {kind!r} is malformed: {wrong}") from error
    except ValueError as error:
        raise Refused(f"message {kind!r} is malformed: {error}") from error
    return message  # type: ignore[return-value]  # the table holds exactly the members of the union


def _addresses(message: _Message) -> list[str]:
    match message:
        case Hello():
            return [address for address in (message.store, message.home, message.master) if address is not None]
        case Assemble():
            return [message.home, message.master]
        case Leave():
            return [] if message.serves is None else [message.serves]
        case Plan():
            given = [address for legacy in message.legacies for address in legacy.serves.split(",")]
            return [*message.stores, *given]
        case _:
            return []


def _checkpoints(message: _Message) -> tuple[str, ...]:
    match message:
        case Hello():
            return message.checkpoints
        case Plan():
            return (message.checkpoint,) if message.checkpoint else ()
        case Saved() | Unreadable():
            return (message.name,)
        case _:
            return ()


def stale(message: Message, *, job: str, uid: str, epoch: int = 0) -> str | None:
    """Why a message is not for this job, incarnation or epoch; None when it is. The text names both sides."""
    if message.job != job:
        return f"message {message.kind!r} is for job {message.job!r}; this is {job!r}"
    if message.uid != uid:
        return f"message {message.kind!r} is for incarnation {message.uid!r}; this is {uid!r}"
    if message.epoch < epoch:
        return f"message {message.kind!r} is of epoch {message.epoch}; this side is in epoch {epoch}"
    return None
