"""Tables of results in Markdown, and whether goals are met, from the JSON that the commands write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from spare.sim.departures import GOALS, MICRO, REJOIN
from spare.sim.published import READINGS, REPLICATION, SIZES, SPARE, Published
from spare.sim.setting import paper_setting

Row = Mapping[str, Any]
THE_PAPER = "SPARe as in the paper"
LABELS = ("SPARe", "SPARe, constant rate", *(f"replication, {reading}" for reading in READINGS))
"""Of the lines of the paper's table, as the runs are labelled."""


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def interval(value: Mapping[str, float]) -> str:
    """Mean and half width; one run has none."""
    return f"{value['mean']:.3f}" + (f" ± {value['half']:.3f}" if value["runs"] > 1 else "")


def off(value: float, reference: float) -> str:
    """By how much a value is off, in per cent with its sign."""
    return f"{(value / reference - 1) * 100:+.1f} %"


def best_row(rows: Iterable[Row], label: str, groups: int) -> Row:
    """The row of least TTT / T0 of a label and an N."""
    return min(
        (row for row in rows if row["label"] == label and row["groups"] == groups), key=lambda row: row["ratio"]["mean"]
    )


def short_table(paper: Mapping[str, Any], beyond: Mapping[str, Any]) -> str:
    """TTT / T0 for each N: the paper's numbers, the same simulated, and ours."""

    def simulated(label: str) -> list[str]:
        found = [(at_their_r(paper, label, n)["ratio"], published(label, n).ratio) for n in SIZES]
        return [f"{interval(ratio)} ({off(ratio['mean'], theirs)})" for ratio, theirs in found]

    rows = [["SPARe, the paper's number", *(f"{SPARE[n].ratio:.2f}" for n in SIZES)]]
    rows += [["SPARe, simulated here at its r", *simulated("SPARe")]]
    rows += [["replication, the paper's number", *(f"{REPLICATION[n].ratio:.2f}" for n in SIZES)]]
    rows += [[f"replication, simulated here: {each}", *simulated(f"replication, {each}")] for each in READINGS]
    for name, label in (("ours, nobody replaced", MICRO), ("ours, replaced after 10 minutes", REJOIN)):
        rows += [[name, *(interval(ladder_row(paper, beyond, label, n)["ratio"]) for n in SIZES)]]
    return markdown(["TTT / T0", *(f"N = {n}" for n in SIZES)], rows)


def main_table(paper: Mapping[str, Any]) -> str:
    """The paper's table, ours beside it: at our best r, and at the paper's."""
    rows = []
    for n in SIZES:
        for label in LABELS:
            best, theirs = best_row(paper["table"], label, n), published(label, n)
            same = at_their_r(paper, label, n)
            cells = [f"{theirs.ratio:.2f}", f"{theirs.availability:.2%}", str(theirs.redundancy)]
            for row in (same, best):
                ratio = row["ratio"]
                cells += [interval(ratio), off(ratio["mean"], theirs.ratio), f"{row['availability']['mean']:.2%}"]
            rows.append([str(n), label, *cells, str(best["redundancy"])])
    theirs_head = ["paper's TTT/T0", "availability", "its best r"]
    ours_head = ["ours at that r", "off", "availability", "ours at our best r", "off", "availability", "our best r"]
    return markdown(["N", "strategy", *theirs_head, *ours_head], rows)


def published(label: str, groups: int) -> Published:
    """The paper's cell for one of ``LABELS``."""
    return (SPARE if label.startswith("SPARe") else REPLICATION)[groups]


def at_their_r(paper: Mapping[str, Any], label: str, groups: int) -> Row:
    """The row at the paper's best r."""
    r = published(label, groups).redundancy
    return best_row([row for row in paper["table"] if row["redundancy"] == r], label, groups)


def gain_table(paper: Mapping[str, Any]) -> str:
    """By how much SPARe is faster than replication."""
    rows = []
    for n in SIZES:
        ours = []
        for reading, (_, changes) in READINGS.items():
            spare = best_row(paper["table"], "SPARe, constant rate" if changes else "SPARe", n)
            replication = best_row(paper["table"], f"replication, {reading}", n)
            ours.append(f"{1 - spare['ratio']['mean'] / replication['ratio']['mean']:.1%}")
        rows.append([str(n), *ours, f"{1 - SPARE[n].ratio / REPLICATION[n].ratio:.1%}"])
    return markdown(["N", *(f"replication: {reading}" for reading in READINGS), "paper's"], rows)


