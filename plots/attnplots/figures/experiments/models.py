"""The figure of `attnbench models`: how many times as fast models of transformers are with the operators of
this project, and how many times as much memory they need without them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnplots.figures.description import FILLED_SIZE, OPEN_SIZE, Group, Marks, Panel, Sheet, panel_of_names
from attnplots.figures.style import SOLID, Style
from attnplots.records import environment
from attnplots.records.text import RecordsError, json_object

FILE_NAME = "models.json"
# By phase: the title of its panel.
PHASES = {
    "step": "Training step",
    "prefill": "Prefill",
    "generation": "Generation",
    "operator": "The operator in a step",
}
COLOUR, FLOOR_COLOUR = "#0b4a91", "#7a4a2b"
OURS = Style(COLOUR, COLOUR, "o", False, SOLID)
FLOOR = Style(FLOOR_COLOUR, FLOOR_COLOUR, "D", True, SOLID)
MEMORY = Style(FLOOR_COLOUR, FLOOR_COLOUR, "s", True, SOLID)
KEY = (
    "Filled circles: with our operators, with the interval of the ratio over the rounds; to the right of 1 it is faster than "
    "transformers alone. Open diamonds: with an operator that computes nothing, which none can be faster than. Open squares: "
    "the memory of transformers alone beyond its model, divided by that with our operators."
)


@dataclass(frozen=True)
class Models:
    """The summary of a folder, and the stamp of the figure."""

    summary: dict[str, Any]
    stamp: str


def load(folder: Path) -> Models:
    """Reads the summary. Raises RecordsError if there is none, or if it is not one."""
    path = folder / FILE_NAME
    summary = json_object(path)
    if not isinstance(summary.get("models"), list) or not summary["models"]:
        raise RecordsError(f"{path}: expected the summary that `attnbench models` writes, with at least one model")
    return Models(summary, environment.stamp([], environment.load(folder)))


def describe(models: Models) -> Sheet:
    """A panel for each phase, with a row for each model that has it. Raises RecordsError if the summary lacks a key, has a value of the
    wrong kind, or has no ratio."""
    try:
        panels = [_panel(title, phase, models.summary["models"]) for phase, title in PHASES.items()]
        settings = models.summary["settings"]
        header = f"one sequence of {settings['tokens']:,} tokens · {settings['generated']} tokens generated"
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordsError(f"{FILE_NAME}: not a summary of `attnbench models`: {type(error).__name__}: {error}")
    shown = [panel for panel in panels if panel is not None]
    if not shown:
        raise RecordsError(f"{FILE_NAME}: no phase was measured with and without our operators")
    groups = [Group("Times as fast as transformers alone" if k == 0 else "", shown[k : k + 2]) for k in range(0, len(shown), 2)]
    return Sheet(groups, {}, header, [KEY], models.stamp, dots=False)


def _panel(title: str, phase: str, models: list[dict[str, Any]]) -> Panel | None:
    """The panel of a phase, or None if no model has a ratio of it."""
    found = [(model, model["phases"][phase]) for model in models if model["phases"].get(phase)]
    found = [(model, times) for model, times in found if times["speedup"]]
    if not found:
        return None
    names = [model["name"] for model, _ in reversed(found)]
    marks, values = [], [1.0]
    for model, times in found:
        place = float(names.index(model["name"]))
        speedup = times["speedup"]
        x = speedup["estimate"]
        low, high = (x if speedup[end] is None else speedup[end] for end in ("low", "high"))
        values += [x, low, high]
        marks.append(Marks([x], [place], OURS, [low], [high], sideways=True, kind="ours", size=FILLED_SIZE))
        if times["to_floor"]:
            values.append(x * times["to_floor"]["estimate"])
            marks.append(Marks([values[-1]], [place], FLOOR, sideways=True, kind="floor", size=OPEN_SIZE, layer=3.0))
        theirs, ours = (times[variant]["peak_extra_bytes"] for variant in ("transformers", "attnbench"))
        if phase == "step" and theirs and ours:
            values.append(theirs / ours)
            marks.append(Marks([values[-1]], [place - 0.25], MEMORY, sideways=True, kind="memory", size=OPEN_SIZE, layer=3.0))
    return panel_of_names(title, names, values, marks)
