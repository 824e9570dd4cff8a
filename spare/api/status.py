"""The status of a SPAReJob: what the operator writes and everybody else reads. The CRD's schema is made from this.

One writer: the operator that holds the Lease. What is unknown yet is absent, never zero. Conditions of other owners
stay where they are. Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

from spare.api.reasons import ConditionType

Moment = Annotated[
    datetime,
    Field(strict=False),
    PlainSerializer(lambda moment: moment.strftime("%Y-%m-%dT%H:%M:%SZ"), return_type=str, when_used="json"),
]
"""A time in UTC, to the second, as Kubernetes writes it."""

ORDER: Final = (
    ConditionType.FAILED,
    ConditionType.COMPLETE,
    ConditionType.SUSPENDED,
    ConditionType.DEGRADED,
    ConditionType.RUNNING,
)
"""Order of our conditions in the list. The column State shows the first that is true: Degraded rather than Running."""

FINAL: Final = frozenset({ConditionType.COMPLETE, ConditionType.FAILED})


class _Read(BaseModel):
    """Fields of newer versions are passed over when read: an operator that is older than the CRD must still work."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, strict=True)


class Condition(_Read):
    """One observation, in the form that all Kubernetes APIs share."""

    type: str = Field(min_length=1, max_length=316, description="What is observed: " + ", ".join(ORDER) + ".")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: str = Field(
        pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        min_length=1,
        max_length=1024,
        description="Why, as one word that alerts may rely on.",
    )
    message: str = Field(default="", max_length=32768, description="Why, as a sentence for people.")
    last_transition_time: Moment = Field(description="When `status` last changed; a new reason alone does not move it.")
    observed_generation: int = Field(
        default=0, ge=0, description="metadata.generation that the observation was made for."
    )


class Groups(_Read):
    """How many groups there are of each kind."""

    desired: int = Field(ge=0, description="spec.groups.")
    active: int = Field(default=0, ge=0, description="Members of the newest plan that have the training state.")
    joining: int = Field(
        default=0, ge=0, description="Asked for, started or admitted, but still without the training state."
    )
    spare: int = Field(default=0, ge=0, description="Spares that wait, started and connected, to replace a lost one.")
    spares_desired: int = Field(default=0, ge=0, description="spec.spares; those that are not ready yet are started.")
    lost: int = Field(default=0, ge=0, description="Neither active nor joining: desired - active - joining.")


class LastReorder(_Read):
    """The last time that work was shared out anew."""

    time: Moment = Field(description="When the plan was made.")
    reason: str = Field(description="What happened: which groups, on which node, and why that was concluded.")
    seconds: float | None = Field(
        default=None, ge=0, description="From the first sign of it to the first step committed under the plan."
    )
    moved: int = Field(
        default=0, ge=0, description="Micro-batches that survivors exchanged among themselves, beyond the lost ones."
    )


class Status(_Read):
    """What is known of the job. Written by the operator alone."""

    observed_generation: int = Field(default=0, ge=0, description="metadata.generation that this status is about.")
    conditions: Annotated[tuple[Condition, ...], Field(strict=False)] = Field(
        default=(),
        description="At most one of Running, Suspended, Complete and Failed is true; Degraded only together with"
        " Running. Complete and Failed are final.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    groups: Groups | None = Field(default=None, description="How many groups there are of each kind.")
    epoch: int = Field(default=0, ge=0, description="Number of the newest plan; written before the plan is pushed.")
    digest: str | None = Field(default=None, description="SHA-256 of the newest plan, written together with its epoch.")
    step: int | None = Field(default=None, ge=0, description="Steps committed.")
    depth: float | None = Field(
        default=None,
        ge=0,
        description="Micro-batches of the most loaded group, divided by microBatches: 1 while healthy, at least N/(N-k)"
        " with k groups lost. A step takes about this many times a healthy one.",
    )
    hosts_left: int | None = Field(
        default=None,
        ge=0,
        description="Fewest live hosts that any shard has; at 1 the next loss may be a wipe-out.",
    )
    masked: int = Field(default=0, ge=0, description="Losses of groups that cost neither a restart nor a sample.")
    drained: int = Field(
        default=0, ge=0, description="Groups that left in good order because they were asked to; no losses."
    )
    restarts: int = Field(default=0, ge=0, description="Restarts of all groups from a checkpoint; never reset.")
    last_reorder: LastReorder | None = Field(default=None, description="The last time that work was shared out anew.")
    start_time: Moment | None = Field(
        default=None,
        description="When the job was first taken up, or last after a suspension: runPolicy.activeDeadlineSeconds"
        " counts from here, as with a Kubernetes Job. Absent while suspended.",
    )
    completion_time: Moment | None = Field(default=None, description="When the job became Complete or Failed.")

    def plain(self) -> dict[str, Any]:
        """As it stands in the object."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @property
    def state(self) -> ConditionType | None:
        """The first of our conditions that is true; None before anything runs."""
        return state_of(self.conditions)

    @property
    def final(self) -> bool:
        """Whether the job has ended: nothing that happens later changes that."""
        return self.state in FINAL


def state_of(conditions: Iterable[Condition]) -> ConditionType | None:
    """The first of our conditions, in `ORDER`, that is true."""
    true = {condition.type for condition in conditions if condition.status == "True"}
    return next((each for each in ORDER if each.value in true), None)


def with_state(
    conditions: Iterable[Condition],
    state: ConditionType | None,
    *,
    reason: str,
    message: str,
    now: datetime,
    generation: int,
    degraded: bool = False,
) -> tuple[Condition, ...]:
    """All of our conditions for one state of the job, so that they cannot contradict each other.

    Args:
        conditions: those in the object; other owners' are kept, after ours.
        state: Running, Suspended, Complete or Failed; None: none of them (starting, or waiting for pods).
        reason: of the conditions that are true, and, while nothing runs, of Running being false.
        degraded: fewer groups train than asked for; only while running.

    Returns:
        The conditions as they were when the job has ended already: Complete and Failed are final.

    Raises:
        ValueError: `state` is Degraded, which goes with Running, or `degraded` without running.
    """
    before = tuple(conditions)
    if state is ConditionType.DEGRADED or (degraded and state is not ConditionType.RUNNING):
        raise ValueError(f"Degraded goes with Running only, not with {state}")
    if state_of(before) in FINAL:
        return before
    known = {condition.type: condition for condition in before}
    ours = []
    for kind in ORDER:
        holds = kind is state or (kind is ConditionType.DEGRADED and degraded)
        old = known.pop(kind.value, None)
        if old is None and not holds and kind is not ConditionType.RUNNING:
            continue  # what was never true need not be denied
        ours.append(
            Condition(
                type=kind.value,
                status="True" if holds else "False",
                reason=reason,
                message=message,
                last_transition_time=old.last_transition_time if old and (old.status == "True") == holds else now,
                observed_generation=generation,
            )
        )
    return (*ours, *known.values())
