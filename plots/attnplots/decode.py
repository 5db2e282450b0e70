"""The decoding figure: time per token and memory against the position in the sequence."""

from matplotlib.figure import Figure

from attnplots import curves, ratios, scaling
from attnplots.curves import Length, Measure
from attnplots.records import Records

POSITION = Length("P", "Position P (tokens before)")
# A call decodes one token of every sequence in the batch, so the time per sample is per token.
TIME = Measure("time", "Time per token (ms)", curves.time_value, curves.time_doubts)
# Unlike the size of the state, this includes the memory that a step needs to recompute or copy.
MEMORY = Measure("memory", "Peak memory: the state and one step", curves.memory_value)


def draw(records: Records) -> Figure:
    """The scaling figure with time per token and the memory of decoding."""
    return scaling.draw(records, TIME, MEMORY, POSITION)


def draw_ratio(records: Records) -> Figure:
    """The figure of draw() with the ratio of the time to that of the baseline."""
    return scaling.draw(records, ratios.measure(records, TIME, POSITION), MEMORY, POSITION)
