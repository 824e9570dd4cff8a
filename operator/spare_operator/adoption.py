"""Which of the pods that an operator finds at its start belong to the job as it was left. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from spare_operator.seen import Seen


def complete(there: Iterable[Seen], members: Mapping[int, str], pods: int) -> bool:
    """Whether all pods of all members are there; `pods`: of each group."""
    found = {(seen.incarnation, seen.pod) for seen in there}
    return all((uid, pod) in found for uid in members.values() for pod in range(pods))


def places(there: Iterable[Seen], known: Mapping[str, int]) -> dict[str, int]:
    """Group of each incarnation: of a spare that took a place, some pods may have got their label, some not."""
    found = dict(known)
    for seen in there:
        found[seen.incarnation] = min(found.get(seen.incarnation, seen.group), seen.group)
    return found


def missing(there: Collection[Seen], members: Mapping[int, str], pods: int) -> list[tuple[int, str, int]]:
    """(group, incarnation, pod) of members that are not there."""
    found = {(seen.group, seen.incarnation, seen.pod) for seen in there}
    every = [(group, uid, pod) for group, uid in members.items() for pod in range(pods)]
    return [each for each in every if each not in found]


def starts(there: Iterable[Seen], members: Mapping[int, str], leaving: Collection[str], least: int) -> dict[int, str]:
    """The start of each group that is no member which is gone on with, if there is one.

    Args:
        there: all pods.
        members: incarnation of each group in the recorded plan.
        leaving: incarnations that it let go.
        least: pods that there must be of a start.
    """
    found: dict[int, dict[str, list[Seen]]] = {}
    for seen in there:
        if seen.group not in members and seen.incarnation not in leaving:
            found.setdefault(seen.group, {}).setdefault(seen.incarnation, []).append(seen)
    chosen = dict[int, str]()
    for group, incarnations in found.items():
        whole = {m: len(pods) for m, pods in incarnations.items() if len(pods) >= least and all(s.live for s in pods)}
        if whole:  # the one that is nearest to being complete; the greater mark if they are equal
            chosen[group] = max(whole, key=lambda mark: (whole[mark], mark))
    return chosen
