"""What can go wrong in the pod-side runtime.

SpareError
|- CollectiveFailed     a reduction, barrier or connection failed: answered by a regroup, never shown to the user
|- JobEnded             the job has ended well meanwhile: answered by leaving (see Departed), never shown to the user
|- Superseded           a newer plan came while waiting: answered by acting on it, never shown to the user
|- RendezvousTimeout    nobody to meet within the deadline
|- PlanTimeout          no plan came within the deadline
|- GroupBroken          another rank of this group has died: the whole group is lost
|- StateDiverged        members that committed the same steps hold different parameters
|- LedgerUnwritable     the ledger cannot be written (a full disk)
|- StateLost            no member of the plan has the training state
|- CheckpointDamaged    a checkpoint is not what was written: answered by an older one
|- CheckpointMismatch   a checkpoint is of another model, or of other data: both values are named
`- SessionMisuse        the training script broke the contract of `Session`

Departed is no error: it ends a script whose group leaves in good order, with 0.
"""

from __future__ import annotations

import re


def clause(text: str) -> str:
    """What went wrong, of a text of gloo's: without the place in its source, and without its advice.

    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]:4242. This is typically
    caused by ..." is "Connection closed by peer [::1]:4242". Other texts stay as they are.
    """
    place = re.match(r"\[[^\]]*gloo/[^\]]*\] ", text)
    return text[place.end() :].partition(". ")[0] if place else text


class SpareError(Exception):
    """Base of all."""


class CollectiveFailed(SpareError):
    """An operation with the other groups failed; `whole` is the text for the log. `unreachable` are the groups that
    could not be reached, where known."""

    def __init__(self, what: str, error: str, unreachable: tuple[int, ...] = ()) -> None:
        super().__init__(f"{what}: {clause(error)}")
        self.whole = f"{what}: {error}"
        self.unreachable = unreachable


class JobEnded(SpareError):
    """All have committed the last step: no plan will come any more."""


class Superseded(SpareError):
    """A newer plan makes the wait pointless."""


class RendezvousTimeout(SpareError):
    """The members of a plan did not meet in time; the text says whom we waited for, where, how long, the last error.

    Who has nothing yet ends by it. A member that holds the job's state answers it as any failed collective: whoever did
    not come must not end all others. `unreachable` are the groups that did not come, where known.
    """

    def __init__(self, text: str, unreachable: tuple[int, ...] = ()) -> None:
        super().__init__(text)
        self.unreachable = unreachable


class PlanTimeout(SpareError):
    """No plan came in time; the text says since when and what was last seen."""


class GroupBroken(SpareError):
    """A rank of this group has died, or cannot be reached: the group is lost, and this rank with it."""


class StateDiverged(SpareError):
    """Parameters differ between members that committed the same steps."""


class StateLost(SpareError):
    """No member has the training state any more: a wipe-out."""


class LedgerUnwritable(SpareError):
    """The proof of what is computed cannot be kept: without it nothing may be committed."""


class CheckpointDamaged(SpareError):
    """A checkpoint cannot be read, or is not what was written."""


class CheckpointMismatch(SpareError):
    """A job cannot go on from the checkpoint that is there; the text has the checkpoint's values and the job's."""


class SessionMisuse(SpareError):
    """The training script used the session in a way that cannot be exactly-once."""


class Departed(SystemExit):
    """The group leaves, or the job halts: the script ends here with 0, its `finally` blocks run, the rest does not."""

    def __init__(self, why: str) -> None:
        super().__init__(0)
        self.why = why
