"""The job file: one SPAReJob, the same for `spare run` and for `kubectl apply`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from spare.api.document import Document, read_document
from spare.api.explain import explain
from spare.api.problems import JobFileError, Problem
from spare.api.rule import JOB_NAME, NAMESPACE
from spare.api.spec import Spec, Strict
from spare.api.template import Trainer

__all__ = [
    "API_VERSION",
    "KIND",
    "JobFileError",
    "Metadata",
    "Problem",
    "SPAReJob",
    "Spec",
    "Trainer",
    "load_job",
    "load_object",
]

API_VERSION = "spare.training/v1alpha1"
KIND = "SPAReJob"


class Metadata(Strict):
    """Which job this is."""

    name: Annotated[str, JOB_NAME] = Field(description="Name of the job; those of its pods begin with it.")
    namespace: Annotated[str, NAMESPACE] = Field(
        default="default", description="Namespace of the job and its pods. Default: default."
    )
    labels: dict[str, str] = Field(default={}, description="Labels of the job; its pods have the template's.")
    annotations: dict[str, str] = Field(default={}, description="Annotations of the job; they do not reach its pods.")


class SPAReJob(Strict):
    """A training job that masks the loss of its groups."""

    api_version: Literal["spare.training/v1alpha1"] = Field(description="Version of this format.")
    kind: Literal["SPAReJob"] = Field(description="Always SPAReJob.")
    metadata: Metadata = Field(description="Which job this is.")
    spec: Spec = Field(description="What to train, on what, and what to do when it breaks.")

    def effective(self) -> dict[str, Any]:
        """What holds: the file with every default filled in, as plain data that `load_job` reads back to this job.

        Fields that have no value (no checkpoint path, no deadline, no minGroups) are left out; the template is as it
        was written.
        """
        plain = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        plain["spec"]["template"] = self.spec.template.plain()  # as written: there an explicit null stays
        return plain


def load_job(text: str) -> SPAReJob:
    """Reads a job file.

    Raises:
        JobFileError: with every problem that was found, not only the first.
    """
    document = read_document(text)
    try:
        return SPAReJob.model_validate(document.data, by_alias=True, by_name=False)
    except ValidationError as error:
        raise JobFileError(_problems(error, document)) from error


def load_object(body: Mapping[str, Any]) -> SPAReJob:
    """Reads a job as the API server has it: of its metadata, only what names it counts here.

    Raises:
        JobFileError: as `load_job`, without lines.
    """
    meta = {"name": body["metadata"]["name"], "namespace": body["metadata"]["namespace"]}
    data = {"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": body.get("spec")}
    try:
        return SPAReJob.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        raise JobFileError(_problems(error, Document(data, {}))) from error


def _problems(error: ValidationError, document: Document) -> list[Problem]:
    return explain(SPAReJob, error.errors(include_url=False), document)
