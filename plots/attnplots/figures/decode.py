"""The decoding figure: time per token and memory against the position in the sequence."""

from matplotlib.figure import Figure

from attnplots.figures import scaling, style
from attnplots.records import ratios
from attnplots.records import rows as data
from attnplots.records.rows import Length, Measure, Row
from attnplots.records.records import Record, Records

POSITION = Length("P", "Position P (tokens before)")
# A call decodes one token of every sequence in the batch, so the time per sequence is per token.
TIME = Measure("time", "Time per token (ms)", data.time_value, data.time_doubts)
# Unlike the size of the state, this includes the memory that a step needs to recompute or copy.
MEMORY = Measure("memory", "Peak memory: state and one step", data.memory_value)

# What the implementations of exact methods that compute the whole prefix again in every step are
# called. Those of LSH attention, which has no decoding state, have the names of its kernels.
RECOMPUTED = "recomputed-prefix"
WITHOUT_DECODING_STATE = "lsh"
WITH_STATE = "each step continues from a state"
WITHOUT_STATE = "each step computes the prefix again"


def draw(records: Records) -> Figure:
    """The scaling figure with time per token and the memory of decoding.

    Methods that compute the prefix again in every step have panels with axes of their own, because
    they are slower by orders of magnitude.
    """
    return _draw(records, TIME)


def draw_ratio(records: Records) -> Figure:
    """The figure of draw() with the ratio of the time to that of the baseline."""
    return _draw(records, ratios.measure(records, TIME, POSITION))


def _draw(records: Records, time: Measure) -> Figure:
    records, absent = data.on_present_devices(records)
    again = {r["method"] for r in records if _recomputes(r)}
    rows = [part for row in data.split_rows(records) for part in _parts(row, again)]
    return scaling.draw_rows(rows, (time, MEMORY), POSITION, absent, apart=bool(again))


def _recomputes(record: Record) -> bool:
    is_lsh = style.family(record["method"]) == WITHOUT_DECODING_STATE
    return is_lsh or RECOMPUTED in str(record.get("implementation"))


def _parts(row: Row, again: set[str]) -> list[Row]:
    """The row without and with the methods that compute the prefix again."""
    if not again:
        return [row]

    def part(title: str, records: list[Record]) -> list[Row]:
        return [Row(f"{row.title}: {title}", records)] if records else []

    state = [r for r in row.records if r["method"] not in again]
    recomputed = [r for r in row.records if r["method"] in again]
    return part(WITH_STATE, state) + part(WITHOUT_STATE, recomputed)
