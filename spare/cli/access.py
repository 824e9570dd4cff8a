"""The options that name a cluster, as kubectl has them. Needs no client of Kubernetes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Access:
    """What the user says of where the cluster is; None: what kubectl would take."""

    kubeconfig: Path | None
    context: str | None
    namespace: str | None

    @property
    def given(self) -> bool:
        """Whether anything was said."""
        return any(each is not None for each in (self.kubeconfig, self.context, self.namespace))


def on_a_cluster(command: Command) -> Command:
    """Give a command the options that name a cluster; they come as one argument, `access`."""

    @click.option("-n", "--namespace", metavar="NAME", help="The job's namespace. Default: the context's.")
    @click.option("--context", metavar="NAME", help="Context of the kubeconfig. Default: the current one.")
    @click.option(
        "--kubeconfig",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Default: $KUBECONFIG, or ~/.kube/config.",
    )
    @functools.wraps(command)
    def wrapped(
        *arguments: Any, kubeconfig: Path | None, context: str | None, namespace: str | None, **more: Any
    ) -> Any:
        return command(*arguments, access=Access(kubeconfig, context, namespace), **more)

    return wrapped  # type: ignore[return-value]
