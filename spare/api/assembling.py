"""The wire message that puts the pods of one group together."""

from __future__ import annotations

from typing import Literal

from spare.api.envelope import Envelope


class Assemble(Envelope):
    """To the agents of a group of several pods: where its ranks meet. Their workers start when they know it."""

    kind: Literal["assemble"] = "assemble"
    home: str
    """Address of the store that the agent of pod 0 serves for the group's own process group."""
    master: str
    """Address that pod 0 keeps free for a script that calls `init_process_group` itself (MASTER_ADDR, MASTER_PORT)."""