def goals(paper: Mapping[str, Any]) -> list[str]:
    """Whether TTT / T0 is within 10 %: at the paper's r, and of our best r against its best r."""
    found = []
    for label in LABELS:
        for name, row_at in (("at the paper's r", at_their_r), ("at the best r", _at_best)):
            shares = {n: row_at(paper, label, n)["ratio"]["mean"] / published(label, n).ratio - 1 for n in SIZES}
            found.append(f"{label}, {name}: {met_and_missed({f'N = {n}': s for n, s in shares.items()}, 0.1)}")
    return found


def _at_best(paper: Mapping[str, Any], label: str, groups: int) -> Row:
    return best_row(paper["table"], label, groups)


def met_and_missed(shares: Mapping[str, float], limit: float) -> str:
    """ "within 10 % at N = 200 (-5.0 %); **missed** at ..."."""
    texts = {name: f"{name} ({share * 100:+.1f} %)" for name, share in shares.items()}
    met = [text for name, text in texts.items() if abs(shares[name]) <= limit]
    missed = [text for name, text in texts.items() if abs(shares[name]) > limit]
    good = f"within {limit * 100:.0f} % at {', '.join(met)}" if met else ""
    bad = f"**missed** at {', '.join(missed)}" if missed else ""
    return "; ".join(filter(None, (good, bad)))


def formula_goals(paper: Mapping[str, Any]) -> list[str]:
    """Whether mu is within 2 % and Sbar within 4 % of Monte-Carlo, case by case."""

    def cases(rows: Iterable[Row], formula: str, measured: Callable[[Row], float]) -> dict[str, float]:
        return {name: row[formula] / measured(row) - 1 for name, row in named(rows)}

    mu, depth = paper["mu"], paper["depth"]
    every = {
        name: {f"N = {row['groups']}": row[name]["mean"] for row in paper["mu_errors"]} for name in ("masked", "with")
    }
    least = {name: row["arcs"]["mean"] / row["Consecutive"]["mean"] - 1 for name, row in named(depth)}
    return [
        f"mu, mean over every r, failures masked: {met_and_missed(every['masked'], 0.02)}",
        f"mu, mean over every r, the last one with them: {met_and_missed(every['with'], 0.02)}",
        f"mu, failures masked: {met_and_missed(cases(mu, 'mu', lambda r: r['mu_Golomb']['mean'] - 1), 0.02)}",
        f"mu, the last one with them: {met_and_missed(cases(mu, 'mu', lambda r: r['mu_Golomb']['mean']), 0.02)}",
        f"Sbar with c(k) alone against simulated c(k): "
        f"{met_and_missed(cases(mu, 'sbar', lambda r: r['bound_Golomb']), 0.04)}",
        f"Sbar against the scheduler, independent placement: "
        f"{met_and_missed(cases(depth, 'sbar', lambda r: r['Golomb']['mean']), 0.04)}",
        f"Sbar against the scheduler, consecutive stacks: "
        f"{met_and_missed(cases(depth, 'sbar', lambda r: r['Consecutive']['mean']), 0.04)}",
        f"the least depth that is possible against the scheduler, consecutive stacks: {met_and_missed(least, 0.04)}",
        f"Sbar for micro-batches against our scheduler, independent placement: "
        f"{met_and_missed(cases(depth, 'sbar_micro', lambda r: r['micro']['mean']), 0.04)}",
    ]


def named(rows: Iterable[Row]) -> Iterable[tuple[str, Row]]:
    """Rows with what they are rows of."""
    return ((f"N = {row['groups']}, r = {row['redundancy']}", row) for row in rows)


def sweep_table(paper: Mapping[str, Any]) -> str:
    """How far each assumption moves TTT / T0 at N = 200."""
    base = {row["kind"]: row["ratio"]["mean"] for row in paper["sweep"] if row["label"] == "as assumed"}
    labels = list(dict.fromkeys(row["label"] for row in paper["sweep"]))
    rows = []
    for label in labels:
        cells = []
        for kind in ("whole", "replication"):
            row = next((row for row in paper["sweep"] if row["label"] == label and row["kind"] == kind), None)
            cells += [interval(row["ratio"]), off(row["ratio"]["mean"], base[kind])] if row else ["", ""]
        rows.append([label, *cells])
    return markdown(["changed", "SPARe, r = 9", "moved by", "replication, r = 3", "moved by"], rows)


def mu_table(paper: Mapping[str, Any]) -> str:
    """mu: formula against Monte-Carlo, without and with the failure that wipes out."""
    rows = []
    for row in paper["mu"]:
        cells = [str(row["groups"]), str(row["redundancy"]), f"{row['mu']:.1f}"]
        for strategy in ("Golomb", "Consecutive"):
            found = row[f"mu_{strategy}"]
            cells += [f"{found['mean'] - 1:.1f} ± {found['half']:.1f}", off(row["mu"], found["mean"] - 1)]
            cells += [off(row["mu"], found["mean"])]
        rows.append(cells)
    head = ["N", "r", "mu", "masked, independent (Golomb)", "formula off", "off with the last one"]
    return markdown([*head, "masked, consecutive", "formula off", "off with the last one"], rows)


