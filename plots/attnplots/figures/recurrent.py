"""The figure of recurrent attention: time and peak memory against the sequence length, beside linear and softmax attention."""

from attnplots.figures import scaling
from attnplots.figures.description import Sheet
from attnplots.records.methods import PYTHON
from attnplots.records.records import Records, RecordsError


def describe(records: Records) -> Sheet:
    """Time and memory per sequence of this project's methods. Cases of other heads and packages of others, which have one length
    each, and decoding steps are left to tables."""
    shown = records.where(
        lambda r: r["protocol"] != "decode" and PYTHON not in r["method"] and r["kv_heads"] == r["value_heads"] and r["head_dim"] == r["value_dim"]
    )
    if not shown:
        raise RecordsError("no records of whole sequences with as many heads of values as of keys")
    return scaling.describe(shown)
