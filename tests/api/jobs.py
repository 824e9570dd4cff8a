"""Job files for tests: the smallest one, and changes to it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from spare.api.job import JobFileError, Problem, load_job

SMALLEST: dict[str, Any] = {
    "apiVersion": "spare.training/v1alpha1",
    "kind": "SPAReJob",
    "metadata": {"name": "demo"},
    "spec": {
        "groups": 8,
        "template": {"spec": {"containers": [{"name": "trainer", "command": ["python", "train.py"]}]}},
    },
}


def job_text(path: str = "", value: object = None) -> str:
    """The smallest job file, with the field at `path` (`spec.detection.heartbeat`) set to `value`."""
    job = copy.deepcopy(SMALLEST)
    if path:
        *above, last = path.split(".")
        place = job
        for name in above:
            place = place.setdefault(name, {})
        place[last] = value
    return json.dumps(job, indent=1)


def problems_of(text: str) -> tuple[Problem, ...]:
    """What is wrong with a job file that must be refused."""
    with pytest.raises(JobFileError) as caught:
        load_job(text)
    return caught.value.problems


def only_problem(text: str) -> Problem:
    """The one thing wrong with a job file."""
    problems = problems_of(text)

    assert len(problems) == 1, problems
    return problems[0]
