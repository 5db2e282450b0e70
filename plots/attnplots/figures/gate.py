"""The power curves of the gate: how often it reaches each verdict on a case, against the true slowdown of the case.

The data is the file calibration.json that `attnbench gate --calibrate --out FOLDER` writes.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnplots.figures import style, ticks
from attnplots.figures.description import Group, Panel, Scale, Sheet
from attnplots.figures.style import Style
from attnplots.records import environment
from attnplots.records.methods import case_text
from attnplots.records.records import RecordsError
from attnplots.records.rows import plain_curve
from attnplots.records.text import count_of, printable

FILE_NAME = "calibration.json"
VERDICTS = ("regression", "pass", "inconclusive")
RULE = Style(style.GUIDE, style.QUIET, None, False, style.DASHED)


@dataclass(frozen=True)
class Case:
    """The curves of one case: a share in percent for each slowdown in percent, by verdict."""

    name: str
    slowdowns: list[float]
    shares: dict[str, list[float]]

    @property
    def method(self) -> str:
        """The method, with which the name of a case begins."""
        return self.name.split(" ")[0]


@dataclass(frozen=True)
class Calibration:
    """What the figure shows of a calibration: the settings of the gate, and a curve per case."""

    min_shift: float
    margin: float
    note: str
    stamp: str
    cases: list[Case]


def load(folder: Path) -> Calibration:
    """Reads the calibration in a folder. Raises RecordsError if it is not one."""
    path = folder / FILE_NAME
    try:
        data = json.loads(path.read_text("utf-8"))
        cases = [_case(item) for item in data["cases"]]
        if not cases:
            raise RecordsError(f"{path}: no cases, expected at least one")
        looks = ", ".join(f"{look:d}" for look in data["looks"])
        note = (
            f"{count_of(data['recordings'], 'recorded pair')} of equal builds for each case, with their log "
            f"ratios shifted by the slowdown; {count_of(data['trials'], 'resampled gate')} for each point; "
            f"looks after {looks} pairs, alpha {data['alpha']:g}, pass alpha {data['pass_alpha']:g}."
        )
        stamp = environment.stamp([{**data["environment"], "finished_at": data.get("finished_at")}])
        min_shift, margin = (100 * float(data[name]) for name in ("min_shift", "margin"))
        return Calibration(min_shift, margin, printable(note), printable(stamp), cases)
    except KeyError as error:
        raise RecordsError(
            f"{path}: no {error.args[0]}; `attnbench gate --calibrate --from FILE --out FOLDER` "
            "computes an older calibration again"
        )
    except (ValueError, TypeError) as error:
        raise RecordsError(f"{path}: not a calibration: {error}")


def _case(item: dict[str, Any]) -> Case:
    power = item["power"]
    slowdowns = [float(x) for x in power["slowdown_percent"]]
    shares = {verdict: [100 * float(x) for x in power[verdict]] for verdict in VERDICTS}
    if any(len(values) != len(slowdowns) for values in shares.values()):
        raise ValueError(f"the curves of {item['name']} differ in length")
    return Case(printable(item["name"]), slowdowns, shares)


def describe(calibration: Calibration) -> Sheet:
    """A panel for each verdict, with a curve for each case and lines at the slowdowns that the settings name."""
    cases = calibration.cases
    names, common = _short_names([case_text(case.name) for case in cases])
    longest = max(1.0, *(x for case in cases for x in case.slowdowns))
    x = Scale((0.0, longest + 0.5), ticks.linear((0.0, longest), 4), logarithmic=False)
    # Above the curves, which reach 100 %, there is room for the names of the lines.
    y = Scale((-4.0, 130.0), ticks.linear((0.0, 100.0), 5), logarithmic=False)
    rules = ((calibration.min_shift, "min shift"), (calibration.margin, "margin"))
    groups = []
    for verdict in VERDICTS:
        curves = [plain_curve(name, case.slowdowns, case.shares[verdict]) for name, case in zip(names, cases, strict=True)]
        groups.append(Group(verdict, [Panel("% of the gates", "true slowdown (%)", x, y, curves, 0.0, rules=rules, high=140.0)]))
    looks = dict(zip(names, _looks(cases), strict=True)) | {name: RULE for _, name in rules}
    header = f"Verdicts of the gate on a case that is slower{': ' + common if common else ''}"
    return Sheet(groups, looks, header, [calibration.note], calibration.stamp, dots=False, key=True)


def _looks(cases: list[Case]) -> list[Style]:
    """A look for each case. The method determines the colour and the marker; after its first case, the others have hollow marks and
    other dashes."""
    styles = style.styles(case.method for case in cases)
    chosen: list[Style] = []
    for n, case in enumerate(cases):
        look = styles[case.method]
        before = sum(other.method == case.method for other in cases[:n])
        dash = style.DASHES[before % len(style.DASHES)]
        chosen.append(Style(look.colour, look.text_colour, look.marker, before > 0, dash))
    return chosen


def _short_names(names: list[str]) -> tuple[list[str], str]:
    """The names without the words that end all of them, and these words."""
    words = [name.split(" ") for name in names]
    shared = 0
    while all(len(w) > shared + 1 and w[-1 - shared] == words[0][-1 - shared] for w in words):
        shared += 1
    if shared == 0 or len(names) == 1:
        return names, ""
    return [" ".join(w[:-shared]) for w in words], " ".join(words[0][-shared:])
