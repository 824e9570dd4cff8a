"""Groups of several ranks: whichever of them dies, at whatever point, weights and ledger are as if nothing had."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.runs import Run, check_survived, job_file, result, start, undisturbed, undisturbed_digest
from tests.training.test_drains import asks_to_go, told, with_grace

pytestmark = pytest.mark.timeout(300)

STEPS = 8
DETECTION = {"heartbeat": "500ms", "deadAfter": "10s", "hangAfter": "60s"}


def small(folder: Path, script: str, **more: Any) -> Path:
    """Three groups, each a host of every shard, of two ranks."""
    ranks = {} if "podsPerGroup" in more else {"procPerPod": 2}
    env = {"STEPS": str(STEPS), **more.pop("env", {})}
    return job_file(folder, groups=3, redundancy=3, script=script, env=env, detection=DETECTION, **ranks, **more)


def run(job: Path, *arguments: str) -> Run:
    """To its end. Twice as many processes as in other tests start here, and again when a group comes back."""
    return result(start(job, *arguments), job, deadline=270.0)


def joint(digests: list[str]) -> str:
    """A group's digest, of its ranks'."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def of_halves(steps: int = STEPS, ranks: int = 2) -> str:
    """Every rank has all parameters."""
    return joint([undisturbed_digest(steps, 3, 4)] * ranks)


def of_parts(steps: int = STEPS, ranks: int = 2) -> str:
    """Each rank has the part of each parameter that FSDP2 gives it: rows, as many as fit evenly."""
    digests = []
    for rank in range(ranks):
        sha = hashlib.sha256()
        for name, p in undisturbed(steps, 3, 4).named_parameters():
            sha.update(f"{name}{tuple(p.shape)}{p.dtype}".encode())
            parts = torch.chunk(p.detach(), ranks)
            if rank < len(parts):
                sha.update(parts[rank].contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        digests.append(sha.hexdigest())
    return joint(digests)


def survived(done: Run, masked: int, digest: str, steps: int = STEPS) -> None:
    """The promise, for these jobs."""
    check_survived(done, steps=steps, groups=3, masked=masked, digest=digest)


@pytest.mark.slow
def test_a_rank_of_each_of_two_groups_dies(tmp_path: Path) -> None:
    """One before it has reduced, one when all hold the sum: both groups are lost, with all that the third lacks."""
    done = run(small(tmp_path, "halves.py"), "--kill", "1.1@2:compute", "--kill", "0@5:barrier")

    survived(done, 2, of_halves())
    assert [r["groups"] for r in done.summary["recoveries"]] == [[1], [0]], done.told()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "rank", "point"),
    [(0, 1, "compute"), (2, 0, "reduce"), (0, 0, "barrier"), (2, 1, "step"), (0, 1, "regroup"), (2, 0, "regroup")],
)
def test_any_rank_dies_at_any_point_of_a_step_of_fsdp(tmp_path: Path, group: int, rank: int, point: str) -> None:
    """FSDP2 inside the group: collectives within a micro-batch, parts of parameters, reduced by parts.

    Each point, with ranks and groups that alternate; one rank a group is killed at every point in `test_kills`.
    """
    arguments = ["--kill", f"{group}.{rank}@3:{point}"]
    if point == "regroup":  # something must make them regroup first
        arguments += ["--kill", f"1.{1 - rank}@3:compute"]

    done = run(small(tmp_path, "sharded.py"), *arguments)

    survived(done, len(arguments) // 2, of_parts())


@pytest.mark.slow
def test_two_ranks_of_different_number_die_at_once(tmp_path: Path) -> None:
    """The survivors' ranks each see one death among those they reduce with, and regroup as one."""
    done = run(small(tmp_path, "halves.py"), "--kill", "1.0@3:reduce", "--kill", "2.1@3:reduce")

    survived(done, 2, of_halves())


@pytest.mark.slow
@pytest.mark.parametrize("script", ["halves.py", "sharded.py"])
def test_a_lost_group_comes_back_with_all_its_ranks(tmp_path: Path, script: str) -> None:
    """Each rank loads its part from the donor's rank of its number."""
    job = small(tmp_path, script, env={"STEPS": "100", "MICRO_SECONDS": "0.08"})

    done = run(job, "--kill", "1.1@5:reduce")

    survived(done, 1, (of_halves if script == "halves.py" else of_parts)(100), steps=100)
    assert [e["groups"] for e in done.events if e.get("reason") == "GroupRejoined"] == [[1]], done.told()
    last = [e for e in done.events if e.get("type") == "progress"][-1]
    assert (last["live"], last["depth"]) == (3, 1.0), done.told()


@pytest.mark.slow
def test_the_donor_s_rank_dies_while_it_gives(tmp_path: Path) -> None:
    """The joiner's other rank may have loaded already: it loads again, from the next donor."""
    job = small(tmp_path, "halves.py", env={"STEPS": "120", "MICRO_SECONDS": "0.06"})

    done = run(job, "--kill", "2.0@5", *(a for step in range(6, 120) for a in ("--kill", f"0.1@{step}:give")))

    survived(done, 2, of_halves(120), steps=120)
    assert [2] in [e["groups"] for e in done.events if e.get("reason") == "GroupRejoined"], done.told()


@pytest.mark.slow
def test_two_pods_of_two_ranks(tmp_path: Path) -> None:
    """A rank of the second pod dies, later a whole pod with its agent."""
    job = small(tmp_path, "halves.py", podsPerGroup=2, procPerPod=2)

    done = run(job, "--kill", "1.3@2:reduce", "--kill-group", "2.2@5:compute")

    survived(done, 2, of_halves(ranks=4))


def hands_on(folder: Path, *arguments: str, **more: Any) -> Run:
    """Group 1 gets SIGTERM at one of its agents, after the first of two steps of eight micro-batches, each of which is
    longer than its grace."""
    job = with_grace(small(folder, "halves.py", micro_batches=8, **more), 9)
    process = start(job, "--no-replacements", *arguments)
    asks_to_go(folder, 1, after=3 * 2)
    return result(process, job, deadline=270.0)


def check_handed_on(done: Run, masked: int = 0, ranks: int = 2) -> None:
    """It left in good order, and nothing is lost or computed again."""
    digest = joint([undisturbed_digest(2, 3, 8)] * ranks)
    check_survived(done, steps=2, groups=3, micro_batches=8, masked=masked, digest=digest)
    assert told(done, "Drained") == [[1]], done.told()


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"podsPerGroup": 2, "procPerPod": 1}], ids=["one pod", "two pods"])
def test_two_ranks_hand_on_what_they_hold(tmp_path: Path, more: dict[str, Any]) -> None:
    """Between the same two micro-batches, whichever of their agents was asked; each rank of the heir adds its part."""
    done = hands_on(tmp_path, env={"STEPS": "2", "MICRO_SECONDS": "1.2"}, **more)

    check_handed_on(done)
    assert done.told().count("micro-batches of group 1 are taken over") == 2, done.told()
    assert "0 micro-batches of group 1" not in done.told()


