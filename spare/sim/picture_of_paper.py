"""The pictures of docs/paper.md, from the results on disk. Imports matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spare.sim import picture
from spare.sim.departures import MICRO
from spare.sim.published import REPLICATION, SIZES, SPARE
from spare.sim.tables import ladder_labels, ladder_row


def draw(paper: Mapping[str, Any], beyond: Mapping[str, Any], folder: Path) -> None:
    """Write masking.png, against-r.png and departures.png."""
    picture.masking(paper["mu"], paper["depth"], folder / "masking.png")
    micro = [row for row in beyond["ladder"] if row["label"] == MICRO]
    published = {"SPARe": SPARE, "replication": REPLICATION}
    picture.against_redundancy(paper["table"], micro, published, folder / "against-r.png")
    labels = ladder_labels(beyond)
    series = {f"N = {n}": [ladder_row(paper, beyond, label, n)["ratio"]["mean"] for label in labels] for n in SIZES}
    picture.bars(labels, series, "TTT / T0", folder / "departures.png")
