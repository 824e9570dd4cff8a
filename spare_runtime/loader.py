"""Map-style data sets: which samples a micro-batch has, and how they are fetched ahead of time.

The sample at ordinal o (counted over all of training, by step, shard, index) is place o mod L of pass o // L over
the L samples, in that pass's own seeded order: each sample once per pass, whoever computes it. A pass may end in the
middle of a step; nothing is dropped and nothing is padded.
"""

from __future__ import annotations

import concurrent.futures
import functools
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

import torch.multiprocessing
from torch.utils.data import default_collate

from spare.api.exit_codes import ExitCode
from spare_runtime.permutation import Permutation
from spare_runtime.randomness import seed_all, seed_of

_FETCH_DEADLINE = 600.0


class Dataset(Protocol):
    """Map-style: a length, and samples by number."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


class MicroLike(Protocol):
    """What the loader needs to know of a micro-batch."""

    @property
    def step(self) -> int: ...
    @property
    def shard(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def samples(self) -> range: ...


Key = tuple[int, int, int]


class SampleOrder:
    """Sample numbers of ordinals, for a data set of `length` samples and the job's seed."""

    def __init__(self, length: int, seed: int) -> None:
        if length < 1:
            raise ValueError("the data set is empty")
        self._length, self._seed = length, seed
        self._pass = functools.lru_cache(maxsize=4)(lambda n: Permutation(length, seed_of(seed, n)))

    def __getitem__(self, ordinal: int) -> int:
        number, place = divmod(ordinal, self._length)
        return self._pass(number)[place]


class Loader:
    """Batches of a session's micro-batches: `loader[micro]`.

    With workers, the micro-batches that this group will compute next are fetched ahead by processes of their own. After
    a failure the plan is another one: what was fetched for nothing is dropped, and patches are fetched as they come.
    """

    def __init__(
        self,
        dataset: Dataset,
        upcoming: Callable[[], Iterator[MicroLike]],
        seed: int,
        *,
        collate: Callable[[list[Any]], Any] | None = None,
        workers: int = 0,
        prefetch: int = 2,
        part: slice = slice(None),
    ) -> None:
        """Use `session.loader`.

        Args:
            dataset: Sent to each worker once; must then be picklable.
            upcoming: The micro-batches that the group will compute next, without end.
            seed: The job's.
            collate: Makes a batch of a list of samples; default: torch's.
            workers: Processes that fetch; 0 fetches in the training process, when asked.
            prefetch: Micro-batches fetched ahead per worker.
            part: Of each micro-batch's samples, those that are fetched.

        Raises:
            ValueError: workers < 0, prefetch < 1, or an empty data set.
        """
        if workers < 0 or prefetch < 1:
            raise ValueError(f"workers must be >= 0 and prefetch >= 1, not {workers} and {prefetch}")
        self.order = SampleOrder(len(dataset), seed)
        self._fetch = functools.partial(_fetch, dataset, collate or default_collate)
        self._part = part
        self._seed, self._upcoming, self._ahead = seed, upcoming, workers * prefetch
        self._workers = workers
        self._pool = self._start() if workers else None
        self._waiting: dict[Key, concurrent.futures.Future[Any]] = {}

    def _start(self) -> concurrent.futures.ProcessPoolExecutor:
        return concurrent.futures.ProcessPoolExecutor(
            self._workers,
            # a fork would share the sockets of the process group and the locks of its threads
            mp_context=torch.multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(self._fetch,),
        )

    def __getitem__(self, micro: MicroLike) -> Any:
        """The batch of `micro`.

        Raises:
            Whatever the data set or the collate function raises.
            TimeoutError: a worker was at it for too long.
            RuntimeError: two workers ended over it.
        """
        if self._pool is None:
            indices, seed = self._request(micro)
            batch = self._fetch(indices, seed)
            seed_all(seed)  # the batch is computed from the same random state, with workers and without
            return batch
        try:
            future = self._waiting.pop(_key(micro), None) or self._submit(self._pool, micro)
            self._look_ahead(self._pool, micro)
            return _result(future, micro)
        except BrokenProcessPool:
            return self._again(micro)

    def _again(self, micro: MicroLike) -> Any:
        """Fetch with workers made anew, and nothing beside it: the end of one (a lack of memory kills the largest) is
        no error of the script, unless the same micro-batch ends another."""
        self.close()
        self._waiting.clear()
        self._pool = self._start()
        try:
            return _result(self._submit(self._pool, micro), micro)
        except BrokenProcessPool as error:
            raise RuntimeError(
                f"two processes of the loader ended while they fetched {_named(micro)}: {error}"
            ) from error

    def _look_ahead(self, pool: concurrent.futures.ProcessPoolExecutor, present: MicroLike) -> None:
        wanted: dict[Key, MicroLike] = {}
        for micro in self._upcoming():
            if len(wanted) >= self._ahead:
                break
            if _key(micro) != _key(present):
                wanted[_key(micro)] = micro
        for key in [k for k in self._waiting if k not in wanted]:
            self._waiting.pop(key).cancel()
        for key, micro in wanted.items():
            if key not in self._waiting:
                self._waiting[key] = self._submit(pool, micro)

    def _submit(self, pool: concurrent.futures.ProcessPoolExecutor, micro: MicroLike) -> concurrent.futures.Future[Any]:
        return pool.submit(_in_worker, *self._request(micro))

    def _request(self, micro: MicroLike) -> tuple[list[int], int]:
        indices = [self.order[ordinal] for ordinal in micro.samples[self._part]]
        return indices, seed_of(self._seed, micro.step, micro.shard, micro.index)

    def close(self) -> None:
        """End the workers."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _key(micro: MicroLike) -> Key:
    return micro.step, micro.shard, micro.index


def _named(micro: MicroLike) -> str:
    return f"micro-batch {micro.index} of shard {micro.shard} in step {micro.step}"


def _result(future: concurrent.futures.Future[Any], micro: MicroLike) -> Any:
    try:
        return future.result(timeout=_FETCH_DEADLINE)
    except TimeoutError as error:
        if future.done():
            raise  # of the data set itself
        raise TimeoutError(f"waited {_FETCH_DEADLINE:.0f} s for a process of the loader: {_named(micro)}") from error


def _fetch(dataset: Dataset, collate: Callable[[list[Any]], Any], indices: list[int], seed: int) -> Any:
    """Random augmentation depends on the micro-batch alone, whoever fetches it."""
    seed_all(seed_of(seed, 1))
    return collate([dataset[i] for i in indices])


_worker_fetch: Callable[[list[int], int], Any] | None = None


def _begin(fetch: Callable[[list[int], int], Any]) -> None:
    global _worker_fetch
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    _worker_fetch = fetch


def _end_with_parent() -> None:
    """A killed training process ends nobody, and its pool's processes would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(ExitCode.SIGTERM)


def _in_worker(indices: list[int], seed: int) -> Any:
    assert _worker_fetch is not None
    return _worker_fetch(indices, seed)
