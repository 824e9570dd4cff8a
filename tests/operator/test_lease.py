"""The Lease when things go wrong with it: answers that are lost, and somebody who deletes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from kubernetes_asyncio import client

from spare_operator.cluster import Cluster
from spare_operator.lease import Lease
from spare_operator.serve import EXIT_DEPOSED, api_client
from tests.operator.api_server import ApiServer
from tests.operator.bed import NAMESPACE, a_bed
from tests.operator.loop import run
from tests.operator.test_losses import training

TODAY = 1_770_000_000.0


def leasing(test: Callable[[ApiServer, Callable[[str], Lease]], Awaitable[None]]) -> None:
    """Run a test with a server, and with a way to make candidates by their names."""

    async def main() -> None:
        api, loop = ApiServer(), asyncio.get_running_loop()
        await api.open()
        cluster = api_client(client.Configuration(host=api.address))

        def wall() -> float:
            return TODAY + loop.time()

        def candidate(name: str) -> Lease:
            return Lease(Cluster(cluster), NAMESPACE, "lead", name, clock=loop.time, wall=wall)

        try:
            await test(api, candidate)
        finally:
            await cluster.close()
            await api.close()

    run(main)


def test_a_renewal_whose_answer_was_lost_costs_no_leadership(tmp_path: Path) -> None:
    """It is tried again, and finds its own write in its way; the operator works on."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            await training(bed)
            leader, process, _ = bed.operators[0]
            bed.api.fail("PUT", "/leases/", 500, done=True, times=3)
            await asyncio.sleep(30.0)

            assert leader.lease.held
            assert not process.done()
            assert leader.lease.term == 1

    run(main)


def test_a_renewal_that_comes_too_late_is_none(tmp_path: Path) -> None:
    """For a moment we might not write, and what was refused then nobody would do any more: it is the end of it.

    Else the operator led on, and the job, whose status it could not write in that moment, was nobody's for good.
    """

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.compute = 0.05  # there is always something to write
            await training(bed)
            leader, process, _ = bed.operators[0]
            renewed = leader.lease._renewed
            await bed.until(lambda: leader.lease._renewed > renewed, "it is renewed")
            bed.api.slow["/leases/"] = 5.0  # longer than one try may take
            await asyncio.sleep(7.2)
            bed.api.slow["/leases/"] = 1.6
            await bed.until(process.done, "it ends", 30.0)
            assert process.result() == EXIT_DEPOSED
            bed.api.slow.clear()
            later = bed.operator()
            await bed.until(lambda: later.lease.held, "another leads", 40.0)
            step = bed.status()["step"]
            await bed.until(lambda: bed.status()["step"] > step + 10, "it hears of steps", 60.0)

    run(main)


def test_a_lease_that_was_taken_or_made_in_silence_is_held() -> None:
    """The answer to the first write is lost, too: whoever made it holds it at once, under its number."""

    async def test(api: ApiServer, candidate: Callable[[str], Lease]) -> None:
        api.fail("POST", "/leases$", 500, done=True)
        first, second = candidate("first"), candidate("second")
        assert await first._attempt()
        await first.release()
        api.fail("PUT", "/leases/", 500, done=True)
        assert await second._attempt()

        assert (first.held, second.held, second.term) == (False, True, first.term + 1)

    leasing(test)


def test_the_number_grows_though_the_lease_was_deleted() -> None:
    """Agents refuse a number below one that they know: a lease made anew, or another one, must begin above it."""

    async def test(api: ApiServer, candidate: Callable[[str], Lease]) -> None:
        former = candidate("former")
        assert await former._attempt()
        await asyncio.sleep(60.0)
        api.remove("leases", NAMESPACE, "lead")
        later = candidate("later")
        assert await later._attempt()

        assert 0 < former.term < later.term < 2**31
        assert api.get("leases", NAMESPACE, "lead")["spec"]["leaseTransitions"] == later.term

    leasing(test)


def test_a_deleted_lease_is_its_holder_s_to_make_again() -> None:
    """Who waits for it waits on, as long as for one that stands still; never do two work."""

    async def test(api: ApiServer, candidate: Callable[[str], Lease]) -> None:
        holder, other = candidate("holder"), candidate("other")
        assert await holder._attempt()
        assert not await other._attempt()
        api.remove("leases", NAMESPACE, "lead")
        assert not await other._attempt()
        assert await holder._attempt()
        assert not await other._attempt()
        assert (holder.held, other.held) == (True, False)

        api.remove("leases", NAMESPACE, "lead")
        began = asyncio.get_running_loop().time()
        while not await other._attempt():  # noqa: ASYNC110  # that is what a candidate does
            await asyncio.sleep(1.0)
        assert not holder.held
        assert asyncio.get_running_loop().time() - began >= 15.0
        assert other.term > holder.term

    leasing(test)


@pytest.mark.parametrize("number", [-5, 0, 7, 2**31 - 1])
@pytest.mark.parametrize("led", [True, False], ids=["while it is held", "while nobody holds it"])
def test_the_number_grows_though_the_lease_was_edited(number: int, led: bool) -> None:
    """By hand, or taken back out of a backup: else agents would refuse every operator from then on."""

    async def test(api: ApiServer, candidate: Callable[[str], Lease]) -> None:
        former, later = candidate("former"), candidate("later")
        assert await former._attempt()
        first = former.term
        api.patch("leases", NAMESPACE, "lead", spec={"leaseTransitions": number})
        assert not led or await former._attempt()
        assert not led or former.term == first
        await later._attempt()
        await asyncio.sleep(60.0)
        assert await later._attempt()

        assert later.term > first
        assert later.term < 2**31  # of 32 bits

    leasing(test)


def test_a_lease_that_nobody_answers_for_is_told_with_its_reason(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timeout has no text of its own."""

    async def test(api: ApiServer, candidate: Callable[[str], Lease]) -> None:
        async def silence(before: float) -> bool:
            raise TimeoutError

        lease = candidate("one")
        monkeypatch.setattr(lease, "_take", silence)
        assert not await lease._attempt()

    leasing(test)
    assert "the lease could not be read or written: no answer in time" in caplog.text
