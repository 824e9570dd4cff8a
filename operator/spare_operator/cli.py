"""`spare-operator`: the Kubernetes operator for SPAReJobs."""

from __future__ import annotations

import asyncio
import logging
import math
import sys

import click

from spare_operator import names
from spare_operator.logs import set_up
from spare_operator.serve import EXIT_DEPOSED, serve
from spare_operator.settings import Settings, Watching

logger = logging.getLogger(__name__)

PORT = click.IntRange(1, 65535)
WHOLE = click.IntRange(1)
SECONDS = click.FloatRange(min=0.1)
LEVELS = ["debug", "info", "warning", "error"]


def _names(context: click.Context, option: click.Parameter, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _labels(context: click.Context, option: click.Parameter, text: str) -> tuple[tuple[str, str], ...]:
    found = []
    for part in _names(context, option, text):
        name, equals, value = part.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{part!r} is not LABEL=VALUE, such as app.kubernetes.io/name=spare-operator")
        found.append((name, value))
    return tuple(found)


@click.command(context_settings={"auto_envvar_prefix": "SPARE_OPERATOR", "show_default": True})
@click.option("--namespaces", default="", metavar="A,B", callback=_names, help="Where to look; empty: everywhere.")
@click.option("--nodes/--no-nodes", default=True, help="Watch nodes (needs rights on the whole cluster).")
@click.option("--lease-namespace", default="default", help="Namespace of the Lease that decides who works.")
@click.option("--lease-name", default="spare-operator", help="Its name.")
@click.option("--agent-port", type=PORT, default=names.AGENT_PORT, help="Port of the agents in the pods.")
@click.option(
    "--network-policies",
    default="",
    metavar="LABEL=VALUE,...",
    callback=_labels,
    help="Make a NetworkPolicy for each job, that lets in its own pods and those with these labels: the operators'.",
)
@click.option("--health-host", default="", help="Address of /healthz, /readyz, /metrics; empty: all, IPv6 too.")
@click.option("--health-port", type=click.IntRange(0, 65535), default=8080, help="Its port; 0: the kernel chooses.")
@click.option(
    "--watch-server-timeout",
    type=WHOLE,
    default=Watching.server_timeout,
    help="Seconds after which the API server is to end a watch, which shows that it lives.",
)
@click.option(
    "--watch-client-timeout",
    type=SECONDS,
    default=Watching.client_timeout,
    help="Seconds after which a watch that did not end is given up: its connection was lost.",
)
@click.option("--watch-connect-timeout", type=SECONDS, default=Watching.connect_timeout, help="Seconds to connect in.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", help="What is logged.")
@click.option("--log-json", is_flag=True, help="One JSON object a line.")
@click.version_option(package_name="spare-training")
def main(
    namespaces: tuple[str, ...],
    nodes: bool,
    lease_namespace: str,
    lease_name: str,
    agent_port: int,
    network_policies: tuple[tuple[str, str], ...],
    health_host: str,
    health_port: int,
    watch_server_timeout: int,
    watch_client_timeout: float,
    watch_connect_timeout: float,
    log_level: str,
    log_json: bool,
) -> None:
    """Run SPAReJobs: their pods, their plans, their losses.

    Each option can be given as a variable, too: SPARE_OPERATOR_ and its name, as in SPARE_OPERATOR_LEASE_NAME.
    """
    for name, value in (("client", watch_client_timeout), ("connect", watch_connect_timeout)):
        if not value < math.inf:
            raise click.UsageError(f"--watch-{name}-timeout is {value}; allowed is a number of seconds from 0.1 up")
    if not watch_server_timeout < watch_client_timeout:
        raise click.UsageError(
            f"--watch-client-timeout ({watch_client_timeout:g}) must be longer than --watch-server-timeout "
            f"({watch_server_timeout}), or every watch ends as if its connection had been lost"
        )
    set_up(logging.getLevelNamesMapping()[log_level.upper()], as_json=log_json)
    settings = Settings(
        namespaces=namespaces,
        nodes=nodes,
        lease_namespace=lease_namespace,
        lease_name=lease_name,
        watching=Watching(watch_server_timeout, watch_client_timeout, watch_connect_timeout),
        agent_port=agent_port,
        operators=network_policies,
        health_host=health_host,
        health_port=health_port,
    )
    # Nothing of a deposed leader's memory is to be trusted: all of it is made anew. In this process, for a kubelet
    # pauses for minutes before it starts a container that ends often, and a slow API server may depose every replica.
    while (code := asyncio.run(serve(settings))) == EXIT_DEPOSED:
        logger.warning("begins anew, as one that waits for the lease")
    sys.exit(code)