def mu_errors_table(paper: Mapping[str, Any]) -> str:
    """How far the formula of mu is off over every r."""
    rows = []
    for row in paper["mu_errors"]:
        cells = [str(row["groups"]), f"2 to {row['most']}"]
        for name in ("masked", "with"):
            found = row[name]
            cells += [f"{found['mean']:.2%}", f"{found['worst_off'] * 100:+.1f} %", str(found["worst"])]
        rows.append(cells)
    head = ["N", "r", "mean error, masked", "largest", "at r", "mean error, with the last one", "largest", "at r"]
    return markdown(head, rows)


def depth_table(paper: Mapping[str, Any]) -> str:
    """Sbar's lower bound against the bound along real wipe-outs and against the scheduler."""
    bounds = {(row["groups"], row["redundancy"]): row["bound_Golomb"] for row in paper["mu"]}
    rows = []
    for row in paper["depth"]:
        bound = bounds.get((row["groups"], row["redundancy"]))
        cells = [f"{bound:.3f}", off(row["sbar"], bound)] if bound else ["", ""]
        for strategy in ("Golomb", "Consecutive"):
            cells += [interval(row[strategy]), off(row["sbar"], row[strategy]["mean"])]
        cells += [interval(row["arcs"]), interval(row["micro"]), off(row["sbar_micro"], row["micro"]["mean"])]
        rows.append([str(row["groups"]), str(row["redundancy"]), f"{row['sbar']:.3f}", *cells])
    head = ["N", "r", "Sbar, c(k) only", "mean c(k), simulated", "off", "scheduler, Golomb", "off"]
    more = ["least possible, consecutive", "ours with micro-batches, Golomb", "formula off"]
    return markdown([*head, "scheduler, consecutive", "off", *more], rows)


def ladder_labels(beyond: Mapping[str, Any]) -> list[str]:
    """The departures, in order, the paper first."""
    return [THE_PAPER, *dict.fromkeys(row["label"] for row in beyond["ladder"])]


def ladder_row(paper: Mapping[str, Any], beyond: Mapping[str, Any], label: str, groups: int) -> Row:
    """A rung, for one N; of several r the best."""
    if label == THE_PAPER:
        return best_row(paper["table"], "SPARe", groups)
    return best_row(beyond["ladder"], label, groups)


def ladder_table(paper: Mapping[str, Any], beyond: Mapping[str, Any]) -> str:
    """One line for each departure."""
    rows = []
    for label in ladder_labels(beyond):
        cells = []
        for n in SIZES:
            row = ladder_row(paper, beyond, label, n)
            cells += [interval(row["ratio"]), str(row["redundancy"])]
        rows.append([label, *cells])
    return markdown(["", *(text for n in SIZES for text in (f"N = {n}", "r"))], rows)


def beyond_goals(beyond: Mapping[str, Any]) -> list[str]:
    """Whether ours is as fast as was set out."""
    found = []
    for name, label in (("without replacement", MICRO), ("with replacement", REJOIN)):
        for n in SIZES:
            row, goal = best_row(beyond["ladder"], label, n), GOALS[name][n]
            met = "met" if row["ratio"]["mean"] <= goal else "**missed**"
            text = f"{name}, N = {n}: {row['ratio']['mean']:.3f} at r = {row['redundancy']}; goal {goal}: {met}"
            found.append(text)
    return found


def racks_table(beyond: Mapping[str, Any]) -> str:
    """Racks that fail as one."""
    rows = [
        [row["label"], interval(row["ratio"]), f"{row['availability']['mean']:.2%}", f"{row['depth']['mean']:.3f}"]
        for row in beyond["racks"]
    ]
    return markdown(["", "TTT/T0", "availability", "depth with patch"], rows)


def implied_cost() -> str:
    """What the paper's own numbers say that a failure costs replication, in seconds, for each N.

    A step that counts takes TTT/T0 * availability * T0 per step; what is above r layers and an all-reduce is divided by
    the failures per such step.
    """
    costs = []
    for n, cell in REPLICATION.items():
        setting = paper_setting(n)
        step = cell.ratio * cell.availability * (setting.compute + setting.reduction)
        healthy = cell.redundancy * setting.compute + setting.reduction
        costs.append(f"{(step - healthy) / (step / setting.between_failures):.0f} s (N = {n})")
    return ", ".join(costs)
