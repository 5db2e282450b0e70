"""The figure of patterns: attention with each pattern of visible keys as a curve of its own, against the sequence length."""

from attnplots.figures import scaling
from attnplots.figures.description import Sheet
from attnplots.records.records import Record, Records, RecordsError

ALL, OWN = "all", "sparse-sdpa"


def describe(records: Records) -> Sheet:
    """Time and memory per sequence. A curve of sparse-sdpa has the name of its pattern, others have both names."""
    shown = Records([_named(record) for record in records if _has_one_text_and_all_heads(record)], records.folder)
    if not shown:
        raise RecordsError("no records of sequences that are not packed, with as many heads of keys as of queries")
    return scaling.describe(shown)


def _has_one_text_and_all_heads(record: Record) -> bool:
    """Whether the case differs from others in the method, the pattern and the length alone."""
    return record["packed"] == "none" and record["kv_heads"] == record["heads"] == record["value_heads"]


def _named(record: Record) -> Record:
    if record["pattern"] == ALL:
        return record
    pattern = record["pattern"].replace(":", " ")
    # What has its own kernels for patterns needs no other name; sdpa with a mask does.
    name = pattern if record["method"] == OWN else f"{record['method']}, {pattern}"
    return record | {"method": name, "pattern": ALL}
