"""What a checkpoint is called, what its manifest says, and whether a job may go on from it. Pure.

A checkpoint is the folder `epoch-EEEEEEEE-TTTTTTTT/step-SSSSSSSSSS` below spec.checkpoint.path: the epoch of the start
or restart that its history belongs to (`Plan.origin`), a tag of the job, and the steps committed. A later start has a
larger epoch, so whoever still writes for an abandoned history can never be taken for the newest.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from spare.planner.words import counted

FORMAT: Final = 1
"""Version of the manifest."""
NAMED: Final = 5
"""How many differing parameters a sentence names."""

_NAME = re.compile(r"epoch-(\d{8,})-([0-9a-f]{8})/step-(\d{10,})", re.ASCII)


@dataclass(frozen=True, order=True)
class Name:
    """Which checkpoint: ordered by age, the newest last."""

    origin: int
    """Epoch of the start or restart that the steps are counted in."""
    step: int
    """Steps committed."""
    tag: str
    """Of the job that wrote it, see `tag_of`."""

    def __str__(self) -> str:
        return f"{self.attempt}/step-{self.step:010d}"

    @property
    def attempt(self) -> str:
        """The folder that all checkpoints of this history lie in."""
        return f"epoch-{self.origin:08d}-{self.tag}"

    @classmethod
    def parse(cls, text: str) -> Name:
        """The inverse of `str`.

        Raises:
            ValueError: it has another form.
        """
        match = _NAME.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no checkpoint's name, such as {Name(1, 40, '0' * 8)}")
        return cls(int(match[1]), int(match[3]), match[2])


def tag_of(job: str) -> str:
    """Eight hexadecimal digits that tell jobs on one path apart."""
    return hashlib.sha256(job.encode()).hexdigest()[:8]


def newest(names: Iterable[str]) -> str | None:
    """The newest of some names; None where there is none."""
    return str(max(map(Name.parse, names))) if (names := tuple(names)) else None


@dataclass(frozen=True)
class Data:
    """One data set as a session's loader knows it."""

    name: str
    length: int
    """Samples in it."""

    def __str__(self) -> str:
        return f"{self.name} with {counted(self.length, 'sample')}"


@dataclass(frozen=True)
class Terms:
    """How a job's data are divided and drawn: together with a position, all that says which sample comes when."""

    groups: int
    micro_batches: int
    micro_batch_size: int | None
    """Samples in a micro-batch; None where the script has not said, and so does not count in samples."""
    seed: int
    data: tuple[Data, ...] = ()
    """Data sets of the session's loaders, in the order of their making."""

    @property
    def samples(self) -> int:
        """Samples of one step."""
        return self.groups * self.micro_batches * (self.micro_batch_size or 1)


def refusal(was: Terms, now: Terms) -> str | None:
    """Why a job with the terms `now` cannot go on where one with the terms `was` left off; None when it can.

    With a position counted in samples any division goes on exactly: the next sample is the next one. A script that
    finds its data by (step, shard, index) would skip some samples and see others twice under another division.
    """
    broken = []
    if was.seed != now.seed:
        broken.append(
            f"spec.seed is {now.seed}, and the checkpoint's is {was.seed}: it decides the order of the samples"
        )
    if was.data != now.data:
        broken.append(f"the session's data are {_data(now)}, and the checkpoint's are {_data(was)}")
    counted = was.micro_batch_size is not None and now.micro_batch_size is not None
    if not counted:
        for field_name, before, after in (
            ("spec.groups", was.groups, now.groups),
            ("spec.microBatches", was.micro_batches, now.micro_batches),
            ("micro_batch_size", was.micro_batch_size, now.micro_batch_size),
        ):
            if before != after:
                broken.append(
                    f"{field_name} is {after}, and the checkpoint's is {before}; only a script that gives "
                    "Session(micro_batch_size=...) and takes its data by micro.samples or session.loader can be "
                    "divided anew"
                )
    return "; ".join(broken) or None


def _data(terms: Terms) -> str:
    return ", ".join(map(str, terms.data)) or "not read through session.loader"


Shape = tuple[tuple[int, ...], str]
"""Sizes and dtype of a tensor."""


def mismatch(was: Mapping[str, Shape], now: Mapping[str, Shape]) -> str | None:
    """Which parameters and buffers of a model are not those of a checkpoint; None when all are."""
    texts = [
        f"{name} is {_shape(now[name])}, and the checkpoint's is {_shape(was[name])}"
        for name in was
        if name in now and was[name] != now[name]
    ]
    texts += [
        f"the checkpoint has {name} {_shape(was[name])}, which the model lacks" for name in was if name not in now
    ]
    texts += [
        f"the model has {name} {_shape(now[name])}, which the checkpoint lacks" for name in now if name not in was
    ]
    more = f"; and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return "; ".join(texts[:NAMED]) + more if texts else None


def _shape(shape: Shape) -> str:
    return f"{list(shape[0])} of {shape[1]}"


@dataclass(frozen=True)
class File:
    """One file of a checkpoint."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What lies in a checkpoint, and of which job. Written last: a folder without one is no checkpoint."""

    name: str
    job: str
    """Unique name of the job that wrote it."""
    epoch: int
    """That it was written in."""
    begun_from: str | None
    """The checkpoint that its history began with; None: with step 0."""
    terms: Terms
    samples: int
    """Position in the data: samples that the committed steps have used."""
    model: Mapping[str, Shape]
    """Parameters and buffers, of rank 0."""
    ranks: int = 1
    """Processes of the group that wrote it: each has a folder `rank-R` of its own."""
    files: Mapping[str, File] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """Steps committed."""
        return Name.parse(self.name).step

    def to_text(self) -> str:
        """As it is written: JSON, one key a line."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, sort_keys=True) + "\n"

    @classmethod
    def of_text(cls, text: str) -> Manifest:
        """The inverse of `to_text`.

        Raises:
            ValueError: no manifest, or of another format; the text says which.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            if raw.pop("format") != FORMAT:
                raise ValueError(f"its format is not {FORMAT}, the one that this version reads")
            terms = dict(raw.pop("terms"))
            data = tuple(Data(**each) for each in terms.pop("data"))
            model = {name: (tuple(sizes), dtype) for name, (sizes, dtype) in raw.pop("model").items()}
            files = {name: File(**each) for name, each in raw.pop("files").items()}
            manifest = cls(terms=Terms(data=data, **terms), model=model, files=files, **raw)
            Name.parse(manifest.name)
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise ValueError(f"not a checkpoint's manifest: {error}") from error
        return manifest
