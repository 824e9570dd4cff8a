"""A job file is read strictly, and everything wrong with it is said at once."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from spare.api.explain import fields
from spare.api.job import Metadata, SPAReJob, load_job
from spare.api.spec import (
    CleanPodPolicy,
    OnPoison,
    OnStraggler,
    OnWipeOut,
    Scheduler,
    Spec,
    Strategy,
    Strict,
)
from spare.api.template import PodTemplate
from tests.api.jobs import SMALLEST, job_text, only_problem, problems_of

ROOT = Path(__file__).parents[2]


def test_the_smallest_file_gets_the_documented_defaults() -> None:
    """Only name, groups and a command are needed; the rest is as the descriptions say."""
    spec = load_job(job_text()).spec

    assert (spec.groups, spec.pods_per_group, spec.proc_per_pod, spec.procs_per_group) == (8, 1, 1, 1)
    assert (spec.redundancy, spec.micro_batches, spec.spares, spec.min_groups) == ("auto", 8, 0, None)
    assert (spec.placement.strategy, spec.scheduler) == (Strategy.GOLOMB, Scheduler.MICRO_BATCHES)
    assert (spec.on_wipe_out, spec.on_poison, spec.on_straggler) == (OnWipeOut.FAIL, OnPoison.FAIL, OnStraggler.REPORT)
    assert (spec.checkpoint.path, spec.checkpoint.period, spec.checkpoint.keep) == (None, "auto", 3)
    assert spec.detection.heartbeat == timedelta(seconds=1)
    assert spec.detection.dead_after == timedelta(seconds=5)
    assert spec.detection.hang_after == timedelta(minutes=5)
    assert spec.reduction.collective_timeout == timedelta(seconds=600)
    assert spec.reduction.rendezvous_timeout == timedelta(seconds=300)
    assert (spec.seed, spec.run_policy.suspend, spec.run_policy.backoff_limit) == (0, False, 3)
    assert spec.run_policy.clean_pod_policy is CleanPodPolicy.RUNNING


def test_all_problems_are_told_at_once() -> None:
    """Thirteen slips in one file give thirteen problems, each with its path, in the order of the file."""
    text = """
apiVersion: spare.training/v1
kind: SPAReJob
metadata: {name: a.b}
spec:
  groups: 0
  podsPerGroup: "4"
  redundancy: none
  micro_batches: 8
  minGroups: yes
  checkpoint:
  detection: {heartbeat: 5, hangAfter: 1s}
  placement: {strategy: golomb, spread: x}
  runPolicy: {suspend: "no"}
  template: {spec: {containers: [{name: trainer, command: [python, 3]}]}}
