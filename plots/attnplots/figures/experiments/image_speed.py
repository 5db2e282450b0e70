"""The figure of the speed of generating images: seconds per image and images per second, on the CPU
and on the GPU, beside published values."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from attnplots.figures.description import FILLED_SIZE, OPEN_SIZE, Group, Marks, Panel, Sheet, panel_of_names
from attnplots.figures.style import SOLID, Style
from attnplots.records import environment, results
from attnplots.records.methods import method_name
from attnplots.records.records import RecordsError
from attnplots.records.results import GENERATIONS, PUBLISHED, Row
from attnplots.records.text import count_of

FILE_NAME = results.GENERATIONS_FILE_NAME
# The published numbers of a checkout and of an installed package, which have the same folders.
PUBLISHED_FILES = Path(__file__).resolve().parents[4] / "experiments" / "published"
# By quantity: the title of its axis, and the function that chooses the best number of several batches.
QUANTITIES: dict[str, tuple[str, Callable[[list[float]], float]]] = {
    "s_per_image": ("Seconds per image, one at a time", min), "images_per_s": ("Images per second, best batch", max),
}
ORDER = ("softmax", "stateful-softmax", "stateful-sdpa", "lsh-1", "lsh-4", "linear")
MARKERS = {"cpu": ("o", "#0b4a91"), "cuda": ("s", "#dd6418")}
KEY = (
    "Circles: CPU; squares: GPU. Filled: measured here; open: published. A bar is the range of the "
    "processes."
)


@dataclass(frozen=True)
class Speeds:
    """The rows of a folder and of the published files."""

    ours: list[Row]
    published: list[Row]
    stamp: str


def load(folder: Path) -> Speeds:
    """The generations of a folder; raises RecordsError if there are none that were measured."""
    ours = results.generations(folder)
    if not ours:
        path = folder / FILE_NAME
        raise RecordsError(f"{path}: expected at least one measured line, found none")
    published = results.load_published(sorted(PUBLISHED_FILES.glob("*.csv")))
    return Speeds(ours, published, environment.stamp(ours, environment.load(folder, ours)))


def describe(speeds: Speeds) -> Sheet:
    """A group for each data set, with a panel for each quantity and a row for each method."""
    groups = []
    sources: dict[str, None] = {}
    for dataset in dict.fromkeys(row["dataset"] for row in speeds.ours):
        panels = []
        for quantity, (title, best) in QUANTITIES.items():
            ours = _values(speeds.ours, dataset, quantity, best)
            theirs = _values(speeds.published, dataset, quantity, best)
            if ours:
                panels.append(_panel(title, ours, theirs))
                sources |= {r["said_in"]: None for r in speeds.published
                            if r.get("dataset") == dataset and r.get(quantity) is not None}  # fmt: skip
        groups.append(Group(dataset, panels))
    notes = [KEY, f"Published: {'; '.join(sources)}."] if sources else [KEY]
    extrapolated = [row for row in speeds.ours if row.get("extrapolated")]
    if extrapolated:
        notes.append(
            f"{len(extrapolated)} of {count_of(len(speeds.ours), 'time')} "
            f"{'is' if len(extrapolated) == 1 else 'are'} extrapolated from some positions of an image."
        )
    if not any(row["device"] != "cpu" for row in speeds.ours):
        notes.append("Nothing was measured on a GPU.")
    return Sheet(groups, {}, "", notes, speeds.stamp, dots=False)


# By method and device: the value, and the lowest and the highest value of the processes. These are the value itself if only one is
# known.
Values = dict[tuple[str, str], tuple[float, float, float]]


def _values(rows: list[Row], dataset: str, quantity: str, best: Callable[[list[float]], float]) -> Values:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.get("dataset") != dataset or row.get(quantity) is None:
            continue
        if quantity == "s_per_image" and row.get("batch") != 1:
            continue
        if row.get("folder") == PUBLISHED and row["source"] != GENERATIONS:
            continue
        found.setdefault((method_name(row["method"]), str(row["device"])), []).append(row)
    values: Values = {}
    for key, several in found.items():
        value = best([row[quantity] for row in several])
        row = next(row for row in several if row[quantity] == value)
        low, high = row.get("range", {}).get(quantity, (value, value))
        values[key] = (value, low, high)
    return values


def _panel(title: str, ours: Values, theirs: Values) -> Panel:
    methods = {method for method, _ in [*ours, *theirs]}
    known = [method for method in ORDER if method in methods]
    names = [*sorted(methods - set(known)), *reversed(known)]
    ends = (v for _, *bounds in [*ours.values(), *theirs.values()] for v in bounds)
    # Where both have a value, the published one is a little lower.
    marks = (
        Marks([value], [names.index(method) + shift], _look(device, filled), [low], [high], sideways=True,
              kind="ours" if filled else "published", size=FILLED_SIZE if filled else OPEN_SIZE)
        for values, shift, filled in ((theirs, -0.16, False), (ours, 0.16, True))
        for (method, device), (value, low, high) in values.items()
    )  # fmt: skip
    return panel_of_names(title, names, ends, marks)


def _look(device: str, filled: bool) -> Style:
    marker, colour = MARKERS.get(device, MARKERS["cuda"])
    return Style(colour, colour, marker, not filled, SOLID)
