"""Names under which the outside world hears what happened: event reasons and conditions, each with its meaning.

They are part of the contract: people write alerts on them. A name is never reused for something else.
"""

from __future__ import annotations

from enum import StrEnum


class _Named(StrEnum):
    """A name that knows its meaning; the member is the plain text."""

    meaning: str

    def __new__(cls, name: str, meaning: str = "") -> _Named:
        """Takes `name, meaning`; the name is the value. Default: for type checkers, which take a look-up for a call."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.meaning = meaning
        return member


class EventReason(_Named):
    """Why an event was written, and what a condition's `reason` may say."""

    STARTED = "Started", "all groups, or as many as minGroups asks for, train"
    POD_CREATED = "PodCreated", "a pod (locally: a process) was started for a group"
    SUSPECTED = "Suspected", "a group is reported as unreachable, all agents are asked; in a local run and in logs only"
    GROUP_LOST = "GroupLost", "one or more groups do not take part any more; one event for what is lost together"
    REFUSED = "Refused", "a message of another epoch or incarnation, or without the token, was not acted on"
    UNHEARD = (
        "Unheard",
        "most agents fell silent at once (taken for our own network), or the coordinator stood still: nobody is lost",
    )
    REORDERED = "Reordered", "a new plan shares the work out among the groups that are left"
    GROUP_REJOINED = "GroupRejoined", "a replacement has loaded the state and takes part again"
    SPARE_READY = "SpareReady", "a spare has started and connected, and waits for the place of a lost group"
    SPARE_USED = "SpareUsed", "a spare has taken the place of a group that was lost or has left, and joins"
    SPARE_LOST = "SpareLost", "a spare died while it waited; nobody depends on it, and another is started"
    LEAVING = "Leaving", "a group was asked to go; it leaves at a step's end, if the others can do without it"
    DRAINED = "Drained", "a group left because it was asked to: at a step's end, or handing on what it had computed"
    HALTING = "Halting", "the job was asked to stop; all groups finish the step in flight and save it"
    STRAGGLER = "Straggler", "a group stays slower than the others"
    POISON = "Poison", "two groups died on the same micro-batch, which is named"
    CHECKPOINTED = "Checkpointed", "a checkpoint is complete; it is named, with what it took"
    CHECKPOINT_FAILED = "CheckpointFailed", "a checkpoint did not come about; training goes on, and the next is tried"
    CHECKPOINT_UNREADABLE = "CheckpointUnreadable", "a checkpoint is not what was written; an older one is taken"
    CHECKPOINT_MISMATCH = "CheckpointMismatch", "the job cannot go on from the checkpoint there; both values are named"
    CONTINUED = "Continued", "a new job goes on from the checkpoint that is named"
    BELOW_MIN_GROUPS = "BelowMinGroups", "fewer groups than minGroups are there; training waits for replacements"
    WIPE_OUT = "WipeOut", "some shard has no live host left"
    RESTARTED = "Restarted", "all groups began again from the checkpoint that is named"
    USER_ERROR = "UserError", "the training script raised an exception, whose text is shown"
    DIVERGED = "Diverged", "groups that committed the same steps hold different parameters"
    INVALID_PLAN = "InvalidPlan", "a plan would break a rule, and nobody was told of it: a defect, please report it"
    STALLED = "Stalled", "a deadline passed, or failures went on without progress"
    INTERRUPTED = "Interrupted", "the run was ended from outside, by Ctrl-C or SIGTERM"
    COMPLETED = "Completed", "every step is committed"
    SUSPENDED = "Suspended", "the job stopped because it was asked to; the text says from where it goes on"
    BACKEND_FAILED = "BackendFailed", "something could not be written down, or ended; it is tried again until it can"
    QUOTA_EXCEEDED = "QuotaExceeded", "a quota lets too few pods in; it is tried again"
    PODS_NOT_STARTING = "PodsNotStarting", "containers cannot start; the pod and the kubelet's reason are named"
    MARKS_RESTORED = "MarksRestored", "labels or owner of pods that somebody had changed were put back; the pods stay"
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded", "more restarts than runPolicy.backoffLimit allows"
    INVALID_SPEC = (
        "InvalidSpec",
        "the spec breaks rules that the API server does not check; all are named",
    )
    DEADLINE_EXCEEDED = "DeadlineExceeded", "the job ran longer than runPolicy.activeDeadlineSeconds"


class ConditionType(_Named):
    """Conditions in the status. At most one of all but Degraded is true; Degraded only together with Running."""

    RUNNING = "Running", "a plan was pushed and its groups train"
    DEGRADED = "Degraded", "fewer groups train than spec.groups asks for"
    SUSPENDED = "Suspended", "there are no pods because the job was asked to stop, and it can go on"
    COMPLETE = "Complete", "every step is committed; final"
    FAILED = "Failed", "the job has ended without that; the reason says why; final"
