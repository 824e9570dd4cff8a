"""Pods and processes that die in every way that a cluster has, and jobs that lose more than they can spare."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.install import Images
from tests.e2e.jobs import (
    START,
    delete_group,
    integers,
    kill_workers,
    pods_of,
    status,
    told,
    wait_condition,
    wait_step,
)
from tests.e2e.kubectl import Namespace, wait_for
from tests.e2e.ledgers import check_exact, stop_and_audit

pytestmark = pytest.mark.usefixtures("operator")

BACK = 120.0
"""Seconds in which a replacement must train: it is scheduled, imports PyTorch, and joins."""
HUNGRY = (
    "import pathlib, runpy, threading, time\n"
    "def eat():\n"
    "    while not pathlib.Path('/tmp/eat').exists(): time.sleep(0.1)\n"
    "    eaten = []\n"
    "    while True: eaten.append(b'x' * (64 << 20))\n"
    "threading.Thread(target=eat, daemon=True).start()\n"
    "runpy.run_path('integers/train.py', run_name='__main__')\n"
)
"""Trains, and takes all the memory that there is once the file exists."""


def starve(namespace: Namespace, job: str, group: int) -> None:
    """Let the worker take more memory than its pod has: the kernel kills it."""
    (pod,) = pods_of(namespace, job, group)
    namespace.kubectl("exec", pod["metadata"]["name"], "--", "touch", "/tmp/eat")


def identities(namespace: Namespace, job: str) -> dict[str, tuple[str, int]]:
    """uid and restarts of each pod by its name."""
    return {
        pod["metadata"]["name"]: (pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"])
        for pod in pods_of(namespace, job)
        if pod["status"].get("containerStatuses")
    }


def wait_masked(namespace: Namespace, job: str, gone: int) -> None:
    """Until so many groups are gone, by a loss or in good order, and all train again."""

    def probe() -> bool:
        known = status(namespace, job)
        there = known["groups"]["active"] == known["groups"]["desired"]
        return bool(known["masked"] + known["drained"] == gone and there)

    wait_for(f"{gone} losses masked, and all groups back", probe, BACK, lambda: told(namespace, job))


def test_a_pod_a_worker_and_memory_that_is_lost_cost_nobody_else_a_thing(namespace: Namespace, images: Images) -> None:
    """`kubectl delete pod --force`, SIGKILL of a worker, and the kernel's OOM killer, in turn, in one job.

    Each is masked in the step in flight (the first may leave in good order); survivors keep their pods; it is exact.
    """
    job = integers("mortal", images.trainer, namespace, steps=400, seconds=0.05)
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["python", "-c", HUNGRY]
    container["resources"]["limits"] = {"memory": "800Mi"}
    namespace.apply(job)
    wait_condition(namespace, "mortal", "Running", START)
    wait_step(namespace, "mortal", 5, 60)

    ways: tuple[Callable[[Namespace, str, int], object], ...] = (delete_group, kill_workers, starve)
    for masked, kill in enumerate(ways, start=1):
        before = identities(namespace, "mortal")
        (victim,) = (pod["metadata"]["name"] for pod in pods_of(namespace, "mortal", masked))
        kill(namespace, "mortal", masked)
        wait_masked(namespace, "mortal", masked)
        after = identities(namespace, "mortal")
        known = status(namespace, "mortal")

        assert len(after) == 4, told(namespace, "mortal")
        assert {name: each for name, each in before.items() if name != victim}.items() <= after.items()
        assert victim not in after
        if kill is not delete_group:
            assert (known["masked"], known["drained"]) in ((masked, 0), (masked - 1, 1))
            print(f"{kill.__name__}: the next commit after {known['lastReorder']['seconds']} s")  # noqa: T201
            assert known["lastReorder"]["seconds"] <= 2.0

    done = wait_condition(namespace, "mortal", "Complete", 240)
    assert (done["step"], done["masked"] + done["drained"], done["restarts"]) == (400, 3, 0)
    found = check_exact(namespace, images.trainer, steps=400)
    assert found.repeated == 0


def test_the_last_group_computes_what_it_does_not_host(namespace: Namespace, images: Images) -> None:
    """`onWipeOut: Fetch`: three of four groups are killed at once, and the one that is left does all; none restarts."""
    namespace.apply(
        integers("fetch", images.trainer, namespace, steps=120, redundancy=2, seconds=0.05, onWipeOut="Fetch")
    )
    wait_condition(namespace, "fetch", "Running", START)
    wait_step(namespace, "fetch", 10, 60)
    (survivor,) = (pod["metadata"]["uid"] for pod in pods_of(namespace, "fetch", 2))

    names = [pod["metadata"]["name"] for group in (0, 1, 3) for pod in pods_of(namespace, "fetch", group)]
    namespace.kubectl("delete", "pod", *names, "--grace-period=0", "--force", "--wait=false")

    done = wait_condition(namespace, "fetch", "Complete", 240)
    assert (done["step"], done["masked"] + done["drained"], done["restarts"]) == (120, 3, 0)
    assert [pod["metadata"]["uid"] for pod in pods_of(namespace, "fetch", 2)] == [survivor]
    check_exact(namespace, images.trainer, steps=120)


def test_fsdp_groups_of_two_pods_are_lost_and_come_back_as_one(namespace: Namespace, images: Images) -> None:
    """examples/fsdp with its two ranks in a pod each: one pod is killed, its group's other one is replaced with it.

    Then the job is suspended, so that all stop after the same step, and the ledgers of all ranks are audited.
    """
    job = integers("fsdp", images.trainer, namespace, groups=3, redundancy=3, podsPerGroup=2)
    container = job["spec"]["template"]["spec"]["containers"][0]
    container |= {"command": ["python", "fsdp/train.py"], "args": ["100000"]}
    namespace.apply(job)
    wait_condition(namespace, "fsdp", "Running", START)
    wait_step(namespace, "fsdp", 10, 60)
    before = identities(namespace, "fsdp")
    lost = {pod["metadata"]["name"] for pod in pods_of(namespace, "fsdp", 1)}

    namespace.kubectl("delete", "pod", sorted(lost)[1], "--grace-period=0", "--force", "--wait=false")

    wait_masked(namespace, "fsdp", 1)
    after = identities(namespace, "fsdp")
    assert len(before) == len(after) == 6
    assert before.keys() - after.keys() == lost
    wait_step(namespace, "fsdp", status(namespace, "fsdp")["step"] + 5, 60)
    stop_and_audit(namespace, images.trainer, "fsdp", groups=3)
    done = status(namespace, "fsdp")
    assert (done["masked"] + done["drained"], done["restarts"]) == (1, 0)
