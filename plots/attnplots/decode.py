"""The decoding figure: time per token and memory against the position in the sequence."""

from matplotlib.figure import Figure

from attnplots import curves, scaling
from attnplots.curves import Length, Measure
from attnplots.records import Records

POSITION = Length("P", "Position P (tokens before)")
# One call decodes one token of every sequence in the batch, so time per sample is per token.
TIME = Measure("time", "Time per token (ms)", curves.time_value)
# Unlike the size of the state, this includes memory for recomputing or copying in a step.
MEMORY = Measure("memory", "Peak memory: the state and one step", curves.memory_value)


def draw(records: Records) -> Figure:
    """The figure: the scaling figure with the measures of decoding."""
    return scaling.draw(records, TIME, MEMORY, POSITION)
