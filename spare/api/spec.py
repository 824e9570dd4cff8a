"""The spec of a SPAReJob, field by field: unit, default and reason. The custom resource's schema is made from this.

Attributes are snake_case, the file's fields camelCase. A rule between two fields stands at the later one and reads the
earlier from `info.data`, where it is absent if it was wrong itself: so all problems are found in one pass.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_serializer, field_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from spare.api.duration import format_duration
from spare.api.rule import LABEL_KEY, count_or_auto, duration
from spare.api.template import PodTemplate, Trainer, read_trainer

MAX_GROUPS = 1000
MAX_PODS_PER_GROUP = 16
MAX_PROC_PER_POD = 16
MAX_MICRO_BATCHES = 1024
MAX_SEED = 2**32 - 1
MAX_SECONDS = 2**31 - 1

Auto = Literal["auto"]
Lax = Field(strict=False)
"""For enums and tuples: YAML has neither, so text and lists must do."""


class Strict(BaseModel):
    """No unknown field, no silent conversion (`"8"`, 8.0 and true are not 8), no change after reading."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        strict=True,
        validate_default=True,
    )


class Strategy(StrEnum):
    """How the shards are laid on the groups."""

    GOLOMB = "Golomb"
    CONSECUTIVE = "Consecutive"


class Scheduler(StrEnum):
    """What is moved after a loss."""

    MICRO_BATCHES = "MicroBatches"
    WHOLE_SHARDS = "WholeShards"


class OnWipeOut(StrEnum):
    """What to do once a shard has no live host left."""

    FAIL = "Fail"
    FETCH = "Fetch"
    RESTART = "Restart"


class OnPoison(StrEnum):
    """What to do with a micro-batch that kills one group after another."""

    FAIL = "Fail"
    SKIP = "Skip"


class OnStraggler(StrEnum):
    """What to do with a group that is slower than the others, step after step."""

    REPORT = "Report"
    REBALANCE = "Rebalance"


class CleanPodPolicy(StrEnum):
    """Which pods go once the job has ended."""

    ALL = "All"
    RUNNING = "Running"
    NONE = "None"


class Placement(Strict):
    """Which groups host which shards."""

    strategy: Annotated[Strategy, Lax] = Field(
        default=Strategy.GOLOMB,
        description="Golomb (default): offsets whose differences do not repeat, so that two shards share few hosts and"
        " a loss spreads over many. Consecutive: the paper's neighbouring groups; survives some 7 % more losses, but"
        " the survivors' work is spread less evenly.",
    )
    spread_over: Annotated[str, LABEL_KEY] = Field(
        default="topology.kubernetes.io/zone",
        description="Node label whose values must not all be lost at once: the hosts of a shard are spread over them."
        " Default: topology.kubernetes.io/zone, the largest that fails as one. Of no effect in a local run.",
    )


class Checkpoint(Strict):
    """When and where the state of the training is kept against a wipe-out."""

    path: str | None = Field(
        default=None,
        min_length=1,
        description="Folder that all groups see; in a local run a relative one starts at the job file's folder. A job"
        " goes on from the newest complete checkpoint in it. Default: none, no checkpoints are written.",
    )
    period: Annotated[timedelta | Auto, duration("1s", "720h", or_auto=True)] = Field(
        default="auto",
        description="Time from the beginning of one checkpoint to that of the next; one more is written at the end."
        " Default: auto, the period with the least expected loss, from the measured time to save, the time that a start"
        " takes, and the losses seen so far.",
    )
    keep: int = Field(
        default=3,
        ge=1,
        le=1000,
        description="How many of the newest complete checkpoints are kept. Default: 3, in case one is damaged.",
    )


