"""The ratio of a case's time to that of its baseline, which sweeps with a `baseline` record."""

from collections.abc import Iterable

from attnplots import certainty
from attnplots.curves import Length, Measure, method_text
from attnplots.records import Record, RecordsError

COLUMNS = ("ratio_median", "ratio_ci_low", "ratio_ci_high")
NO_BASELINE = "none: "


def is_baseline(record: Record) -> bool:
    """Whether the case is its own baseline, so that its ratio is 1 and was not measured.

    A baseline is the name of a method, and axes that differ from those of the case, such as
    "linear query_len=512".
    """
    method, *axes = (record.get("baseline") or "").split() or [None]
    if method != record["method"] or record.get("ratio_pairing"):
        return False
    return all(str(record.get(name)) == text for name, _, text in (a.partition("=") for a in axes))


def value(record: Record) -> tuple[float | None, float | None, float | None]:
    """The ratio and the bounds of its interval; 1 without an interval for the baseline itself."""
    if is_baseline(record):
        return 1.0, None, None
    return record.get(COLUMNS[0]), *certainty.interval(record, *COLUMNS[1:])


def baseline_text(baseline: str, length: Length) -> str:
    """A baseline as figures show it: "linear query_len=512" becomes "linear at N = 512"."""
    method, *axes = baseline.split()
    texts = [axis.replace("query_len=", f"{length.letter} = ") for axis in axes]
    return " at ".join([method_text(method), *([", ".join(texts)] if texts else [])])


def measure(records: Iterable[Record], of: Measure, length: Length) -> Measure:
    """The ratio of what `of` measures, which is a time, to that of the baselines of the records.

    Raises RecordsError if no record has a ratio.
    """
    found = {r.get("baseline"): None for r in records if r.get("ratio_median") is not None}
    if not found:
        expected = "expected at least one measured record with `ratio_median`, found none"
        why = "a sweep records ratios if its [timing] names a `baseline`"
        raise RecordsError(f"{expected}; {why}")
    names = [baseline_text(baseline, length) for baseline in found if baseline]
    of_what, note = (names[0], "") if len(names) == 1 else ("its baseline", ", ".join(names))
    title = of.title.replace(" (ms)", f" / that of {of_what}")
    note = f"Baselines: {note}." if note else ""
    return Measure("ratio", title, value, doubts, why_missing, line=1.0, note=note)


def doubts(record: Record) -> list[str]:
    """Why the ratio of a record is doubtful; that of the baseline itself never is."""
    return [] if is_baseline(record) else certainty.doubts(record, *COLUMNS)


def why_missing(record: Record) -> str:
    """Why a measured record has no ratio, as the end of a note."""
    pairing = record.get("ratio_pairing") or ""
    if pairing.startswith(NO_BASELINE):
        return f"not measured ({pairing.removeprefix(NO_BASELINE)})"
    return "not recorded"
