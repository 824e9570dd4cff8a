"""Table, JSON, picture and page of what was measured."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

HEADS = {
    "step_time": "step, ms",
    "recovery": "kill to next commit, s",
    "rejoin": "kill to rejoined, s",
    "rejoin_stall": "others' stall at rejoin, s",
    "redone": "steps redone",
    "lost": "micro-batches lost",
    "repeated": "repeated",
    "wasted": "gradients wasted",
    "smallest": "smallest batch",
}
OURS = "SPARe"


def summary(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each system and kind of kill: medians of times, the worst of counts."""
    rows = []
    keys = dict.fromkeys((r["system"], r["point"]) for r in found["rows"])
    for system, point in keys:
        runs = [r for r in found["rows"] if (r["system"], r["point"]) == (system, point)]
        row: dict[str, Any] = {"system": system, "point": point, "runs": len(runs)}
        for name in HEADS:
            values = [r[name] for r in runs if r.get(name) is not None]
            if not values:
                row[name] = None
            elif name == "smallest":
                row[name] = min(values)
            elif name in ("redone", "lost", "repeated", "wasted"):
                row[name] = max(values)
            else:
                row[name], row[f"{name}_range"] = statistics.median(values), (min(values), max(values))
        rows.append(row)
    return rows


def table(found: Mapping[str, Any]) -> list[str]:
    """In Markdown, with the range over the runs, and the ratio to ours in brackets."""
    rows = summary(found)
    ours = {r["point"]: r for r in rows if r["system"] == OURS}
    lines = ["| system | killed | " + " | ".join(HEADS.values()) + " |", "|---" * (len(HEADS) + 2) + "|"]
    for row in rows:
        cells = [row["system"], {"mid": "in mid-step", "between": "between steps"}[row["point"]]]
        cells += [_cell(name, row, ours.get(row["point"])) for name in HEADS]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _cell(name: str, row: Mapping[str, Any], ours: Mapping[str, Any] | None) -> str:
    value = row[name]
    if value is None:
        return "-"
    if name in ("redone", "lost", "repeated", "wasted"):
        return str(value)
    if name == "smallest":
        return f"{value:g}"
    unit, places = (1000, 1) if name == "step_time" else (1, 2)
    least, most = row[f"{name}_range"]
    text = f"{unit * value:.{places}f} [{unit * least:.{places}f} to {unit * most:.{places}f}]"
    base = ours[name] if ours else None
    return f"{text} ({value / base:.2f}x)" if base and row["system"] != OURS else text


def picture(found: Mapping[str, Any], place: Path) -> None:
    """Seconds from the kill to the next commit, every run a dot, on a logarithmic scale."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 3.2), layout="constrained")
    systems = list(dict.fromkeys(r["system"] for r in found["rows"] if r.get("recovery") is not None))
    for offset, (point, colour) in enumerate((("mid", "tab:blue"), ("between", "tab:orange"))):
        runs = [r for r in found["rows"] if r["point"] == point and r.get("recovery") is not None]
        at = [systems.index(r["system"]) + 0.2 * offset - 0.1 for r in runs]
        label = "killed in mid-step" if point == "mid" else "killed between steps"
        axes.scatter([r["recovery"] for r in runs], at, color=colour, label=label, s=24)
    axes.set_yticks(range(len(systems)), systems)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("seconds from SIGKILL to the next committed step")
    axes.grid(axis="x", which="both", alpha=0.3)
    axes.legend()
    figure.savefig(place, dpi=110)
    pyplot.close(figure)


def write(found: Mapping[str, Any], settings: Mapping[str, str], docs: Path | None) -> None:
    """Print the table; into `docs`: benchmarks.md, benchmarks.json and benchmarks.png."""
    lines = table(found)
    click.echo("\n".join(lines))
    if docs is None:
        return
    page = [
        "# Measured against its peers",
        "",
        "Made by `make bench-peers`; the numbers are in [benchmarks.json](benchmarks.json). 4 groups of one process,",
        "the GPT of examples/gpt (0.9 M parameters), 8 micro-batches a step, one process killed with SIGKILL. Times",
        f"are medians over {len({r['run'] for r in found['rows']})} runs of each kind, with the least and the most of"
        " them; counts are the worst of them; in",
        "brackets the ratio to ours.",
        "",
        *lines,
        "",
        "![seconds from SIGKILL to the next commit](benchmarks.png)",
        "",
        "- *kill to next commit*: until somebody commits the step that was in flight, or would have been next.",
        "- *rejoined*: until the lost group's next process has committed a step. Starting Python and PyTorch is in it.",
        "- *others' stall at rejoin*: the longest pause between commits of the others meanwhile, beyond a usual step.",
        "- *steps redone*: committed, rolled back and committed again.",
        "- *lost*, *repeated*: micro-batches of the stream that are in no step's gradient, or in more than one, at the",
        "  end. Read from the reduced gradients: one parameter has an element for each micro-batch, with gradient 1.",
        "- *gradients wasted*: computed and in nothing; those that the killed process had computed are among them.",
        "- *smallest batch*: micro-batches in the smallest committed step; 8 is the whole batch.",
        "",
        *_elsewhere(docs / "benchmarks"),
        "## Settings",
        "",
        *(f"- **{system}**: {text}." for system, text in settings.items()),
        "",
        "## Machine and versions",
        "",
        *(f"- {name}: {text}" for name, text in found["versions"].items()),
        "",
    ]
    docs.mkdir(parents=True, exist_ok=True)
    (docs / "benchmarks.md").write_text("\n".join(page))
    (docs / "benchmarks.json").write_text(json.dumps(found, indent=1) + "\n")
    picture(found, docs / "benchmarks.png")


def _elsewhere(folder: Path) -> list[str]:
    """Links to what was recorded of the other benchmarks (benchmarks/record.py)."""
    files = sorted(folder.glob("*.txt"))
    if not files:
        return []
    made = ((f, next(line for line in f.read_text().splitlines() if line.startswith("$ "))[2:]) for f in files)
    lines = [f"- [{file.stem}]({folder.name}/{file.name}): `{command}`" for file, command in made]
    return ["## Ours alone", "", "The last output of each command as it was printed:", "", *lines, ""]


if __name__ == "__main__":  # the page anew, from the numbers that were measured last
    from systems import SETTINGS

    place = Path(__file__).parents[2] / "docs"
    write(json.loads((place / "benchmarks.json").read_text()), SETTINGS, place)
