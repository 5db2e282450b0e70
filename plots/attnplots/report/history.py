"""Writes the page of `attnbench history report`: a line for each case over the commits, with the changes that
the driver found. The page has its data inside and draws a chart when it comes into view."""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnplots.records.text import count_of, printable
from attnplots.report import html

# The table has so many rows; the charts mark every change.
MOST_ROWS = 200
SHORT = 12  # digits of the id of a commit


@dataclass
class Change:
    """A row of the table of changes."""

    commit: str
    date: str
    subject: str
    case: str
    measure: str
    machine: str
    change: str
    interval: str
    p: str
    worse: bool
    chart: str  # the id of the chart


def percent(log_ratio: float | None) -> str:
    return "–" if log_ratio is None else f"{100 * math.expm1(log_ratio):+.1f} %"


def changes_of(history: dict[str, Any], order: list[int]) -> list[Change]:
    """All changes, the newest commit first, and of one commit the largest first."""
    found = []
    for place, index in enumerate(order):
        series = history["series"][index]
        for change in series["changes"]:
            commit = history["commits"][change["commit"]]
            low, high = change["interval"]
            row = Change(
                commit["commit"][:SHORT], commit["committed_at"][:10], printable(commit["subject"]), printable(series["case"]),
                printable(series["measure"]), printable(series["machine"]), percent(change["log_ratio"]), f"{percent(low)} … {percent(high)}",
                f"{change['p']:.1g}", (change["log_ratio"] or 0) > 0, f"chart-{place}",
            )  # fmt: skip
            found.append((-change["commit"], -abs(change["log_ratio"] or 0), row))
    return [row for _, _, row in sorted(found, key=lambda one: one[:2])]


def order_of(history: dict[str, Any]) -> list[int]:
    """The order of the charts: by machine, and then those that changed last first. So are the machines."""
    changed = [max((change["commit"] for change in series["changes"]), default=-1) for series in history["series"]]
    machines: dict[str, int] = {}
    for series, last in zip(history["series"], changed, strict=True):
        machines[series["machine"]] = max(last, machines.get(series["machine"], -1))

    def key(index: int) -> tuple[int, str, int, str, str]:
        series = history["series"][index]
        machine = series["machine"]
        return -machines[machine], machine, -changed[index], series["case"], series["measure"]

    return sorted(range(len(history["series"])), key=key)


def rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def data_of(history: dict[str, Any], order: list[int]) -> str:
    """What the charts are drawn from, as JSON that can stand in a page."""
    charts = []
    for index in order:
        series = history["series"][index]
        columns = list(zip(*series["points"], strict=True))
        commits, values, low, high = columns
        charts.append({
            "unit": series["unit"], "commits": commits, "values": list(map(rounded, values)), "low": list(map(rounded, low)),
            "high": list(map(rounded, high)), "changes": [[c["commit"], percent(c["log_ratio"]), (c["log_ratio"] or 0) > 0] for c in series["changes"]],
        })  # fmt: skip
    commits = [[c["commit"][:SHORT], c["committed_at"][:16].replace("T", " "), printable(c["subject"])] for c in history["commits"]]
    return html.json_inside({"commits": commits, "charts": charts})


def render(history: dict[str, Any], title: str) -> str:
    """The page as text."""
    order = order_of(history)
    commits = history["commits"]
    changes = changes_of(history, order)
    machines: dict[str, list[dict[str, str]]] = {}
    for place, index in enumerate(order):
        series = history["series"][index]
        name = printable(series["case"])
        machines.setdefault(printable(series["machine"]), []).append(
            {"id": f"chart-{place}", "case": name, "measure": printable(series["measure"]),
             "changes": count_of(len(series["changes"]), "change") if series["changes"] else ""}
        )  # fmt: skip
    cases = len({series["case"] for series in history["series"]})
    return html.template("history.html").render(
        title=title, data=data_of(history, order), machines=machines, changes=changes[:MOST_ROWS],
        more=len(changes) - len(changes[:MOST_ROWS]), commits=count_of(len(commits), "commit"), cases=count_of(cases, "case"),
        machine_count=count_of(len(machines), "machine"), first=commits[0]["committed_at"][:10], last=commits[-1]["committed_at"][:10],
        found=count_of(len(changes), "change"), alpha=f"{100 * history['alpha']:g} %", shift=f"{100 * history['min_shift']:g} %",
    )  # fmt: skip


def main(root: Path, parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Writes the page. `attnbench history report` describes the options, and writes the file that this reads."""
    parser.add_argument("history", type=Path)
    html.add_options(parser, "history.html")
    options = parser.parse_args(arguments)
    html.write(options.out, render(json.loads(options.history.read_text("utf-8")), printable(options.title or "History")))