class Detection(Strict):
    """How soon something that does not answer counts as lost. heartbeat < deadAfter <= hangAfter."""

    heartbeat: Annotated[timedelta, duration("50ms", "1m")] = Field(
        default=timedelta(seconds=1),
        description="How often an agent is heard when all is quiet. Default: 1s; deaths that close a connection are"
        " noticed at once and do not wait for it.",
    )
    dead_after: Annotated[timedelta, duration("100ms", "1h")] = Field(
        default=timedelta(seconds=5),
        description="Silence of an agent after which its group is lost. Default: 5s, a few heartbeats, so that one late"
        " packet costs nobody.",
    )
    hang_after: Annotated[timedelta, duration("100ms", "24h")] = Field(
        default=timedelta(minutes=5),
        description="Time without progress of a worker, its agent well, after which its group is lost. Default: 5m;"
        " must be longer than the longest step, compilation and loading included.",
    )

    slow_after: Annotated[timedelta, duration("1s", "24h")] = Field(
        default=timedelta(seconds=30),
        description="How long a group must take 1.5 times as long as the median for a micro-batch before that is told,"
        " and heeded if onStraggler is Rebalance; and how long it must be about as fast again. Default: 30s, so that"
        " what passes by itself moves nobody.",
    )
    start_timeout: Annotated[timedelta, duration("1s", "24h")] = Field(
        default=timedelta(minutes=5),
        description="Time for a group to get ready, from its start until its script has opened its session. Past it a"
        " job that has not begun starts with minGroups; else a local run fails and says who is missing, and a job on a"
        " cluster waits on for its pods, for quotas and queues may take days. A group whose pods have run for so long"
        " and that is not ready is started again; before training has begun the job fails at the fourth time. Default:"
        " 5m, time for a node to pull an image.",
    )

    @field_validator("dead_after")
    @classmethod
    def _after_several_heartbeats(cls, dead_after: timedelta, info: ValidationInfo) -> timedelta:
        heartbeat = info.data.get("heartbeat")
        if heartbeat is not None and not heartbeat < dead_after:
            limit = f"longer than spec.detection.heartbeat ({format_duration(heartbeat)})"
            raise relation(format_duration(dead_after), f"{limit}, or every group is lost between two of them")
        return dead_after

    @field_validator("hang_after")
    @classmethod
    def _not_before_death(cls, hang_after: timedelta, info: ValidationInfo) -> timedelta:
        dead_after = info.data.get("dead_after")
        if dead_after is not None and not dead_after <= hang_after:
            limit = f"at least spec.detection.deadAfter ({format_duration(dead_after)})"
            raise relation(format_duration(hang_after), f"{limit}, for a dead group shows no progress either")
        return hang_after


class Reduction(Strict):
    """Deadlines inside the groups' collectives: the last resort, no means of detection."""

    collective_timeout: Annotated[timedelta, duration("1s", "24h")] = Field(
        default=timedelta(seconds=600),
        description="Longest wait of one collective operation. Default: 600s; a loss is noticed long before, so a short"
        " one gains nothing and a slow step may pass it.",
    )
    rendezvous_timeout: Annotated[timedelta, duration("1s", "24h")] = Field(
        default=timedelta(seconds=300),
        description="Longest wait for the other groups of a plan. Past it a group that has the training state tells"
        " who did not come, and gets a new plan; one that has not ends, and says for whom it waited. Default: 300s,"
        " time for a node to pull an image.",
    )


class RunPolicy(Strict):
    """When the job runs, how often it may be restarted, what is left of it."""

    suspend: bool = Field(
        default=False, description="True: no pods; those that run finish their step, save and go. Default: false."
    )
    active_deadline_seconds: int | None = Field(
        default=None,
        ge=1,
        le=MAX_SECONDS,
        description="Seconds from the start after which the job is failed. Default: none.",
    )
    backoff_limit: int = Field(
        default=3,
        ge=0,
        le=1_000_000,
        description="How many restarts from a checkpoint are allowed; failures that are masked use none. May be changed"
        " at any time. Default: 3.",
    )
    ttl_seconds_after_finished: int | None = Field(
        default=None,
        ge=0,
        le=MAX_SECONDS,
        description="Seconds after its end at which the job is deleted. Default: never.",
    )
    clean_pod_policy: Annotated[CleanPodPolicy, Lax] = Field(
        default=CleanPodPolicy.RUNNING,
        description="Pods deleted at the end: Running (default; the ended ones keep their logs), All or None.",
    )


