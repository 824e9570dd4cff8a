"""A pod is told what a local process is told: a job that heeds its file here heeds it there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from spare.api.job import load_job
from spare.local.launch import RESERVED, Launch
from spare_operator.pod import JobKey, Pods
from tests.api.jobs import job_text

HERE_ONLY = {"SPARE_ANNOUNCE_FD", "SPARE_PARENT", "SPARE_DIR", "SPARE_FAULTS"}
"""How a local agent is reached and watched, where the run's folder is, and scripted failures."""
THERE_ONLY = {"SPARE_PORT", "SPARE_TLS_CA", "SPARE_TLS_CERT", "SPARE_TLS_KEY"}


@pytest.fixture(autouse=True)
def _outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that lie around where the job is started, as in a shell of a training job's pod."""
    for name in [name for name in os.environ if name.startswith("SPARE_")]:
        monkeypatch.delenv(name)
    for name in RESERVED:
        monkeypatch.setenv(name, "from outside")


def test_pods_are_told_what_local_processes_are_told() -> None:
    """The same settings with the same values; a setting that only one backend passes on would be a job that differs."""
    job = load_job(job_text("spec.checkpoint", {"path": "/data", "keep": 5}))
    template = json.loads(job_text())["spec"]["template"]
    here = Launch.of(job.spec, job="a/b/c", folder=Path("/run"), base=Path("/"), env={}, bind="127.0.0.1").environment(
        3, 0, "uid", 5, ""
    )
    manifest = Pods(JobKey("a", "b", "c"), job.spec, template).manifest(3, 0, "uid")
    there = {each["name"]: each.get("value") for each in manifest["spec"]["containers"][0]["env"]}

    def settings(environment: dict[str, str | None], own: set[str]) -> set[str]:
        return {name for name in environment if name.startswith("SPARE_")} - own

    assert settings(dict(here), HERE_ONLY) == settings(there, THERE_ONLY)
    assert settings(there, set()) | HERE_ONLY <= RESERVED
    assert "from outside" not in here.values()
    assert there["SPARE_CHECKPOINT"] == "/data"
    for name in settings(there, THERE_ONLY) - {"SPARE_BIND", "SPARE_TOKEN"}:
        assert _same(there[name], here[name]), name


def _same(there: str | None, here: str) -> bool:
    try:
        return float(there or "") == float(here)
    except ValueError:
        return there == here
