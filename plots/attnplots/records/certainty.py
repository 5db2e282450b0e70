"""How sure the numbers of a record are: what intervals cover, and what makes a value doubtful."""

from collections.abc import Callable, Iterable, Sequence

from attnplots.records import schema
from attnplots.records.records import Record
from attnplots.records.text import count_of

# What an interval covers, by the value of the column `time_ci_scope`, as notes say it.
INTERVALS = {
    "across processes": "95 % intervals across processes",
    "range of processes": "ranges of the medians of two to five processes",
    "within process": "95 % intervals within one process, which leave out how processes differ",
}
# The value of `time_ci_scope` if the columns of the interval hold the quartiles of one process,
# which is no interval of the median.
SPREAD = "spread within process"

NOISY = "noisier than usual"
# The names of doubts, in the order in which notes list them.
DOUBTS = (NOISY, "disturbed", "suspect", "implausible", "unverified")

Bound = float | None


def scope(record: Record) -> str:
    """What the interval of a record covers: SPREAD or a key of INTERVALS.

    Records from before the column existed tell it by their number of processes.
    """
    several = (record.get("processes") or 1) > 1
    return record.get("time_ci_scope") or ("across processes" if several else "within process")


def interval(record: Record, low: str, high: str) -> tuple[Bound, Bound]:
    """The bounds in the columns `low` and `high`, or None twice if they are no interval."""
    if scope(record) == SPREAD:
        return None, None
    return record.get(low), record.get(high)


def doubts(record: Record, median: str, low: str, high: str) -> list[str]:
    """Why the value in the column `median` is doubtful: some of DOUBTS, or nothing.

    It is noisier than usual if `low` or `high`, which may also be quartiles, is further from it
    than `noise_limit` says. Nothing is known about the noise of imported records.
    """
    if record.get("external_source"):
        return []
    value = record.get(median)
    bounds = [record[name] for name in (low, high) if record.get(name) is not None]
    found = {
        NOISY: bool(value) and reach(value, bounds) > noise_limit(record),
        "disturbed": (record.get("disturbed_processes") or 0) > 0,
        "suspect": bool(record.get("suspect")),
        "implausible": bool(record.get("implausible")),
        "unverified": bool(record.get("unverified")),
    }
    return [name for name in DOUBTS if found[name]]


def noise_limit(record: Record) -> float:
    """The distance of a bound from its value, relative to the value, beyond which it is noisy."""
    return max(schema.current().usual_reach, record.get("noise_target") or 0)


def reach(value: float, bounds: Sequence[float]) -> float:
    """The distance of the furthest bound from a value, relative to the value."""
    return max((abs(bound - value) for bound in bounds), default=0.0) / value


# Says why the value of a record is doubtful, in words of DOUBTS.
Doubts = Callable[[Record], list[str]]


def rare(points: Sequence[Record], doubts: Doubts) -> tuple[Doubts, str]:
    """The function of the doubts without those that more than half of the points have, and a note on
    these, which is empty if there are none.

    A ring around nearly every point would not tell any of them from the others.
    """
    found = [(record, doubts(record)) for record in points]
    counts = {name: sum(name in names for _, names in found) for name in DOUBTS}
    common = [name for name, count in counts.items() if 2 * count > len(found)]
    if not common:
        return doubts, ""
    words = [f"{text} ({counts[name]} of {count_of(len(found), 'point')})"
             for name, text in zip(common, _doubts_text(common, found), strict=True)]  # fmt: skip
    note = f"Most points are {', '.join(words)}, and have no rings for it."
    return lambda record: [name for name in doubts(record) if name not in common], note


def _doubts_text(names: Iterable[str], points: Sequence[tuple[Record, list[str]]]) -> list[str]:
    """Doubts as notes name them; the limit is said if it is the same for all noisy points."""
    limits = {noise_limit(record) for record, own in points if NOISY in own}
    return [f"{NOISY} (beyond ±{100 * min(limits):g} %)" if name == NOISY and len(limits) == 1 else name
            for name in names]  # fmt: skip


def band_notes(records: Iterable[Record], has_interval: Callable[[Record], bool]) -> list[str]:
    """What the bands of these points are, and why some points have none.

    `has_interval` says whether a record has an interval of the quantity that is drawn.
    """
    own = [record for record in records if not record.get("external_source")]
    scopes = {scope(record) for record in own if has_interval(record)}
    kinds = [text for name, text in INTERVALS.items() if name in scopes]
    texts = [f"Bands: {'; '.join(kinds)}, often narrower than the marks."] if kinds else []
    if any(scope(record) == SPREAD for record in own):
        which = "points of a single process" if kinds else "every point is of a single process"
        why = "whose samples do not say how processes differ"
        texts.append(f"No bands: {which}, {why}.")
    return texts


def ring_notes(points: list[tuple[Record, list[str]]]) -> list[str]:
    """What the rings around points mean, from each point's record and doubts; else nothing."""
    doubtful = [(record, names) for record, names in points if names]
    if not doubtful:
        return []
    present = [name for name in DOUBTS if any(name in names for _, names in doubtful)]
    words = _doubts_text(present, doubtful)
    listed = " or ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)
    meaning = " A small difference from a noisy point may be noise." if NOISY in present else ""
    return [f"Ringed: {listed} ({len(doubtful)} of {count_of(len(points), 'point')}).{meaning}"]
