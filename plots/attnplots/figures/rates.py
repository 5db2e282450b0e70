"""The figure of rates: GFLOP/s of methods against the length, below what the machine can do.

A sheet for each pass and dtype has a row of panels for each formula of operations, because the rates
of methods whose operations are counted differently cannot be compared.
"""

from collections.abc import Sequence

from attnplots.figures import scaling, style, ticks
from attnplots.figures.ceilings import Ceilings
from attnplots.figures.description import Group, Line, Panel, Scale, Sheet, length_scale
from attnplots.records import environment
from attnplots.records import rows as data
from attnplots.records.records import Record, Records, RecordsError
from attnplots.records.rows import Curve, Measure, Row
from attnplots.records.text import count_of
from attnplots.records.words import setting

# The families of methods that share a formula, and how headings call the formula.
FORMULAS = {
    "linear": "linear attention",
    "lsh": "LSH attention",
    "kernel": "kernel features",
    "softmax": "softmax attention",
    "sdpa": "softmax attention",
}
# The option of methods that run the kernels for AVX2, which have a ceiling of their own.
AVX2_OPTION = "implementation=avx2"
PASSES = {"forward": "forward", "forward_backward": "forward-backward"}


def _rate(record: Record) -> tuple[float | None, float | None, float | None]:
    """The rate in GFLOP/s with its interval; the longer the time, the lower the rate."""
    flops, (ms, low, high) = record.get("flops"), _time(record)
    if flops is None or not ms:
        return None, None, None
    at = flops / 1e6
    return at / ms, at / high if high else None, at / low if low else None


def _time(record: Record) -> tuple[float | None, float | None, float | None]:
    values = data.time_value(record)
    return tuple(v if v is None else v * record["batch"] for v in values)  # type: ignore[return-value]


RATE = Measure("rate", "GFLOP/s", _rate, data.time_doubts)


def describe(records: Records, ceilings: Ceilings) -> dict[str, Sheet]:
    """A sheet for each pass and dtype of the records on the device of the ceilings, by a name such as
    "forward-float32"."""
    shown = records.where(lambda r: str(r.get("device") or "cpu").startswith(ceilings.device))
    left_out = len(records) - len(shown)
    shown = shown.where(lambda r: r["protocol"] in PASSES)
    sheets: dict[tuple[str, str], list[Record]] = {}
    for record in shown:
        sheets.setdefault((record["protocol"], str(record.get("dtype"))), []).append(record)
    drawn = {}
    for (protocol, dtype), found in sorted(sheets.items()):
        rows = _rows(Records(found))
        if any(data.curves(row, RATE) for row in rows):
            drawn[f"{PASSES[protocol]}-{dtype}"] = _sheet(rows, dtype, ceilings, left_out)
    if not drawn:
        wanted = f"one measured record of the device {ceilings.device} with `flops` and a time"
        raise RecordsError(f"expected at least {wanted}, found none")
    return drawn


def _rows(records: Records) -> list[Row]:
    """The rows of each setting, one for each formula."""
    found = []
    for formula in dict.fromkeys([*FORMULAS.values(), *(_formula(r) for r in records)]):
        own = records.where(lambda r, formula=formula: _formula(r) == formula)
        found += [_titled(row, formula) for row in data.split_rows(own)] if own else []
    return found


def _titled(row: Row, formula: str) -> Row:
    """The row with a title that names the formula and, in place of the pass, the mask."""
    _, *others = row.title.split(" · ")
    mask = "causal" if row.records[0].get("causal") else "not causal"
    setting = [mask, *(word for word in others if word not in ("causal", "not causal"))]
    return Row(" · ".join([formula[0].upper() + formula[1:], *setting]), row.records)


def _formula(record: Record) -> str:
    family = style.family(record["method"])
    return FORMULAS.get(family, family)


def _sheet(rows: list[Row], dtype: str, ceilings: Ceilings, left_out: int) -> Sheet:
    rate = data.drop_common_rings(rows, RATE)
    panels = [data.curves(row, rate) for row in rows]
    span = data.span([panels])
    highest = max([ceilings.rate(dtype), *(float(v) for curves in panels for c in curves for v in c.y if v == v)])
    limits = (0.0, 1.12 * highest)
    y = Scale(limits, ticks.linear(limits, 6), logarithmic=False)
    groups = [
        Group(row.title, [Panel(RATE.title, data.SEQUENCE.label, length_scale(span), y, curves,
                                scaling.reach_of(curves), _lines(curves, dtype, ceilings))])
        for row, curves in zip(rows, panels, strict=True)
    ]  # fmt: skip
    records = [record for row in rows for record in row.records]
    notes = [
        f"Lines: the rate of {ceilings.operations} of the machine, {ceilings.words(dtype)}.",
        "Operations are counted by the formula in the heading (column `flops` of the records). Rates "
        "by different formulas do not say which method is faster.",
        *data.certainty_notes(rows, rate), *data.left_out(rows, [RATE]),
    ]  # fmt: skip
    if ceilings.device == "cpu" and dtype not in ("float32", "float64"):
        notes.append(f"The line is that of float32, in which {dtype} is computed.")
    if left_out:
        notes.append(f"Not drawn: {count_of(left_out, 'case')} on other devices.")
    looks = style.styles(record["method"] for record in records)
    protocol = data.protocol_text(records[0]).lower()
    header = f"{protocol} · {setting(records)}"
    stamp = environment.stamp(records)
    return Sheet(groups, looks, header, notes, stamp)


def _lines(curves: Sequence[Curve], dtype: str, ceilings: Ceilings) -> tuple[Line, ...]:
    lines = [Line(ceilings.rate(dtype), f"machine: {ceilings.rate(dtype):.0f}")]
    avx2 = ceilings.avx2_rate()
    # It limits one method alone, and would otherwise lie on the curves of others.
    limited = [curve.method for curve in curves if AVX2_OPTION in curve.method]
    if avx2 and limited:
        lines.append(Line(avx2, f"machine with AVX2: {avx2:.0f}", limited[0]))
    return tuple(lines)