@pytest.mark.slow
def test_two_ranks_that_wait_for_a_slow_group_hand_on_what_they_hold(tmp_path: Path) -> None:
    """Both are in their reductions, all work done, when their grace ends; the agent of one of them was asked."""
    env = {"STEPS": "2", "MICRO_SECONDS": "0.05", "SLOW": "0,1,2,1.5"}
    done = hands_on(tmp_path, env=env, podsPerGroup=2, procPerPod=1)

    check_handed_on(done)
    assert done.told().count("8 micro-batches of group 1 are taken over") == 2, done.told()


@pytest.mark.slow
def test_a_rank_of_the_heir_dies_while_it_takes_over(tmp_path: Path) -> None:
    """Its sibling has added nothing; what both groups held is computed again by the third."""
    faults = [a for g in (0, 2) for a in ("--kill", f"{g}.1@1:inherit")]
    done = hands_on(tmp_path, *faults, env={"STEPS": "2", "MICRO_SECONDS": "1.2"})

    check_handed_on(done, masked=1)
    assert "micro-batches of group 1 are taken over" not in done.told()


@pytest.mark.slow
def test_a_frozen_rank_takes_its_group_along(tmp_path: Path) -> None:
    """It is silent; its sibling waits for it inside the group, and ends by the plan without both."""
    job = small(tmp_path, "halves.py")

    done = run(job, "--freeze", "1.1@3:compute")

    survived(done, 1, of_halves())


@pytest.mark.slow
def test_an_exception_of_one_rank_ends_the_job_with_its_text(tmp_path: Path) -> None:
    """What its siblings raise because it is gone is not what is told."""
    job = small(tmp_path, "raising_rank.py")

    done = run(job)

    assert done.code == 1, done.told()
    assert "bad sample in rank 1" in done.summary["verdict"], done.told()


@pytest.mark.slow
def test_the_example_with_fsdp_ends_with_the_loss_of_a_run_without_failures(tmp_path: Path) -> None:
    """In float32, summed in another order after the loss: within 1e-5."""
    job = Path(__file__).parents[2] / "examples" / "fsdp" / "job.yaml"
    fast = ["--set", "spec.template.spec.containers[0].command=[python, train.py, '20']"]
    ends = []
    for name, failures in (("a", []), ("b", ["--kill", "1.1@6:reduce"])):
        (tmp_path / name).mkdir()
        done = result(start(job, *fast, *failures, runs=tmp_path / name / "runs"), tmp_path / name / "job.yaml")
        assert done.code == 0, done.told()
        assert (done.summary["lost"], done.summary["repeated"]) == (0, 0), done.told()
        ends.append(done.summary["loss"])

    assert ends[1] == pytest.approx(ends[0], rel=1e-5)
