"""What kopf tells us: bare events, passed on. Nothing is decided here, and nothing of kopf's is written anywhere.

Only `on.event` handlers are used: they need no finalizer and no annotation (field cases F40, F42), and they are neither
ordered across objects nor retried, so they may only say "look there".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import kopf

from spare_operator import names
from spare_operator.jobs import Jobs
from spare_operator.settings import Watching

logger = logging.getLogger(__name__)

Login = Callable[..., Awaitable[kopf.ConnectionInfo | None]]
_WATCHER: Final = "watcher for "
"""What the names of kopf's tasks begin with of which each reads one watch."""
_PATIENCE: Final = 10.0
"""Seconds for a watcher to end; it lets its handlers finish."""
AGAIN: Final = 10.0
"""Seconds after which watches that broke are begun again, and the definition of jobs is looked for again."""


def registry_of(jobs: Jobs, login: Login, *, nodes: bool) -> kopf.OperatorRegistry:
    """The handlers. `nodes`: whether we may look at nodes, which takes rights on the whole cluster."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def log_in(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return await login(**kwargs)

    @kopf.on.event(names.GROUP, names.VERSION, names.PLURAL, registry=registry)
    async def job(event: kopf.RawEvent, **_: Any) -> None:
        jobs.see(dict(event["object"]), deleted=event["type"] == "DELETED")

    @kopf.on.event("", "v1", "pods", registry=registry)
    async def pod(event: kopf.RawEvent, **_: Any) -> None:
        jobs.see_pod(dict(event["object"]), deleted=event["type"] == "DELETED")

    if nodes:

        @kopf.on.event("", "v1", "nodes", registry=registry)
        async def node(event: kopf.RawEvent, **_: Any) -> None:
            jobs.see_node(dict(event["object"]), deleted=event["type"] == "DELETED")

    return registry


class _All(frozenset[Any]):
    """Holds every task."""

    def __contains__(self, task: object) -> bool:
        return True


async def keep_watching(
    registry: kopf.OperatorRegistry,
    settings: kopf.OperatorSettings,
    namespaces: tuple[str, ...],
    stop: asyncio.Event,
    defined: Callable[[], Awaitable[bool]],
) -> None:
    """Watch until `stop` is set, whatever happens to the watches: what they would have told, lists tell later.

    A right that is taken away or a definition that is deleted ends them for good as kopf has it, and if a definition is
    not there when it begins, kopf never looks for it again.

    Args:
        registry, settings, namespaces, stop: as in `watch`.
        defined: whether the API server knows SPAReJobs.
    """
    missed = False
    while not stop.is_set():
        if not await defined():
            if not missed:
                logger.warning("SPAReJobs are not defined here: waiting for their custom resource definition")
            missed = True
        else:
            missed = False
            try:
                await watch(registry, settings, namespaces, stop)
            except Exception as error:  # noqa: BLE001  # whatever kopf makes of an answer: told, and begun again
                logger.warning("the watches broke, and are begun again in %.0f s: %r", AGAIN, error)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(AGAIN):
                await stop.wait()


async def watch(
    registry: kopf.OperatorRegistry, settings: kopf.OperatorSettings, namespaces: tuple[str, ...], stop: asyncio.Event
) -> None:
    """Run kopf until `stop` is set, or a watch fails for good (its error is raised).

    As `kopf.operator`, which at its end cancels every task of the loop that is younger than itself: ours are not its.
    """
    tasks = await kopf.spawn_tasks(
        registry=registry,
        settings=settings,
        clusterwide=not namespaces,
        namespaces=list(namespaces),
        standalone=True,
        # Of no effect without peers; by itself kopf asks for our user's name, and in our image there is none. Its type
        # for it is not public.
        identity=names.OPERATOR,  # type: ignore[arg-type]
        stop_flag=stop,
    )
    before = asyncio.all_tasks()
    try:
        await kopf.run_tasks(tasks, ignored=_All())
    except Exception:
        await _end_watchers(asyncio.all_tasks() - before)
        raise


async def _end_watchers(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Where one watch breaks kopf leaves the others behind. Only they are cancelled, and what they began ends by them:
    a watcher whose own tasks were cancelled with it waits for these for ever."""
    left = {task for task in tasks if task.get_name().startswith(_WATCHER)}
    for task in left:
        task.cancel()
    if not left:
        return
    _, stuck = await asyncio.wait(left, timeout=_PATIENCE)
    if stuck:
        names_of = ", ".join(sorted(task.get_name() for task in stuck))
        logger.warning("not ended within %.0f s, and left behind: %s", _PATIENCE, names_of)


def kopf_settings(watching: Watching) -> kopf.OperatorSettings:
    """Kopf's own settings, where its defaults are not for us."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # events are ours to write: log lines are never any (field case F54)
    settings.peering.standalone = True  # the Lease decides who works
    settings.scanning.disabled = True  # no rights to list all custom resources and namespaces
    settings.watching.server_timeout = watching.server_timeout
    settings.watching.client_timeout = watching.client_timeout
    settings.watching.connect_timeout = watching.connect_timeout
    settings.watching.label_selectors["", "v1", "pods"] = f"{names.MANAGED_BY}={names.OPERATOR}"
    settings.networking.connect_timeout = watching.connect_timeout
    settings.process.ultimate_exiting_timeout = None  # whoever started the process ends it
    return settings