"""

    assert [problem.path for problem in problems_of(text)] == [
        "apiVersion",
        "metadata.name",
        "spec.groups",
        "spec.podsPerGroup",
        "spec.redundancy",
        "spec.micro_batches",
        "spec.minGroups",
        "spec.checkpoint",
        "spec.detection.heartbeat",
        "spec.detection.hangAfter",
        "spec.placement.strategy",
        "spec.placement.spread",
        "spec.runPolicy.suspend",
        "spec.template.spec.containers[0].command[1]",
    ]


@pytest.mark.parametrize(
    ("path", "value", "allowed"),
    [
        ("spec.groups", 1001, "a whole number from 1 to 1000"),
        ("spec.groups", 4.0, "a whole number from 1 to 1000"),
        ("spec.groups", True, "a whole number from 1 to 1000"),
        ("spec.groups", None, "a whole number from 1 to 1000"),
        ("spec.podsPerGroup", 17, "a whole number from 1 to 16"),
        ("spec.procPerPod", 0, "a whole number from 1 to 16"),
        ("spec.redundancy", "two", "auto or a whole number from 1 to 1000"),
        ("spec.redundancy", 0, "auto or a whole number from 1 to 1000"),
        ("spec.redundancy", 9, "auto or at most spec.groups (8), the most hosts that a shard can have"),
        ("spec.minGroups", 9, "at most spec.groups (8)"),
        ("spec.microBatches", 1025, "a whole number from 1 to 1024"),
        ("spec.onPoison", "skip", "one of Fail, Skip"),
        ("spec.checkpoint.period", "1d", "auto or a duration from 1s to 720h"),
        ("spec.checkpoint.path", "", "text, not empty"),
        ("spec.detection.heartbeat", "49ms", "a duration from 50ms to 1m"),
        ("spec.detection.heartbeat", [1], "a duration from 50ms to 1m"),
        ("spec.runPolicy.activeDeadlineSeconds", 0, "a whole number from 1 to 2147483647"),
        ("spec.placement.spreadOver", "a b", "a node label such as topology.kubernetes.io/zone"),
        ("spec.seed", -1, "a whole number from 0 to 4294967295"),
        ("spec.spares", "1", "a whole number from 0 to 1000"),
        ("metadata.labels", ["a"], "a mapping of text to text"),
        ("metadata.labels", {"a": 1}, "text"),
        ("kind", "Job", "SPAReJob"),
        ("spec.template.spec.containers", [{"name": "c"}] * 65, "a list of at most 64 mappings"),
        ("spec.template.spec.containers", [{"name": "c" * 64}], "text of at most 63 characters"),
        ("spec", [], "a mapping with"),
    ],
)
def test_a_problem_names_place_value_and_what_is_allowed(path: str, value: object, allowed: str) -> None:
    """Somebody who reads only the message knows what to change, and to what."""
    problem = only_problem(job_text(path, value))

    assert problem.path.startswith(path)
    assert problem.allowed.startswith(allowed)
    assert problem.path in problem.message
    assert problem.allowed in problem.message
    assert problem.line is not None


def test_a_missing_field_is_named_with_what_it_must_be() -> None:
    """Without groups the message says so and gives the range."""
    job = {**SMALLEST, "spec": {"template": SMALLEST["spec"]["template"]}}

    problem = only_problem(json.dumps(job))

    assert problem.message == "spec.groups is missing; it must be a whole number from 1 to 1000"


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("spec.microbatches", "is microBatches meant?"),
        ("spec.micro_batches", "is microBatches meant?"),
        ("spec.pods-per-group", "is podsPerGroup meant?"),
        ("spec.detection.deadafter", "is deadAfter meant?"),
        ("spec.runPolicy.backOffLimit", "is backoffLimit meant?"),
        ("spec.heartbeat", "it belongs at spec.detection.heartbeat"),
        ("spec.flavour", "its fields are groups, podsPerGroup,"),
        ("status", "its fields are apiVersion, kind, metadata, spec"),
    ],
)
def test_an_unknown_field_is_refused_with_what_was_meant(path: str, meant: str) -> None:
    """No field is ignored in silence, also not one in Python's spelling."""
    problem = only_problem(job_text(path, 1))

    assert problem.path == path
    assert meant in problem.message


def test_only_the_template_is_open() -> None:
    """Every model but the template's refuses unknown fields: asked of the models, so a new one cannot slip through."""
    closed = [model for model in _models(SPAReJob) if not issubclass(model, _models_base(PodTemplate))]

    assert all(issubclass(model, Strict) and model.model_config["extra"] == "forbid" for model in closed)
    assert len(closed) == 8


