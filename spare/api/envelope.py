"""What every wire message has in common: protocol, job, epoch, incarnation; of a report also who says it."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

PROTOCOL: Final = 1
"""Version of the messages below. Both sides must speak the same one."""

LONGEST_TEXT: Final = 20_000
"""Characters kept of a text that people or programs wrote; an exception's may be as long as a tensor."""

Phase = Literal["starting", "rendezvous", "compute", "reduce", "barrier", "commit", "load", "failed", "done", "stopped"]
"""Where a worker is: the states of the protocol's model (IDLE, RDV, COMP, RED, BAR, LOAD, FAIL, finished, STOP), and
`commit`, the optimizer's step after the barrier."""


def _said(text: object) -> object:
    """Text from outside that must reach people: what is no Unicode (an undecoded file name) becomes `?`."""
    return text[:LONGEST_TEXT].encode(errors="replace").decode() if isinstance(text, str) else text


Said = Annotated[str, BeforeValidator(_said)]


class Envelope(BaseModel):
    """A message, one JSON object in a line."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    protocol: int = PROTOCOL
    job: str
    """The job's unique name (namespace/name/uid on Kubernetes, name/run locally); others' messages are refused."""
    epoch: int = Field(ge=0)
    """Epoch the sender is in; of a plan: its own number. 0 before the first plan."""
    uid: str
    """Incarnation of the agent that the message is from or for: fresh at every start of an agent."""

    def line(self) -> bytes:
        """The message as it goes over the wire, newline included."""
        return self.model_dump_json(exclude_none=True).encode() + b"\n"


class FromGroup(Envelope):
    """A report: which group says it, and which of its pods and ranks."""

    group: int = Field(ge=0)
    pod: int = Field(default=0, ge=0)
    """Which of the group's pods."""
    rank: int = Field(default=0, ge=0)
    """Which of the group's workers, counted over all its pods: pod * procPerPod + its place in the pod."""
