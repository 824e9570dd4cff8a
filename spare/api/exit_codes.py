"""The exit codes of `spare run`, of the agent and of the worker: one table, from which docs/exit-codes.md is made."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from enum import Enum, IntEnum

_FIRST_SIGNAL = 129


class ExitCode(IntEnum):
    """Each code with its meaning, who exits with it, and whether a group that ends so is masked.

    Masked: the job goes on without the group, and only `status.masked` and an event tell. Not masked: the job ends,
    for the next process would end the same way.
    """

    meaning: str
    source: str
    masked: bool

    def __new__(cls, code: int, meaning: str = "", source: str = "", masked: bool = False) -> ExitCode:
        """A member is the plain number, for sys.exit. Defaults: type checkers take `ExitCode(3)` for a call."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning, member.source, member.masked = meaning, source, masked
        return member

    COMPLETE = 0, "every step is committed; the summary says what was masked", "spare run, agent, worker", False
    USER_ERROR = (
        1,
        "the training script raised an exception, or the job cannot go on from its checkpoint; the text is shown",
        "spare run, agent, worker",
        False,
    )
    USAGE = 2, "the command line or the job file is wrong; nothing was started", "spare run, agent", False
    WIPE_OUT = (
        3,
        "some shard has no live host left, and onWipeOut says Fail, or runPolicy.backoffLimit is used up",
        "spare run",
        False,
    )
    STALLED = 4, "a deadline passed, or failures went on without progress; who was awaited is shown", "spare run", False
    INEXACT = (
        5,
        "a sample was lost or counted twice, or groups hold different parameters: a defect, please report it",
        "spare run",
        False,
    )
    POISON = 6, "two groups died on the same micro-batch, which is named, and onPoison says Fail", "spare run", False
    DEADLINE = 7, "the job ran longer than runPolicy.activeDeadlineSeconds", "spare run", False
    SIGHUP = 129, "its terminal was closed; the job was ended, no process is left", "spare run", True
    INTERRUPTED = 130, "ended by Ctrl-C; no process is left", "spare run", False
    SIGKILL = 137, "killed: out of memory, a node that went, an operator that removed the group", "agent, worker", True
    SIGTERM = 143, "asked to go: a drain, an eviction, the end of the job", "spare run, agent, worker", True


class Blame(Enum):
    """Whom the end of a worker's process speaks against, as far as its exit tells."""

    INFRASTRUCTURE = "killed from outside: out of memory, its node, an eviction, an operator"
    CRASH = "a fault of its own process: memory, arithmetic, an abort; perhaps of the micro-batch in hand"
    SCRIPT = "it left by itself"


_FAULTS = frozenset(
    {
        *(signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE),
        *(signal.SIGILL, signal.SIGSYS, signal.SIGTRAP),
    }
)
"""Signals that a process earns by what it does itself. SIGKILL is none: the kernel's answer to a lack of memory looks
like that of an operator, and memory is a matter of the machine."""


def blame(code: int | None, by: int | None) -> Blame:
    """Whom a worker's end speaks against.

    Args:
        code: Its exit code; None if a signal ended it. 128 + n is signal n, as a shell tells it.
        by: The signal's number; None if it exited.
    """
    if by is None and code is not None and code >= _FIRST_SIGNAL:
        by = code - _FIRST_SIGNAL + 1
    if by is None:
        return Blame.SCRIPT
    # Above 64 there are no signals: such a code is a program's own way to say that it broke (255: exit(-1)).
    return Blame.CRASH if by in _FAULTS or by > 64 else Blame.INFRASTRUCTURE


def is_masked(code: int) -> bool:
    """Whether the job goes on without a group whose process ended with this code.

    A death by a signal that the table does not name (a segmentation fault, 139) is masked like 137: should it follow a
    micro-batch from group to group, that is noticed as poison. Any other code is the script's own, and so its error.
    """
    known = next((each for each in ExitCode if each == code), None)
    return code >= _FIRST_SIGNAL if known is None else known.masked


def document() -> str:
    """The text of docs/exit-codes.md."""
    return "\n".join(_document()) + "\n"


def _document() -> Iterator[str]:
    yield "# Exit codes"
    yield ""
    yield "Made from the table in `spare/api/exit_codes.py`; a test compares the two (`make docs` writes this file)."
    yield ""
    yield "| code | name | meaning | exits with it | masked |"
    yield "|---|---|---|---|---|"
    for code in ExitCode:
        yield f"| {code.value} | {code.name} | {code.meaning} | {code.source} | {'yes' if code.masked else 'no'} |"
    yield ""
    yield "*Masked*: a group whose worker ends with this code is a loss that the job survives. Not masked: the job"
    yield "ends, because the next process would end the same way. A worker that dies of a signal not listed here exits"
    yield "with 128 + its number and is masked (a segmentation fault: 139); any other code is taken for the script's"
    yield "own error."
    yield ""
    yield "`spare drain` ends with 0 once the group has left, with 1 when it was lost instead. The other commands end"
    yield "with 0; with 1 where something could not be done (the cluster does not answer, or forbids it; the job does"
    yield "not train, or has ended); and with 2 where they were called wrongly, or name what is not there: a file, a"
    yield "kubeconfig, a context, a job, a group."
    yield ""
    yield "## Poison"
    yield ""
    yield "A micro-batch that kills one group after another must not wander through the job (`spec.onPoison`). Of how a"
    yield "worker ended, this counts against the micro-batch that it had in hand:"
    yield ""
    yield "| the worker's end | speaks against | counts |"
    yield "|---|---|---|"
    faults = ", ".join(sorted(each.name for each in _FAULTS))
    yield f"| {faults}, and the codes 128 + their numbers; codes above 192 | {Blame.CRASH.value} | yes |"
    yield f"| codes 0 to 128, no exception told | {Blame.SCRIPT.value} | yes, if a micro-batch was in hand |"
    yield f"| every other signal, SIGKILL above all; a pod or node that went | {Blame.INFRASTRUCTURE.value} | no |"
    yield ""
    yield "An exit by itself in the midst of a micro-batch is so masked once; a second one, elsewhere, is the script's"
    yield "error. An exception ends the job at once, whatever was in hand."
