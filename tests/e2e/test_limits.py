"""At the edge of what is allowed, a job runs, ends and goes like any other."""

from __future__ import annotations

import hashlib

import pytest

from tests.e2e.install import Images
from tests.e2e.jobs import START, integers, pods_of, wait_condition
from tests.e2e.kubectl import Namespace, wait_for

pytestmark = pytest.mark.usefixtures("operator")

_CHECKED = (
    "import hashlib, runpy, sys\n"
    "digest = hashlib.sha256(sys.argv.pop().encode()).hexdigest()\n"
    "assert digest == sys.argv.pop(), digest\n"
    "runpy.run_path('integers/train.py', run_name='__main__')\n"
)
"""Checks its last argument against the digest before it, and trains with the others."""


def test_the_longest_name_runs_and_goes(namespace: Namespace, images: Images) -> None:
    """48 characters, the most that the definition lets in: no child of it is too long (field case F43)."""
    name = "n" * 47 + "z"
    namespace.apply(integers(name, images.trainer, namespace, steps=10, groups=2))

    wait_condition(namespace, name, "Running", START)
    wait_condition(namespace, name, "Complete", 120)
    namespace.delete("spj", name, wait=True, seconds=30)
    wait_for("its children to go", lambda: not pods_of(namespace, name), 60, lambda: pods_of(namespace, name))


def test_long_arguments_reach_the_worker_byte_for_byte(namespace: Namespace, images: Images) -> None:
    """100 KB in one argument (field case F47); a worker that gets other bytes ends the job with its error."""
    text = "".join(chr(0x21 + index * 7 % 94) for index in range(100_000)).replace("$", "€")
    job = integers("long-arguments", images.trainer, namespace, steps=10, groups=2)
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["python", "-c", _CHECKED]
    container["args"] += [hashlib.sha256(text.encode()).hexdigest(), text]

    namespace.apply(job)

    assert wait_condition(namespace, "long-arguments", "Complete", 240)["step"] == 10
