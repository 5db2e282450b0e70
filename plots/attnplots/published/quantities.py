"""The quantities of published tables: their names, how their numbers are written, and which number
represents several rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from attnplots.records import certainty
from attnplots.records.methods import method_name
from attnplots.records.results import GENERATIONS, TRAININGS, Row

TIME, ERROR = "time_per_sample_ms", "quality_row_error_median"
# The quantities of tables by their column: the name in tables, and the format of numbers, which is None for bytes with their unit.
QUANTITIES = {
    "training_loss": ("training loss", "{:.4g}"),
    "validation_loss": ("validation loss", "{:.4g}"),
    "bits_per_dim": ("bits/dim", "{:.3f}"),
    "images_per_s": ("images/s", "{:.4g}"),
    "s_per_image": ("s/image", "{:.4g}"),
    "phone_error_rate": ("phone error rate", "{:.2%}"),
    "epoch_s": ("s/epoch", "{:.4g}"),
    TIME: ("time (ms)", "{:.4g}"),
    ERROR: ("error of a row", "{:.3f}"),
    "peak_allocated_bytes": ("peak memory", None),
    "peak_extra_bytes_per_sample": ("peak memory above the inputs", None),
}
# The quantities of which the largest number over several batches is the best. Of the others it is the smallest.
LARGEST_COUNTS = ("images_per_s",)
# The column that says whether a quantity of a training is extrapolated, by the column of the quantity.
EXTRAPOLATED = {"epoch_s": "epoch_extrapolated"}


@dataclass(frozen=True)
class Value:
    """A number, the rows that it comes from, and how sure it is.

    Attributes:
        spread: the lowest and the highest number of the trainings of several seeds; None if there are not several.
        interval: the interval of a time that a sweep measured; None for other quantities, and if the records have none.
        by_seed: the error of a method for each seed of its inputs, which all methods share; empty for other quantities.
    """

    number: float
    rows: list[Row]
    spread: tuple[float, float] | None = None
    interval: tuple[float, float] | None = None
    by_seed: tuple[float, ...] = ()

    def ends(self) -> tuple[float, float]:
        """The range of the seeds, or the interval; the number twice if there is neither."""
        return self.spread or self.interval or (self.number, self.number)

    def is_below(self, other: "Value") -> bool | None:
        """Whether it is below another value: for each seed, if both are errors of the same number of seeds, else by the ends of
        both; None if that cannot be told."""
        if self.by_seed and len(self.by_seed) == len(other.by_seed):
            found = {a < b for a, b in zip(self.by_seed, other.by_seed, strict=True)}
            return found.pop() if len(found) == 1 else None
        (own_low, own_high), (low, high) = self.ends(), other.ends()
        return True if own_high < low else False if own_low >= high else None

    def late_fall(self, quantity: str) -> float:
        """The most by which the curve of one of the trainings fell in its last quarter; 0 if none has a curve."""
        return max((row.get("late_fall", {}).get(quantity, 0.0) for row in self.rows), default=0.0)

    def text(self, quantity: str) -> str:
        """The number as tables show it, with the range of the seeds and whether it is extrapolated."""
        shown = number_text(quantity, self.number)
        if self.spread:
            bounds = "–".join(number_text(quantity, v) for v in self.spread)
            shown += f" ({bounds}, {len(self.rows)} seeds)"
        if any(
            row.get("extrapolated") or row.get(EXTRAPOLATED.get(quantity, "")) for row in self.rows
        ):
            shown += " (extrapolated)"
        return shown


def number_text(quantity: str, number: float) -> str:
    """A number of a quantity as tables show it."""
    form = QUANTITIES[quantity][1] if quantity in QUANTITIES else "{:.4g}"
    if form is None:
        unit, scale = ("GiB", 2**30) if number >= 2**30 else ("MiB", 2**20)
        return f"{number / scale:.4g} {unit}"
    return form.format(number)


def quantity_name(quantity: str) -> str:
    """The name of a quantity in tables."""
    return QUANTITIES[quantity][0] if quantity in QUANTITIES else quantity.replace("_", " ")


def matching(rows: Sequence[Row], wanted: dict[str, Any]) -> list[Row]:
    """The rows whose columns have the wanted values. A wanted method without options matches a method with any
    options. A column that a row lacks matches any value, since published rows have few columns."""

    def fits(row: Row) -> bool:
        for name, value in wanted.items():
            found = row.get(name)
            if name == "method" and found is not None and ":" not in value:
                found = method_name(found)
            if found is not None and found != value:
                return False
        return True

    return [row for row in rows if fits(row)]


def value_of(rows: Sequence[Row], quantity: str) -> Value | None:
    """The number that represents the rows of one method: of generations that of the best batch, of
    trainings the median over the seeds, of others the median. None if no measured row has the quantity.

    If the rows differ in the options of the method, those without options are taken, or else those
    with the options that come first in the alphabet.
    """
    with_number = [r for r in rows if r.get(quantity) is not None]
    measured = [r for r in with_number if r.get("outcome", "measured") == "measured"]
    # A training that only timed some updates of an epoch was too short to learn anything.
    if quantity != "epoch_s":
        measured = [r for r in measured if not r.get("epoch_extrapolated")]
    if not measured:
        return None
    variants = sorted({row["method"] for row in measured}, key=lambda name: (":" in name, name))
    measured = [row for row in measured if row["method"] == variants[0]]
    if measured[0]["source"] == GENERATIONS:
        best = max if quantity in LARGEST_COUNTS else min
        row = best(measured, key=lambda r: r[quantity])
        return Value(float(row[quantity]), [row])
    numbers = [float(row[quantity]) for row in measured]
    if len(numbers) > 1 and measured[0]["source"] == TRAININGS:
        return Value(median(numbers), measured, (min(numbers), max(numbers)))
    by_seed = tuple(measured[0].get("quality_seed_row_errors") or ()) if quantity == ERROR and len(measured) == 1 else ()
    return Value(median(numbers), measured, interval=_interval(measured) if quantity == TIME else None, by_seed=by_seed)


def _interval(rows: Sequence[Row]) -> tuple[float, float] | None:
    """The interval of the time of a sequence; that of several records reaches over all of theirs."""
    bounds = [(bound, row) for row in rows for bound in certainty.interval(row, "time_ci_low_ms", "time_ci_high_ms")]
    ends = [bound / row["batch"] for bound, row in bounds if bound is not None]
    return (min(ends), max(ends)) if ends else None


def setting_text(row: Row) -> str:
    """The batch, the device and the threads of a generation in words."""
    parts = [str(row["device"])] if row.get("device") else []
    if row.get("batch") is not None:
        parts.append(f"batch {row['batch']}")
    if row.get("threads") and row.get("device") == "cpu":
        parts.append(f"{row['threads']} thread{'' if row['threads'] == 1 else 's'}")
    return ", ".join(parts)
