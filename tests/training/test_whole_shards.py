"""A job that moves whole shards, as the paper's do: survived as any other, at the paper's depth."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.runs import check_survived, job_file, run


@pytest.mark.slow
def test_a_loss_doubles_the_step_and_loses_nothing(tmp_path: Path) -> None:
    """The second loss as well; weights and ledgers are those of a run without failures."""
    job = job_file(tmp_path, env={"STEPS": "40"}, scheduler="WholeShards")

    done = run(job, "--kill", "1@10:reduce", "--kill-group", "2@20:compute", "--no-replacements")

    check_survived(done, steps=40, masked=2)
    depths = [e["depth"] for e in done.events if e.get("type") == "progress" and e["depth"]]
    assert (depths[0], depths[-1]) == (1.0, 2.0), done.told()
    assert "1 shard given to 1 host" in done.told()
