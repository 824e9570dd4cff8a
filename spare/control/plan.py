"""A whole plan: who is a member, who computes what, and where they meet. Each agent gets only its own part."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from spare.api import wire
from spare.planner.schedule import Schedule


@dataclass(frozen=True)
class Member:
    """One group of a plan, as the incarnation that it was admitted as."""

    group: int
    uid: str
    admission: int
    """Epoch that admitted this incarnation: state of another admission is worthless (docs/protocol.md)."""


@dataclass(frozen=True)
class Leaving:
    """An incarnation that is no member because it asked to leave."""

    group: int
    uid: str
    heir: int = -1
    """The member that takes over what it holds of the step in flight; -1: there is nothing to take over."""
    serves: str = ""
    """Where its ranks give it, by rank, separated by commas."""
    offered: int = 0
    """Under which epoch they do."""


@dataclass(frozen=True)
class Plan:
    """What holds from `epoch` on. Written down whole before anybody is told (docs/protocol.md, rule 5)."""

    job: str
    epoch: int
    base: int
    """Epoch of the newest urgent ancestor, itself included."""
    members: tuple[Member, ...]
    """Ascending by group number, as numbers: a group's rank is its place here (field case F02)."""
    leader: int
    stores: tuple[str, ...]
    """Addresses of the stores of the leader's ranks; only these, for a plan must stay small."""
    schedule: Schedule
    reason: str
    origin: int = 1
    """Epoch of the start that the training state comes from."""
    skipped: tuple[tuple[int, int, int], ...] = ()
    """(step, shard, index) of micro-batches that are left out of the sum, ascending."""
    writer: int = -1
    """The group that writes checkpoints; -1: none."""
    checkpoint: str = ""
    """What `origin` began with, see `spare.api.checkpoint.Name`; empty: step 0."""
    leaving: tuple[Leaving, ...] = ()
    halt: bool = False
    """Every member stops where this plan takes effect."""

    @cached_property
    def by_group(self) -> dict[int, Member]:
        """The members by their group number."""
        return {member.group: member for member in self.members}

    @cached_property
    def groups(self) -> tuple[int, ...]:
        """Numbers of the member groups, ascending."""
        return tuple(member.group for member in self.members)

    def has(self, group: int, uid: str) -> bool:
        """Whether that incarnation of the group is a member."""
        member = self.by_group.get(group)
        return member is not None and member.uid == uid

    @cached_property
    def digest(self) -> str:
        """SHA-256 over everything but the reason, which is for people: two plans of one epoch can never meet."""
        whole = {key: value for key, value in self._body.items() if key != "reason"}
        text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def _body(self) -> dict[str, Any]:
        return {
            "job": self.job,
            "epoch": self.epoch,
            "base": self.base,
            "members": [{"group": m.group, "uid": m.uid, "admission": m.admission} for m in self.members],
            "leader": self.leader,
            "stores": list(self.stores),
            "origin": self.origin,
            "writer": self.writer,
            "checkpoint": self.checkpoint,
            "leaving": [asdict(leaving) for leaving in self.leaving],
            "halt": self.halt,
            "schedule": self.schedule.to_json(),
            "skipped": [list(micro) for micro in self.skipped],
            "reason": self.reason,
        }

    def to_json(self) -> str:
        """The plan as it is recorded: one JSON object, keys sorted, its digest included."""
        return json.dumps({**self._body, "digest": self.digest}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read what `to_json` wrote.

        Raises:
            ValueError: no such document, or its digest is not that of its contents.
        """
        try:
            raw = json.loads(text)
            plan = cls(
                job=raw["job"],
                epoch=raw["epoch"],
                base=raw["base"],
                members=tuple(Member(**member) for member in raw["members"]),
                leader=raw["leader"],
                stores=tuple(raw["stores"]),
                schedule=Schedule.from_json(raw["schedule"]),
                reason=raw["reason"],
                origin=raw["origin"],
                skipped=tuple((step, shard, index) for step, shard, index in raw["skipped"]),
                writer=raw["writer"],
                checkpoint=raw["checkpoint"],
                leaving=tuple(Leaving(**leaving) for leaving in raw["leaving"]),
                halt=raw["halt"],
            )
            digest = raw["digest"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a recorded plan: {error!r}") from error
        if digest != plan.digest:
            raise ValueError(f"recorded plan of epoch {plan.epoch}: digest {digest} is not its contents' {plan.digest}")
        return plan

    def part_for(self, group: int, uid: str) -> wire.Plan:
        """What a group's agents are told: its own share, and the placement by rule. Of no member: that it must stop."""
        placement = self.schedule.placement
        ring = None if placement.ring == tuple(range(placement.groups)) else placement.ring
        member = self.by_group[group] if self.has(group, uid) else None
        return wire.Plan(
            job=self.job,
            epoch=self.epoch,
            uid=uid,
            digest=self.digest,
            base=self.base,
            origin=self.origin,
            group=group,
            admission=member.admission if member else None,
            members=self._members_text,
            stores=self.stores,
            leader_group=self.leader,
            placement=wire.PlacementRule(
                groups=placement.groups,
                redundancy=placement.redundancy,
                offsets=placement.offsets,
                strategy=placement.strategy,
                ring=ring,
            ),
            micro_batches=self.schedule.micro_batches,
            schedule=tuple((r.shard, r.first, r.count) for r in self.schedule.ranges(group)) if member else (),
            skipped=self.skipped,
            writer=self.writer,
            checkpoint=self.checkpoint,
            drained=any((leaving.group, leaving.uid) == (group, uid) for leaving in self.leaving),
            halt=self.halt,
            legacies=tuple(
                wire.Legacy(group=leaving.group, epoch=leaving.offered, serves=leaving.serves)
                for leaving in self.leaving
                if member and leaving.heir == group
            ),
            reason=self.reason,
        )

    @cached_property
    def _members_text(self) -> str:
        return wire.groups_text(self.groups)
