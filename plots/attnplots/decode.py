"""The decoding figure: time per token and memory against the position in the sequence."""

from matplotlib.figure import Figure

from attnplots import curves, scaling
from attnplots.curves import Length, Measure
from attnplots.records import Record

POSITION = Length("P", "Position P (tokens before)")
# One call makes one token of every sequence in the batch, so per sample is per token.
TIME = Measure("time", "Time per token (ms)", curves.time_value)
# Unlike the state alone, this also shows what recomputing or copying costs for a moment.
MEMORY = Measure("memory", "Peak memory: the state and one step", curves.memory_value)


def draw(records: list[Record]) -> Figure:
    """The scaling figure with the measures of decoding."""
    return scaling.draw(records, TIME, MEMORY, POSITION)
