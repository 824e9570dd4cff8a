"""Nodes that are not ready: few of them are in trouble; where most are, it is who says so that cannot hear."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from spare_operator.nodes import SETTLE, Nodes
from tests.operator.bed import Bed, a_bed
from tests.operator.loop import run
from tests.operator.test_losses import training


def silent(bed: Bed, node: str, *, ready: bool = False, taint: bool = False) -> None:
    """What the control plane makes of a kubelet that it does not hear."""
    status = "True" if ready else "Unknown"
    bed.api.patch("nodes", "", node, status={"conditions": [{"type": "Ready", "status": status, "reason": "Silence"}]})
    taints = [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}] if taint else []
    bed.api.patch("nodes", "", node, spec={"taints": taints})


def test_a_control_plane_that_hears_no_node_sends_nobody_away(tmp_path: Path) -> None:
    """All nodes are not ready, one after the other, for minutes, and all agents answer: nobody leaves, nothing stops.

    Every group was asked to leave at once before, and so the whole job was stopped. A node that stays is left.
    """

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            every = [node["metadata"]["name"] for node in bed.api.all("nodes")]
            for node in every:
                silent(bed, node, taint=True)
                await asyncio.sleep(1.0)
            step = bed.status()["step"]
            await asyncio.sleep(180.0)
            assert bed.status()["step"] > step + 100
            for node in every[1:]:
                silent(bed, node, ready=True)
            await bed.until(lambda: bed.events("Leaving"), "the last is left", 30.0)

            assert all(every[0] in text for text in bed.events("Leaving"))
            assert not bed.events("Halting")
            assert bed.status()["masked"] == 0

    run(main)


def test_an_operator_that_comes_back_before_the_kubelets_waits_for_them(tmp_path: Path) -> None:
    """After an outage of the API server each node is not ready until its kubelet has been heard again."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            await bed.kill(bed.operators[0][0])
            first, *others = [node["metadata"]["name"] for node in bed.api.all("nodes")]
            silent(bed, first)
            bed.operator()
            await bed.until(lambda: bed.operators[0][0].lease.held, "it leads")
            await asyncio.sleep(SETTLE - 2.0)
            silent(bed, first, ready=True)
            for node in others:  # a little is no trouble of theirs, either
                silent(bed, node)
                await asyncio.sleep(SETTLE - 2.0)
                silent(bed, node, ready=True)
            await asyncio.sleep(30.0)

            assert (bed.events("Leaving"), bed.status()["epoch"]) == ([], 1)

    run(main)


def body(name: str, ready: bool) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "True" if ready else "False", "reason": "r"}
    return {"metadata": {"name": name}, "status": {"conditions": [condition]}}


def test_where_most_nodes_of_a_job_are_not_ready_it_stays() -> None:
    """Other nodes do not help it: a job on two of ten, both not ready, has nowhere to go; one of them it leaves."""
    now = [0.0]
    nodes = Nodes(lambda: now[0])
    for number in range(10):
        nodes.see(body(f"n{number}", number > 1))

    now[0] = SETTLE
    assert nodes.trouble("n0", used=lambda: ["n0", "n1"]) is None
    assert nodes.trouble("n0", used=lambda: ["n0", "n5"]) == "node n0 is not ready (r)"
    assert nodes.trouble("n5", used=lambda: ["n0", "n5"]) is None
    nodes.see(body("n0", True))
    assert nodes.trouble("n0", used=lambda: ["n0", "n5"]) is None


def test_a_node_that_is_not_ready_counts_after_a_while_and_is_told_at_once() -> None:
    """It counts from when it was first seen so, however often it is seen."""
    now = [0.0]
    nodes = Nodes(lambda: now[0])
    nodes.see(body("n1", True))
    nodes.see(body("n2", True))
    assert nodes.see(body("n0", False)) == "node n0 is not ready (r)"

    now[0] = SETTLE / 2
    assert nodes.see(body("n0", False)) is None
    assert nodes.trouble("n0") is None
    now[0] = SETTLE
    assert nodes.trouble("n0") is not None
