"""Wire messages about checkpoints: who writes them and when, what came of it, and beginning anew from one."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from spare.api.envelope import Envelope, FromGroup, Said


class Save(Envelope):
    """Down: the group that the plan names as the writer writes checkpoints from now on, until another order comes.

    A standing order, so that checkpoints go on being written while the coordinator is away.
    """

    kind: Literal["save"] = "save"
    due: float = Field(ge=0)
    """Seconds from now until the first, which is written behind the next commit then."""
    period: float = Field(gt=0)
    """Seconds from the beginning of one to that of the next."""


class Renew(Envelope):
    """Down: end the workers and start them again, under the same incarnation: all groups go back to a checkpoint."""

    kind: Literal["renew"] = "renew"
    reason: Said


class Saved(FromGroup):
    """Up: a checkpoint is complete."""

    kind: Literal["saved"] = "saved"
    name: str
    """`spare.api.checkpoint.Name` as text."""
    staged: float = Field(ge=0)
    """Seconds for which training stood still for it."""
    seconds: float = Field(ge=0)
    """From its beginning until it was complete."""
    size: int = Field(ge=0)
    """Bytes."""


class Unsaved(FromGroup):
    """Up: a checkpoint did not come about. Training goes on; the next one is tried when it is due."""

    kind: Literal["unsaved"] = "unsaved"
    step: int = Field(ge=0)
    error: Said


class Unreadable(FromGroup):
    """Up: the checkpoint that the plan begins with cannot be read here, or is not what was written."""

    kind: Literal["unreadable"] = "unreadable"
    name: str
    error: Said