class Spec(Strict):
    """What to train, on how many groups, and what to do when they are lost."""

    groups: int = Field(
        ge=1, le=MAX_GROUPS, description="Number N of data-parallel groups, and of shards of each step's global batch."
    )
    pods_per_group: int = Field(
        default=1,
        ge=1,
        le=MAX_PODS_PER_GROUP,
        description="Pods of each group. One lost is the group lost. Default: 1.",
    )
    proc_per_pod: int = Field(
        default=1,
        ge=1,
        le=MAX_PROC_PER_POD,
        description="Worker processes in each pod, one per accelerator. Default: 1.",
    )
    redundancy: Annotated[int | Auto, count_or_auto(1, MAX_GROUPS)] = Field(
        default="auto",
        description="Number r of groups that host each shard; 1 masks nothing. Default: auto, the one with the least"
        " expected time.",
    )
    micro_batches: int = Field(
        default=8,
        ge=1,
        le=MAX_MICRO_BATCHES,
        description="Micro-batches m in each shard, the unit of scheduling: more make a loss cheaper and a step's"
        " overhead larger. Default: 8; powers of two divide exactly.",
    )
    scheduler: Annotated[Scheduler, Lax] = Field(
        default=Scheduler.MICRO_BATCHES,
        description="MicroBatches (default): a lost group's work is shared out in micro-batches. WholeShards: as in the"
        " paper, for comparison; one loss doubles the step.",
    )
    placement: Placement = Field(default=Placement(), description="Which groups host which shards.")
    spares: int = Field(
        default=0,
        ge=0,
        le=MAX_GROUPS,
        description="Groups' processes (on a cluster: their pods) that wait beside the groups, started and connected,"
        " and take the places of lost ones at the next commit. Default: 0.",
    )
    min_groups: int | None = Field(
        default=None,
        ge=1,
        le=MAX_GROUPS,
        description="Fewest groups to start with when not all are ready within detection.startTimeout, and to go on"
        " with: with fewer the job waits for replacements. Default: all of them to start, and any number that hosts"
        " every shard to go on.",
    )
    checkpoint: Checkpoint = Field(default=Checkpoint(), description="Where and when the state is kept.")
    on_wipe_out: Annotated[OnWipeOut, Lax] = Field(
        default=OnWipeOut.FAIL,
        description="When a shard has no live host left: Fail (default) ends the job and reports; Fetch lets survivors"
        " compute shards they do not host, where the data is on shared storage; Restart begins again with all groups"
        " from the newest checkpoint, at most runPolicy.backoffLimit times.",
    )
    on_poison: Annotated[OnPoison, Lax] = Field(
        default=OnPoison.FAIL,
        description="When two groups died on the same micro-batch: Fail (default) ends the job and names it; Skip"
        " leaves it out of the sum and names it.",
    )
    on_straggler: Annotated[OnStraggler, Lax] = Field(
        default=OnStraggler.REPORT,
        description="When a group stays slower than the others: Report (default) says so and changes nothing;"
        " Rebalance gives it fewer micro-batches.",
    )
    detection: Detection = Field(default=Detection(), description="How soon silence counts as loss.")
    reduction: Reduction = Field(default=Reduction(), description="Deadlines inside the collectives.")
    seed: int = Field(
        default=0,
        ge=0,
        le=MAX_SEED,
        description="Of it, step, shard and index each micro-batch's random state is made, so a result does not depend"
        " on who computes it. Default: 0; the largest is what numpy takes.",
    )
    run_policy: RunPolicy = Field(default=RunPolicy(), description="When it runs and what is left of it.")
    template: PodTemplate = Field(
        description="The pod template. The container `trainer`, or the only one, is run as `spare-agent -- COMMAND`."
    )

    @field_validator("redundancy")
    @classmethod
    def _hosts_exist(cls, redundancy: int | Auto, info: ValidationInfo) -> int | Auto:
        groups = info.data.get("groups")
        if groups is not None and redundancy != "auto" and redundancy > groups:
            raise relation(redundancy, f"auto or at most spec.groups ({groups}), the most hosts that a shard can have")
        return redundancy

    @field_validator("min_groups")
    @classmethod
    def _no_more_than_all(cls, min_groups: int | None, info: ValidationInfo) -> int | None:
        groups = info.data.get("groups")
        if groups is not None and min_groups is not None and min_groups > groups:
            raise relation(min_groups, f"at most spec.groups ({groups})")
        return min_groups

    @field_validator("on_wipe_out")
    @classmethod
    def _something_to_go_back_to(cls, on_wipe_out: OnWipeOut, info: ValidationInfo) -> OnWipeOut:
        checkpoint = info.data.get("checkpoint")
        if on_wipe_out is OnWipeOut.RESTART and checkpoint is not None and checkpoint.path is None:
            allowed = "Fail or Fetch while spec.checkpoint.path is not set, for there is nothing to restart from"
            raise relation(on_wipe_out.value, allowed)
        return on_wipe_out

    @field_validator("template")
    @classmethod
    def _one_trainer(cls, template: PodTemplate) -> PodTemplate:
        index = template.trainer_index()
        if index is None:
            allowed = "a list of containers, one of them named trainer or there being only one"
            raise relation(None, allowed, below=".spec.containers")
        if not template.spec.containers[index].command:
            where = f".spec.containers[{index}].command"
            raise relation(None, "the command that trains, as a list of words, not left to the image", below=where)
        return template

    @field_serializer("template")
    def _as_it_stood(self, template: PodTemplate) -> dict[str, Any]:
        return template.plain()

    @property
    def procs_per_group(self) -> int:
        """Ranks of one group: over all of its pods."""
        return self.pods_per_group * self.proc_per_pod

    @property
    def parts(self) -> int:
        """Parts of a shard that are moved one by one: its micro-batches, or the shard itself."""
        return 1 if self.scheduler is Scheduler.WHOLE_SHARDS else self.micro_batches

    @property
    def trainer(self) -> Trainer:
        """What to start in each group."""
        index = self.template.trainer_index()
        assert index is not None  # _one_trainer let it pass
        return read_trainer(self.template.spec.containers[index])


def relation(value: object, allowed: str, *, below: str = "") -> PydanticCustomError:
    """A rule between fields was broken by `value`; `below` names a place inside the field it is found at."""
    context = {"allowed": allowed, "below": below, "value": value}
    return PydanticCustomError("relation", "must be {allowed}, but is {value}{below}", context)
