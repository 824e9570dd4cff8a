"""The figures. Imports matplotlib, so nobody imports this who does not draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt  # the backend has to be chosen first

Rows = Sequence[Mapping[str, Any]]


def save(figure: Any, path: Path, below: float = 0.0) -> None:
    """Write and forget a figure, with room for a legend in its lower part.

    No date is written into it, so equal results give equal files.
    """
    figure.tight_layout(rect=(0, below, 1, 1))
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def masking(mu: Rows, depth: Rows, path: Path) -> None:
    """mu and mean depth: formulas against Monte-Carlo."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2))
    _against(left, mu, "mu", {"Golomb": "mu_Golomb", "consecutive": "mu_Consecutive"}, "failures to the wipe-out")
    _against(right, depth, "sbar", {"Golomb": "Golomb", "consecutive": "Consecutive"}, "mean depth S, whole shards")
    save(figure, path)


def _against(axes: Any, rows: Rows, formula: str, measured: Mapping[str, str], label: str) -> None:
    names = [f"{row['groups']}, {row['redundancy']}" for row in rows]
    axes.plot(names, [row[formula] for row in rows], "k_", markersize=22, label="formula")
    for (name, key), mark in zip(measured.items(), "ox", strict=True):
        halves = [row[key]["half"] if row[key]["runs"] > 1 else 0.0 for row in rows]
        axes.errorbar(names, [row[key]["mean"] for row in rows], yerr=halves, fmt=mark, label=f"Monte-Carlo, {name}")
    axes.set_xlabel("N, r")
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.legend()


def against_redundancy(rows: Rows, micro: Rows, published: Mapping[str, Mapping[int, Any]], path: Path) -> None:
    """TTT / T0 against r, one picture for each N; the paper's best as stars."""
    sizes = sorted({row["groups"] for row in rows})
    figure, all_axes = plt.subplots(1, len(sizes), figsize=(4.2 * len(sizes), 5.0), sharey=True)
    for axes, n in zip(all_axes, sizes, strict=True):
        for label in sorted({row["label"] for row in rows}):
            _curve(axes, [row for row in rows if row["groups"] == n and row["label"] == label], label)
        _curve(axes, [row for row in micro if row["groups"] == n], "ours, no replacement")
        for name, table in published.items():
            axes.plot(table[n].redundancy, table[n].ratio, "*", markersize=12, label=f"the paper's {name}")
        axes.set_title(f"N = {n}")
        axes.set_xlabel("r")
        axes.axhline(1.0, color="grey", linewidth=0.5)
    all_axes[0].set_ylabel("TTT / T0")
    # Outside, for inside it would lie on the curves; a label once, though each N has its own line.
    labelled = {label: line for axes in all_axes for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(labelled.values(), labelled.keys(), loc="lower center", ncols=3, fontsize="small")
    save(figure, path, below=0.16)


def _curve(axes: Any, rows: Rows, label: str) -> None:
    ordered = sorted(rows, key=lambda row: row["redundancy"])
    axes.plot([row["redundancy"] for row in ordered], [row["ratio"]["mean"] for row in ordered], "o-", label=label)


def bars(labels: Sequence[str], series: Mapping[str, Sequence[float]], axis: str, path: Path) -> None:
    """Horizontal bars, one colour for each series, first label on top."""
    figure, axes = plt.subplots(figsize=(10, 0.8 + 0.27 * len(labels) * (len(series) + 0.6)))
    thick = 0.8 / len(series)
    for number, (name, values) in enumerate(series.items()):
        at = [place + thick * number for place in range(len(labels))]
        axes.barh(at, values, height=thick, label=name)
        for height, value in zip(at, values, strict=True):
            axes.text(value, height, f" {value:.2f}", va="center", fontsize="small")
    axes.set_yticks([place + 0.4 - thick / 2 for place in range(len(labels))], labels)
    axes.invert_yaxis()
    axes.axvline(1.0, color="grey", linewidth=0.5)
    axes.set_xlabel(axis)
    if len(series) > 1:
        axes.legend()
    save(figure, path)


def sizes(points: Sequence[tuple[int, float]], others: Mapping[str, tuple[int, float]], path: Path) -> None:
    """Expected time against r: ours as a curve, the other strategies as lines across, where they are finite."""
    figure, axes = plt.subplots(figsize=(7, 4.2))
    axes.plot([r for r, _ in points], [ratio for _, ratio in points], "o-", label="micro-batches")
    for number, (name, (redundancy, ratio)) in enumerate(others.items(), start=1):
        if ratio < 10:
            axes.axhline(ratio, color=f"C{number}", linestyle="--", label=f"{name} (r = {redundancy}): {ratio:.2f}")
    axes.set_xlabel("redundancy r")
    axes.set_ylabel("expected time / T0")
    axes.legend()
    save(figure, path)
