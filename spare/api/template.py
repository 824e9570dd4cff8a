"""The pod template of a job: open for everything Kubernetes knows; we read the trainer container's command."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from spare.api.rule import ENV_NAME

TRAINER = "trainer"
"""Name of the container that trains, where a pod has several."""

MAX_CONTAINERS = 64
"""In a pod; the API server asks for a limit wherever a rule looks at every item of a list."""
MAX_GRACE = 2**31 - 1
"""Seconds."""

_REFERENCE = re.compile(r"\$\$|\$\(([^()\s]+)\)")


class _Open(BaseModel):
    """Fields that we do not know are kept as they stand: the API server checks them, not we."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, strict=True, extra="allow", validate_default=True
    )


class EnvVar(_Open):
    """One environment variable of a container."""

    name: Annotated[str, ENV_NAME] = Field(description="Name of the variable.")
    value: str | None = Field(
        default=None,
        description="Its text; `$(OTHER)` stands for a variable set above. Default: empty.",
    )
    value_from: dict[str, Any] | None = Field(
        default=None, description="Where the cluster takes it from; a local run cannot, and says so."
    )


class Container(_Open):
    """One container of a pod, with the fields that we read; the others pass through."""

    name: str = Field(max_length=63, description="The container that trains is called `trainer`, or is the only one.")
    command: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(),
        description="Program and first arguments; it is run as `spare-agent -- COMMAND ARGS`.",
    )
    args: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(), description="Further arguments, appended to the command."
    )
    env: Annotated[tuple[EnvVar, ...], Field(strict=False)] = Field(default=(), description="Environment variables.")
    working_dir: str | None = Field(
        default=None,
        description="Folder the command starts in. Default: the image's in a pod, the job file's in a local run.",
    )


class PodSpec(_Open):
    """The pod's spec; only its containers are read."""

    containers: Annotated[tuple[Container, ...], Field(strict=False)] = Field(
        max_length=MAX_CONTAINERS, description="The containers of each pod."
    )
    termination_grace_period_seconds: int = Field(
        default=30,
        ge=0,
        le=MAX_GRACE,
        description="Seconds from being asked to go until it is killed. Default: 30, Kubernetes' own. A group leaves at"
        " the end of a step within them; what a longer step has computed by then is handed on.",
    )


class PodTemplate(_Open):
    """What each pod is made from, as in a Deployment or a Job."""

    spec: PodSpec = Field(description="The pod's spec.")

    def trainer_index(self) -> int | None:
        """Place of the container that trains: the one named so, else the only one; None where that is unclear."""
        containers = self.spec.containers
        named = [index for index, container in enumerate(containers) if container.name == TRAINER]
        if len(named) == 1:
            return named[0]
        return 0 if len(containers) == 1 else None

    def plain(self) -> dict[str, Any]:
        """As it stood in the file, defaults left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


@dataclass(frozen=True)
class Trainer:
    """What to start in each group, references such as `$(NAME)` already resolved as Kubernetes does."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    """Variables with a text, in the order of the file; the last one of a name counts."""
    from_cluster: tuple[str, ...]
    """Variables that only a cluster can fill (`valueFrom`)."""
    working_dir: str | None


def read_trainer(container: Container) -> Trainer:
    """Command, environment and folder of a container, `$(NAME)` resolved from the variables above it."""
    env: dict[str, str] = {}
    for variable in container.env:
        if variable.value_from is None:
            env[variable.name] = resolve(variable.value or "", env)
    return Trainer(
        argv=tuple(resolve(word, env) for word in (*container.command, *container.args)),
        env=env,
        from_cluster=tuple(variable.name for variable in container.env if variable.value_from is not None),
        working_dir=container.working_dir,
    )


def resolve(word: str, env: Mapping[str, str]) -> str:
    """Kubernetes' own substitution: `$(NAME)` if known, else left alone; `$$` is a dollar sign."""

    def one(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return env.get(match[1], match[0])

    return _REFERENCE.sub(one, word)
