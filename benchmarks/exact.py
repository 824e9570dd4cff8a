"""What summing in fixed point costs and how far it is from the true sum: `make bench-exact`.

In one process, without a network: the gradients of 32 micro-batches of the GPT of examples/gpt are summed by the
session's two kinds of buffers. Processor time of each part, in milliseconds; the error of the sum against one in
float64, relative to its norm, beside what two orders of the same sum differ by. The whole step with its reduction is
measured by `make bench-steady`. The last line is one JSON object.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click
import torch
from torch import Tensor

from spare_runtime.buffers import Buffers, GradientBuffers
from spare_runtime.exact import ExactBuffers

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "gpt"))
import gpt

T = TypeVar("T")
MICROS = 32
SIZES = {"0.1M": (64, 4, 2), "1M": (192, 6, 2), "10M": (512, 8, 3)}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--size", "sizes", multiple=True, type=click.Choice(tuple(SIZES)), help="Default: all.")
@click.option("--repeats", default=15, show_default=True, type=click.IntRange(2))
def main(sizes: tuple[str, ...], repeats: int) -> None:
    """Measure both reductions side by side."""
    torch.set_num_threads(1)
    rows = []
    click.echo(
        f"{'':>6} {'':>9} {'fwd+bwd':>9} {'add':>8} {'fill':>8} {'apply':>8} {'clear':>8}  bytes/parameter  error"
    )
    for size in sizes or tuple(SIZES):
        gpt.WIDTH, gpt.HEADS, gpt.LAYERS = SIZES[size]
        gpt.DROPOUT = 0.0
        truth = sums(None, range(MICROS))
        for kind in (GradientBuffers, ExactBuffers):
            rows.append(measure(size, kind, truth, repeats))
            r = rows[-1]
            click.echo(
                f"{size:>6} {r['reduction']:>9} {r['backward_ms']:9.2f} {r['add_ms']:8.2f} {r['fill_ms']:8.2f} "
                f"{r['apply_ms']:8.2f} {r['clear_ms']:8.2f} {r['bytes']:16.1f}  {r['error']:.1e}"
            )
    for size in {r["size"]: None for r in rows}:
        plain, exact = (r for r in rows if r["size"] == size)
        more = exact["add_ms"] - plain["add_ms"]
        click.echo(
            f"{size}: a micro-batch costs {100 * more / plain['backward_ms']:.1f} % more; "
            f"two orders of a float32 sum differ by {plain['order']:.1e}, of an exact one by {exact['order']:.1e}"
        )
    click.echo(json.dumps({"benchmark": "exact", "torch": torch.__version__, "micro_batches": MICROS, "rows": rows}))


def backward(model: torch.nn.Module, micro: int) -> Tensor:
    """One micro-batch's."""
    loss = gpt.loss_of(model, range(micro * gpt.BATCH, (micro + 1) * gpt.BATCH))
    loss.backward()
    return loss


def fresh() -> torch.nn.Module:
    """The same model every time."""
    torch.manual_seed(0)
    return gpt.GPT()


def sums(kind: type[Buffers] | None, order: range | list[int]) -> Tensor:
    """The mean gradient, by one kind of buffers; None: in float64, from float32 gradients."""
    model = fresh()
    if kind is None:
        total = torch.zeros(sum(p.numel() for p in model.parameters()), dtype=torch.float64)
        for micro in order:
            model.zero_grad()
            backward(model, micro)
            total += flat(model)
        return total / MICROS
    buffers = kind(model.parameters())
    buffers.expect(MICROS)
    for _ in range(2):
        for micro in order:
            buffers.check_attached(empty=micro == order[0])
            buffers.add_loss(backward(model, micro))
        buffers.fill(unseen=False)
        if not buffers.overflown():
            break
        buffers.rescale()
        buffers.clear()
    buffers.apply(1 / MICROS)
    return flat(model)


def flat(model: torch.nn.Module) -> Tensor:
    """All gradients."""
    return torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None]).double()


def measure(size: str, kind: type[Buffers], truth: Tensor, repeats: int) -> dict[str, object]:
    """One row."""
    shuffled = list(range(MICROS))
    random.Random(1).shuffle(shuffled)
    one, other = sums(kind, range(MICROS)), sums(kind, shuffled)
    model = fresh()
    buffers = kind(model.parameters())
    buffers.expect(MICROS)
    count = sum(p.numel() for p in model.parameters())
    steps = [step(model, buffers) for _ in range(repeats)]
    buffers.add_loss(backward(model, 0).detach())
    held = sum(t.numel() * t.element_size() for t in tensors_of(buffers, model))
    return {
        "size": size,
        "parameters": count,
        "reduction": buffers.reduction,
        **{f"{name}_ms": round(statistics.median(each[name] for each in steps), 4) for name in steps[0]},
        "bytes": round(held / count, 2),
        "error": float((one - truth).norm() / truth.norm()),
        "order": float((one - other).norm() / truth.norm()),
    }


def step(model: torch.nn.Module, buffers: Buffers) -> dict[str, float]:
    """Processor milliseconds of each part of a step of one micro-batch."""
    buffers.check_attached(empty=True)
    found: dict[str, float] = {}
    loss = timed(found, "backward", lambda: backward(model, 0)).detach()
    timed(found, "add", lambda: buffers.add_loss(loss))
    timed(found, "fill", lambda: buffers.fill(unseen=False))
    with torch.no_grad():
        timed(found, "apply", lambda: buffers.apply(1 / MICROS))
    timed(found, "clear", buffers.clear)
    return found


def timed(found: dict[str, float], name: str, call: Callable[[], T]) -> T:
    """Add what the call took to what was found."""
    began = time.process_time()
    came = call()
    found[name] = 1000 * (time.process_time() - began)
    return came


def tensors_of(buffers: Buffers, model: torch.nn.Module) -> list[Tensor]:
    """What buffers and gradients hold, by storage."""
    everything = _all([*vars(buffers).values(), *(p.grad for p in model.parameters())])
    found = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in everything}
    return [torch.empty(0, dtype=torch.uint8).set_(storage) for storage in found.values()]


def _all(values: object) -> list[Tensor]:
    if isinstance(values, torch.nn.Parameter):
        return []
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, dict):
        values = values.values()
    elif hasattr(values, "__dataclass_fields__"):
        values = [v for k, v in vars(values).items() if k != "parameters"]
    elif not hasattr(values, "__iter__") or isinstance(values, str):
        return []
    return [t for v in values for t in _all(v)]  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
