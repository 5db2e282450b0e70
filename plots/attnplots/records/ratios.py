"""The ratio of a case's time to that of its baseline, which sweeps with a `baseline` record."""

from collections.abc import Iterable

from attnplots.records import certainty, driver
from attnplots.records.records import Record, Records, RecordsError, identity
from attnplots.records.rows import Length, Measure, method_text

COLUMNS = ("ratio_median", "ratio_ci_low", "ratio_ci_high")


def is_its_own(record: Record) -> bool:
    """Whether the baseline of the case is the case itself, whether or not it took turns with itself.

    A baseline is the name of a method, and axes that differ from those of the case, such as "linear query_len=512".
    """
    method, *axes = (record.get("baseline") or "").split() or [None]
    if method != record["method"]:
        return False
    return all(str(record.get(name)) == text for name, _, text in (a.partition("=") for a in axes))


def is_baseline(record: Record) -> bool:
    """Whether the case is its own baseline, so that its ratio is 1 and was not measured."""
    return not (record.get("ratio_pairing") or record.get("ratio_reason")) and is_its_own(record)


def value(record: Record) -> tuple[float | None, float | None, float | None]:
    """The ratio and the bounds of its interval; 1 without an interval for the baseline itself."""
    if is_baseline(record):
        return 1.0, None, None
    return record.get(COLUMNS[0]), *certainty.interval(record, *COLUMNS[1:])


class Speedups:
    """How many times as fast as a reference the records of a folder are, as `attnbench compare --baseline` says it. The
    reference is the baseline of the sweep if all of its cases have the same method as theirs, else `rival`. `name` is its name;
    it is empty if the folder has nothing to compare with it."""

    def __init__(self, records: Records, rival: str) -> None:
        own = [r for r in records if r["outcome"] == "measured" and not r.get("external_source")]
        baselines = {str(r["baseline"]) for r in own if r.get("baseline")}
        wanted = baselines.pop() if len(baselines) == 1 else rival
        is_compared = records.folder and wanted in {r["method"] for r in own}
        cases = driver.ask("compare", records.folder, "--baseline", wanted)["cases"] if is_compared else []
        self.name = wanted if cases else ""
        self._known = {identity(case["case"]): case.get("speedup") for case in cases}

    def __call__(self, record: Record) -> float | None:
        """None for the reference itself, and where one of the times is missing or is of another host."""
        return self._known.get(identity(record))


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
    why = [text for text in (record.get("ratio_failure_kind"), record.get("ratio_reason")) if text]
    return f"not measured ({': '.join(why)})" if why else "not recorded"
