"""The local run starts what a pod would: same words, same variables."""

from __future__ import annotations

import pytest

from spare.api.job import load_job
from spare.api.template import resolve
from tests.api.jobs import job_text


def test_the_trainer_is_the_container_of_that_name() -> None:
    """Beside it there may be others, which a local run leaves out."""
    containers = [
        {"name": "log", "image": "x"},
        {
            "name": "trainer",
            "command": ["python"],
            "args": ["train.py", "--out=$(OUT)"],
            "workingDir": "/w",
            "env": [
                {"name": "ROOT", "value": "/data"},
                {"name": "OUT", "value": "$(ROOT)/run"},
                {"name": "EMPTY"},
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            ],
        },
    ]

    trainer = load_job(job_text("spec.template.spec.containers", containers)).spec.trainer

    assert trainer.argv == ("python", "train.py", "--out=/data/run")
    assert trainer.env == {"ROOT": "/data", "OUT": "/data/run", "EMPTY": ""}
    assert trainer.from_cluster == ("TOKEN",)
    assert trainer.working_dir == "/w"


@pytest.mark.parametrize(
    ("word", "resolved"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(A)", "x1y1"),
        ("$(B)", "$(B)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A ${A} $", "$A ${A} $"),
        ("$(A", "$(A"),
        ("$()", "$()"),
    ],
)
def test_references_are_resolved_as_kubernetes_does(word: str, resolved: str) -> None:
    """Known names are replaced, unknown ones left alone, `$$` is one dollar; the shell's notation is not ours."""
    assert resolve(word, {"A": "1"}) == resolved
