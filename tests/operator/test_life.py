"""The life of a job on a cluster: created, trained, finished, cleaned up."""

from __future__ import annotations

from pathlib import Path

from tests.operator.bed import a_bed, job_body
from tests.operator.loop import run


def test_a_job_runs_and_completes(tmp_path: Path) -> None:
    """From the object to Complete: its pods, its plan, its status."""

    async def main() -> None:
        async with a_bed(tmp_path) as bed:
            bed.operator()
            bed.api.put("sparejobs", job_body())
            await bed.until(lambda: bed.condition("Complete")[0] == "True", "it completes")

            assert bed.status()["step"] == 20
            assert len(bed.pods()) == 4

    run(main)