def test_the_template_passes_through_as_written() -> None:
    """What we do not know in a pod template is Kubernetes' business; 100 KB of arguments stay byte for byte (F47)."""
    template = {
        "metadata": {"labels": {"team": "a"}},
        "spec": {
            "containers": [
                {
                    "name": "trainer",
                    "image": "i",
                    "command": ["python"],
                    "args": ["x" * 100_000],
                    "resources": {"limits": {"cpu": 2}},
                    "workingDir": None,
                }
            ],
            "tolerations": [],
        },
    }

    job = load_job(job_text("spec.template", template))

    assert job.spec.template.plain() == template
    assert job.effective()["spec"]["template"] == template
    assert job.spec.trainer.argv == ("python", "x" * 100_000)


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("a", True),
        ("a-1", True),
        ("a" * 48, True),
        ("a" * 49, False),
        ("a.b", False),
        ("1a", False),
        ("a-", False),
        ("-a", False),
        ("A", False),
        ("a_b", False),
        ("a\n", False),
        ("", False),
    ],
)
def test_a_name_is_refused_if_any_pod_of_it_could_not_be_named(name: str, fits: bool) -> None:
    """Dots, a leading digit (F44) and names whose longest pod has more than 63 characters (F43) are refused here."""
    if fits:
        assert load_job(job_text("metadata.name", name)).metadata.name == name
        assert len(f"{name}-g999-p15-xxxxx") <= 63
    else:
        assert "without dots, that starts with a letter" in only_problem(job_text("metadata.name", name)).message


@pytest.mark.parametrize(
    ("detection", "path", "names"),
    [
        ({"heartbeat": "5s"}, "spec.detection.deadAfter", "spec.detection.heartbeat (5s)"),
        ({"heartbeat": "10s", "deadAfter": "10s"}, "spec.detection.deadAfter", "spec.detection.heartbeat (10s)"),
        ({"deadAfter": "10m"}, "spec.detection.hangAfter", "spec.detection.deadAfter (10m)"),
        ({"hangAfter": "4999ms"}, "spec.detection.hangAfter", "spec.detection.deadAfter (5s)"),
    ],
)
def test_timeouts_in_the_wrong_order_are_refused(detection: dict[str, str], path: str, names: str) -> None:
    """heartbeat < deadAfter <= hangAfter; the message names both fields, a default included (F57)."""
    problem = only_problem(job_text("spec.detection", detection))

    assert problem.path == path
    assert names in problem.message
    assert ("by default" in problem.message) == (path.rpartition(".")[2] not in detection)


def test_equal_deadlines_for_death_and_hang_are_allowed() -> None:
    """deadAfter <= hangAfter includes equality."""
    job = load_job(job_text("spec.detection", {"deadAfter": "10s", "hangAfter": "10s"}))

    assert job.spec.detection.dead_after == job.spec.detection.hang_after


def test_a_restart_needs_a_checkpoint() -> None:
    """onWipeOut: Restart without a path would restart from nothing."""
    assert "spec.checkpoint.path is not set" in only_problem(job_text("spec.onWipeOut", "Restart")).message

    spec = {**SMALLEST["spec"], "onWipeOut": "Restart", "checkpoint": {"path": "/data"}}
    assert load_job(job_text("spec", spec)).spec.on_wipe_out is OnWipeOut.RESTART


@pytest.mark.parametrize(
    ("containers", "path"),
    [
        ([{"name": "trainer"}], "spec.template.spec.containers[0].command"),
        ([{"name": "x", "args": ["a"]}], "spec.template.spec.containers[0].command"),
        ([{"name": "x", "command": ["a"]}, {"name": "y", "command": ["a"]}], "spec.template.spec.containers"),
        (
            [{"name": "trainer", "command": ["a"]}, {"name": "trainer", "command": ["b"]}],
            "spec.template.spec.containers",
        ),
        ([], "spec.template.spec.containers"),
        ([{"command": ["a"]}], "spec.template.spec.containers[0].name"),
        ("trainer", "spec.template.spec.containers"),
        ([{"name": "x", "command": "python train.py"}], "spec.template.spec.containers[0].command"),
        ([{"name": "x", "command": ["a"], "env": [{"value": "1"}]}], "spec.template.spec.containers[0].env[0].name"),
        (
            [{"name": "x", "command": ["a"], "env": [{"name": "A=", "value": "1"}]}],
            "spec.template.spec.containers[0].env",
        ),
    ],
)
def test_a_template_without_one_clear_command_is_refused(containers: object, path: str) -> None:
    """We start the command ourselves, so it must be there, and be of one container."""
    problem = only_problem(job_text("spec.template.spec.containers", containers))

    assert problem.path.startswith(path)
    assert problem.message.startswith(path)


