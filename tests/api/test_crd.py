"""The custom resource's schema says what the models say, and what is in the repository is what is made from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from spare.api import reference
from spare.api.crd import NAME, crd, document, schema
from spare.api.explain import fields
from spare.api.job import load_job
from spare.api.relations import FIXED, WHILE_SUSPENDED
from spare.api.spec import Spec
from spare.api.status import ORDER
from tests.api.jobs import job_text

ROOT = Path(__file__).parents[2]


def every(place: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """All schemas inside a schema, with their paths."""
    yield path, place
    for name, below in place.get("properties", {}).items():
        yield from every(below, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(place.get(key), dict):
            yield from every(place[key], f"{path}[]")


def at(path: str) -> dict[str, Any]:
    """The schema of one field, by its path."""
    return dict(every(schema()))[path]


def test_what_is_in_the_repository_is_what_is_made() -> None:
    """`make manifests` writes the file; nobody edits it."""
    assert (ROOT / "manifests" / "crd" / "sparejobs.yaml").read_text() == document()
    assert yaml.safe_load(document()) == crd()
    assert crd()["metadata"]["name"] == NAME == "sparejobs.spare.training"


def test_every_field_of_the_spec_is_there_and_described() -> None:
    """`kubectl explain` reads like documentation: each field of each level has its text."""
    assert list(at(".spec")["properties"]) == list(fields(Spec))
    for path, place in every(schema()):
        if path not in ("", ".metadata", ".metadata.name") and not path.endswith("[]"):
            assert place.get("description"), path


def test_the_defaults_are_those_of_a_local_run() -> None:
    """The API server fills in what `spare validate` prints as effective."""
    effective = load_job(job_text()).effective()["spec"]

    def filled(place: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        for name, below in place["properties"].items():
            if "default" in below:
                given.setdefault(name, below["default"])
        return given

    server = filled(at(".spec"), {"groups": 8, "template": effective["template"]})

    assert server == effective


def test_nothing_is_filled_into_a_template_or_a_status() -> None:
    """A template's hash and a status's writer would be surprised."""
    for path, place in every(schema()):
        if path.startswith((".status", ".spec.template")):
            assert "default" not in place, path


def test_only_the_template_is_open() -> None:
    """Elsewhere strict field validation finds each misspelt field."""
    open_places = {path for path, place in every(schema()) if place.get("x-kubernetes-preserve-unknown-fields")}

    assert open_places == {
        f".spec.template{below}"
        for below in (
            "",
            ".spec",
            ".spec.containers[]",
            ".spec.containers[].env[]",
            ".spec.containers[].env[].valueFrom",
        )
    }


def test_each_field_may_change_always_never_or_while_suspended() -> None:
    """A new field must be put into one of the lists: what nobody decided would be changed and not heeded."""
    assert {*FIXED, *WHILE_SUSPENDED, "runPolicy"} == set(fields(Spec))


def test_the_schema_is_structural() -> None:
    """No references, no titles, no nulls, and every list says how it is merged."""
    for path, place in every(schema()):
        assert not {"$ref", "$defs", "title", "const"} & set(place), path
        assert place.get("type") != "null", path
        if place.get("type") == "array":
            assert place["x-kubernetes-list-type"] in ("atomic", "map"), path


def test_conditions_are_merged_by_type() -> None:
    """Another controller's condition survives a server-side apply of ours; each column's field exists."""
    conditions = at(".status.conditions")

    assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])
    assert all(each in conditions["items"]["properties"]["type"]["description"] for each in ORDER)
    paths = {path for path, _ in every(schema())}
    for column in crd()["spec"]["versions"][0]["additionalPrinterColumns"]:
        head = column["jsonPath"].partition("[?")[0]
        assert head in paths or head == ".metadata.creationTimestamp"


def test_the_reference_is_made_from_the_schema() -> None:
    """`make docs` writes it; every field, condition and reason is in it."""
    text = (ROOT / "docs" / "api-reference.md").read_text()

    assert text == reference.document()
    for path, _ in every(schema()):
        if path.startswith((".spec.", ".status.")) and not path.endswith("[]"):
            assert f"| `{path.rpartition('.')[2]}` |" in text, path