def test_effective_values_read_back_to_the_same_job() -> None:
    """What is printed as effective is itself a job file, and says the same."""
    spec = {**SMALLEST["spec"], "minGroups": 6, "detection": {"heartbeat": "200ms"}, "redundancy": 3}
    job = load_job(job_text("spec", spec))

    effective = job.effective()

    assert load_job(yaml.safe_dump(effective)).effective() == effective
    detection = {"heartbeat": "200ms", "deadAfter": "5s", "hangAfter": "5m", "slowAfter": "30s", "startTimeout": "5m"}
    assert effective["spec"]["detection"] == detection
    assert (effective["spec"]["minGroups"], effective["spec"]["redundancy"]) == (6, 3)
    assert "minGroups" not in load_job(job_text()).effective()["spec"]


def test_a_job_cannot_be_changed_after_reading() -> None:
    """Frozen: nobody's copy of the spec differs from another's."""
    job = load_job(job_text())

    with pytest.raises(ValidationError):
        job.spec.groups = 9


def test_jobs_can_be_made_in_python_by_attribute_name() -> None:
    """Code and tests write snake_case; the file's spelling is for files."""
    template = PodTemplate.model_validate(SMALLEST["spec"]["template"])
    spec = Spec(groups=2, pods_per_group=2, scheduler=Scheduler.WHOLE_SHARDS, template=template)

    job = SPAReJob(api_version="spare.training/v1alpha1", kind="SPAReJob", metadata=Metadata(name="a"), spec=spec)

    assert load_job(json.dumps(job.effective())) == job


def test_every_field_is_documented_with_its_default() -> None:
    """The descriptions become the custom resource's, and a default that is not told is a surprise."""
    for model in _models(SPAReJob):
        assert model.__doc__, model
        for name, info in fields(model).items():
            assert info.description, (model, name)
            default = info.get_default(call_default_factory=True)
            if isinstance(default, bool | int | str) and issubclass(model, Strict):
                shown = str(default).lower() if isinstance(default, bool) else str(default)
                assert "efault" in info.description, (model, name)
                assert shown in info.description, (model, name)


def test_every_choice_is_explained() -> None:
    """The description of a field with choices tells what each of them does."""
    for model in _models(SPAReJob):
        for name, info in fields(model).items():
            if isinstance(info.annotation, type) and issubclass(info.annotation, Enum):
                assert all(choice.value in str(info.description) for choice in info.annotation), (model, name)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(
        [f"spec.{name}" for name in fields(Spec)] + ["metadata", "metadata.name", "spec.detection.deadAfter"]
    ),
)
def test_whatever_stands_in_a_field_is_read_or_explained(value: Any, path: str) -> None:
    """No value of any shape leads to anything but a job, or to sentences without a trace of the library behind."""
    text = job_text(path, value)
    try:
        load_job(text)
    except ValueError:
        for problem in problems_of(text):
            assert problem.allowed
            assert problem.path
            assert "pydantic" not in problem.message
            assert "Input should" not in problem.message
            assert "as documented" not in problem.message


def _models(root: type[BaseModel]) -> list[type[BaseModel]]:
    """A model and all those in its fields."""
    found = [root]
    for info in root.model_fields.values():
        for below in _inside(info.annotation):
            found += [model for model in _models(below) if model not in found]
    return found


def _inside(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in getattr(annotation, "__args__", ()) for model in _inside(inner)]


def _models_base(model: type[BaseModel]) -> type[BaseModel]:
    """The base that makes the template's models open."""
    return model.__mro__[1]


def test_every_job_that_we_show_is_valid() -> None:
    """The jobs in README and docs, and those of the examples, can be copied as they stand."""
    shown = [path.read_text() for path in (ROOT / "examples").rglob("job*.yaml")]
    for document in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        shown += [
            text
            for text in re.findall(r"```yaml\n(.*?)```", document.read_text(), re.DOTALL)
            if "kind: SPAReJob" in text
        ]

    assert len(shown) >= 2
    assert all(load_job(text).kind == "SPAReJob" for text in shown)
