"""What a report says first about a sweep: which method is the fastest at which length, how time and
memory grow, where methods end, and how exact the numbers are."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from attnplots.records import certainty, crossovers, ratios
from attnplots.records import rows as data
from attnplots.records.crossovers import CROSSES, NEVER, RIVAL, Crossover
from attnplots.records.ratios import Speedups
from attnplots.records.records import Record, Records
from attnplots.records.rows import Row
from attnplots.records.text import count_of
from attnplots.records.words import CaseTexts, amount, bytes_text, listed, share, span, time_text, times_as_fast
from attnplots.report.folders import Folder

# The lengths at which the fastest method is named, if they were measured; if fewer than SHOWN of
# them were, all lengths count.
LENGTHS = (512, 1024, 4096, 16384, 65536)
SHOWN = 3
# How many examples a sentence about many cases names.
EXAMPLES = 3
# In place of an exponent where fewer than three lengths of the same batch size were measured.
NO_EXPONENT = "–"
# Methods whose memory differs by at most this factor need the same.
ALIKE = 1.02
# The distance from exact attention up to which a method counts as exact.
EXACT = 1e-2
ENDS = ("oom", "predicted_oom", "timeout", "predicted_timeout")


@dataclass(frozen=True)
class Fastest:
    """The fastest method at one length of a setting: of how many methods, its time and the interval of
    it in words, the next method and how many times as long that takes (empty if that is the reference), whether the
    intervals of the two overlap, and how many times as fast as the reference of the sweep it is."""

    method: str
    methods: int
    time: str
    interval: str
    next_method: str
    times_as_long: str
    is_close: bool
    against: str = ""


@dataclass(frozen=True)
class Setting:
    """A setting: the fastest methods by length, sentences about from which length on methods are
    faster than RIVAL, and about which methods need the least memory."""

    title: str
    fastest: dict[int, Fastest]
    crossings: list[str]
    least_memory: list[str]


@dataclass(frozen=True)
class Devices:
    """A method on the CPU and on the GPU: the times by length, with how many times as fast the GPU is (below 1, slower), and a
    sentence about from which length on which of the two is faster."""

    title: str
    times: dict[int, tuple[str, str, str]]
    said: str


@dataclass(frozen=True)
class Growth:
    """How the time or the memory of a method grows with the length: an exponent with its interval,
    what the method declares, and the verdict of `attnbench analyse`."""

    setting: str
    method: str
    quantity: str
    exponent: str
    declared: str
    verdict: str


@dataclass(frozen=True)
class Answers:
    """All answers about the records of one folder.

    `devices` compare the CPU with the GPU where both were measured,
    `noise` are sentences about how exact the times are, `ends` name the lengths from which on
    methods have no numbers, `approximate` says how far methods are from exact attention, and `undecided` say what the records cannot tell.
    """

    lengths: list[int]
    settings: list[Setting]
    approximate: str
    devices: list[Devices]
    growths: list[Growth]
    ends: list[str]
    noise: list[str]
    undecided: list[str]

    @property
    def device_lengths(self) -> list[int]:
        """The lengths at which a method was measured on both devices."""
        return sorted({n for pair in self.devices for n in pair.times})


def find(folder: Folder, analysis: dict[str, Any]) -> Answers:
    """The answers that the records of a folder and the output of `attnbench analyse` for it give."""
    present, _ = data.select_present_devices(folder.records)
    rows = data.split_rows(present)
    lengths = _lengths(present)
    known = crossovers.parse(analysis)
    of_rows = [crossovers.select(known, row.records) for row in rows]
    speedups = ratios.Speedups(present, RIVAL)
    settings = [_setting(row, lengths, mine, speedups) for row, mine in zip(rows, of_rows, strict=True)]
    growths, unclear = _growths(analysis["orders"])
    return Answers(
        lengths,
        [setting for setting in settings if setting.fastest],
        _approximate(present),
        _devices(present, crossovers.of_devices(analysis)),
        growths,
        [*_ends(rows), *_not_planned(rows), *_absent_devices(folder.records, present)],
        noise(present),
        [*_close(settings), *_uncertain(rows, of_rows), *unclear],
    )


def _lengths(records: Iterable[Record]) -> list[int]:
    """The lengths of the table: those of LENGTHS at which two methods or more have times."""
    methods: dict[int, set[str]] = {}
    for record in records:
        if record["outcome"] == "measured":
            methods.setdefault(record["query_len"], set()).add(record["method"])
    several = sorted(n for n, found in methods.items() if len(found) > 1) or sorted(methods)
    usual = [n for n in several if n in LENGTHS]
    return usual if len(usual) >= SHOWN else several[:: max(1, math.ceil(len(several) / 6))]


def _setting(row: Row, lengths: Sequence[int], mine: dict[str, Crossover], speedups: Speedups) -> Setting:
    fastest = {n: found for n in lengths if (found := _fastest(row.records, n, speedups))}
    crossings = _crossings(c for c in mine.values() if _is_said(c))
    return Setting(row.title, fastest, crossings, _least_memory(row.records))


def _least_memory(records: Iterable[Record]) -> list[str]:
    """Which methods need the least memory, and how many times as much others need: at the longest length at which
    RIVAL and another method have numbers, and at the longest at which two methods have."""
    by_length: dict[int, dict[str, float]] = {}
    for record in records:
        value, _, _ = data.MEMORY.value(record)
        if record["outcome"] == "measured" and value:
            by_length.setdefault(record["query_len"], {})[record["method"]] = value
    several = [n for n, found in by_length.items() if len(found) > 1]
    with_rival = [n for n in several if RIVAL in by_length[n]]
    lengths = dict.fromkeys(max(of) for of in (with_rival, several) if of)
    return [_least_memory_at(n, by_length[n]) for n in lengths]


def _least_memory_at(n: int, bytes_of: dict[str, float]) -> str:
    found = sorted(bytes_of.items(), key=lambda pair: pair[1])
    least = found[0][1]
    same = [method for method, value in found if value <= ALIKE * least]
    others = [(method, value) for method, value in found if value > ALIKE * least]
    named = [pair for pair in others if pair[0] == RIVAL] or others[:1]
    more = "".join(f"; {data.method_text(method)} needs {amount(value / least)} times as much" for method, value in named)
    what = f"{listed([data.method_text(method) for method in same])} need{'s' if len(same) == 1 else ''}"
    return f"{what} the least at N = {n:,}, {bytes_text(least)} a sequence{more}"


def _fastest(records: Iterable[Record], n: int, speedups: Speedups) -> Fastest | None:
    times = []
    speedup_of: dict[str, float | None] = {}
    for record in records:
        value, low, high = data.TIME.value(record)
        if record["query_len"] == n and record["outcome"] == "measured" and value:
            times.append((value, low, high, record["method"]))
            speedup_of[record["method"]] = speedups(record)
    if not times:
        return None
    times.sort(key=lambda found: found[0])
    value, low, high, method = times[0]
    shown = f"{time_text(low)} to {time_text(high)}" if low is not None and high is not None else ""
    if len(times) == 1:
        return Fastest(method, 1, time_text(value), shown, "", "", False)
    speedup = speedup_of[method]
    against = times_as_fast(speedup, data.method_text(speedups.name)) if speedup else ""
    second, second_low, _, second_method = times[1]
    close = (high if high is not None else value) >= (second_low if second_low is not None else second)
    # Of the reference, `against` says it already.
    longer = "" if against and second_method == speedups.name else amount(second / value)
    return Fastest(method, len(times), time_text(value), shown, second_method, longer, close, against)


def _is_said(crossover: Crossover) -> bool:
    return crossover.verdict in (CROSSES, NEVER)


def _crossings(crossovers: Iterable[Crossover]) -> list[str]:
    """From which length on methods are faster than RIVAL; those of which the same is said share a sentence."""
    methods: dict[str, list[str]] = {}
    for crossover in crossovers:
        methods.setdefault(_crossing(crossover), []).append(data.method_text(crossover.method))
    return [f"{listed(names)} {'is' if len(names) == 1 else 'are'} {said}" for said, names in methods.items()]


def _crossing(crossover: Crossover) -> str:
    """What is said of a method: from which length on it is faster or slower than RIVAL."""
    which = f"{'faster' if crossover.faster else 'slower'} than {RIVAL}"
    if crossover.verdict == NEVER:
        return f"{which} at every length that both were measured at, N = {crossover.first:,.0f} to {crossover.last:,.0f}"
    return f"{which} from N = {crossover.length:,.0f} on{_interval_text(crossover)}"


def _devices(records: Iterable[Record], pairs: Sequence[Crossover]) -> list[Devices]:
    """The comparisons of the time of methods on the GPU with that of the same methods on the CPU."""
    timed = [r for r in records if r["outcome"] == "measured"]
    axes = [side for pair in pairs for side in (pair.axes, pair.other)]
    others = [
        name for name in (axes[0] if axes else {})
        if name not in ("method", "device", "graph") and len({str(a.get(name)) for a in axes}) > 1
    ]  # fmt: skip
    found = []
    for pair in pairs:
        gpu = pair.axes
        settings = (data.protocol_text(gpu) if name == "protocol" else data.setting_text(gpu, name) for name in others)
        names = [data.method_text(pair.method), *settings]
        title = " · ".join([*names, *(["GPU with a CUDA graph"] if gpu.get("graph") else [])])
        times = {}
        for one in (r for r in timed if crossovers.is_of_series(r, pair.other)):
            for other in (r for r in timed if pair.fits(r) and all(r.get(n) == one.get(n) for n in ("query_len", "key_len", "batch"))):
                values = data.TIME.value(one)[0], data.TIME.value(other)[0]
                if values[0] and values[1]:
                    times[one["query_len"]] = (time_text(values[0]), time_text(values[1]), amount(values[0] / values[1]))
        found.append(Devices(title, dict(sorted(times.items())), _break_even(pair)))
    return sorted(found, key=lambda devices: devices.title)


def _break_even(pair: Crossover) -> str:
    """From which length on which device is faster."""
    faster, other = ("the GPU", "the CPU") if pair.faster else ("the CPU", "the GPU")
    span = f"N = {pair.first:,.0f} to {pair.last:,.0f}"
    if pair.verdict == NEVER:
        return f"{faster} is faster at every length that both were measured at, {span}"
    if pair.verdict != CROSSES:
        return f"the records cannot tell from which length on one is faster ({span}): {pair.reason}"
    return f"{faster} is faster from N = {pair.length:,.0f} on{_interval_text(pair)}, {other} below"


def _interval_text(crossover: Crossover) -> str:
    """The interval of a length, in brackets after a space. One that is narrower than a position would have two equal ends."""
    low, high = (f"{end:,.0f}" for end in (crossover.low or 0.0, crossover.high or 0.0))
    return f" (95 % interval: {low} to {high})" if low != high else " (95 % interval: narrower than one position)"


def _growths(orders: Iterable[dict[str, Any]]) -> tuple[list[Growth], list[str]]:
    """The exponents that `attnbench analyse` computes, and sentences about those that it cannot tell."""
    orders = list(orders)
    varying = [
        name
        for name in (orders[0]["series"] if orders else {})
        if name not in ("method", "protocol")
        and len({str(order["series"].get(name)) for order in orders}) > 1
    ]
    growths = []
    for order in orders:
        series = order["series"]
        parts = [data.protocol_text(series), *(data.setting_text(series, a) for a in varying)]
        exponent = NO_EXPONENT
        if order.get("exponent") is not None:
            exponent = f"{order['exponent']:.2f}"
            if order.get("interval"):
                low, high = order["interval"]
                exponent += f" ({low:.2f} to {high:.2f})"
        growths.append(
            Growth(
                " · ".join(parts), data.method_text(series["method"]), order["quantity"], exponent,
                order.get("declared") or "", order.get("verdict") or "",
            )
        )  # fmt: skip
    undecided = [g for g in growths if g.verdict == "cannot tell"]
    wide = [f"the {g.quantity} of {g.method} ({g.setting}, N^{g.exponent})" for g in undecided if g.exponent != NO_EXPONENT]
    texts = [f"Whether these grow as declared, because their intervals are too wide: {_some(wide)}."] if wide else []
    few = list(dict.fromkeys(g.method for g in undecided if g.exponent == NO_EXPONENT))
    if few:
        texts.append(f"How {listed(few)} {'grows' if len(few) == 1 else 'grow'}, where fewer than three lengths of the same batch size were measured.")
    return growths, texts


def _some(texts: Sequence[str]) -> str:
    """The first texts of a list, and how many more there are."""
    more = len(texts) - EXAMPLES
    return ", ".join(texts[:EXAMPLES]) + (f" and {more} more" if more > 0 else "")


def _ends(rows: Iterable[Row]) -> list[str]:
    """From which length on methods were out of memory or over the time limit, and in what setting."""
    found: dict[tuple[str, str, int], list[str]] = {}
    for row in rows:
        for method, records in data.group_methods(row).items():
            failed = [r for r in records if r.get("failure_kind") in ENDS]
            if failed:
                first = min(failed, key=lambda r: r["query_len"])
                key = (row.title, data.reason_of(first).text, first["query_len"])
                found.setdefault(key, []).append(data.method_text(method))
    return [
        f"{', '.join(methods)}: {reason} from N = {n:,} on ({title})." for (title, reason, n), methods in found.items()
    ]


def _not_planned(rows: Iterable[Row]) -> list[str]:
    """The last lengths of methods that the sweep does not run further, while it runs others."""
    found: dict[tuple[str, int], list[str]] = {}
    for row in rows:
        longest = max(r["query_len"] for r in row.records)
        for method, records in data.group_methods(row).items():
            last = max(r["query_len"] for r in records)
            if last < longest and any(r["outcome"] == "measured" for r in records):
                found.setdefault((row.title, last), []).append(data.method_text(method))
    return [
        f"{listed(methods)}: the sweep does not go beyond N = {last:,} ({title})."
        for (title, last), methods in found.items()
    ]


def _absent_devices(records: Records, present: Records) -> list[str]:
    """Why nothing was measured on devices that the sweep names."""
    shown = {record.get("device") for record in present}
    texts = []
    for device in dict.fromkeys(r.get("device") for r in records if r.get("device") not in shown):
        of_device = [r for r in records if r.get("device") == device]
        reasons = list(dict.fromkeys(str(r["reason"]) for r in of_device if r.get("reason")))
        texts.append(f"None of the {count_of(len(of_device), 'case')} on {device} was measured: {_some(reasons) or 'no reason is recorded'}.")
    return texts


def _approximate(records: Records) -> str:
    """How far from exact attention the methods are that do not compute it."""
    found: dict[str, list[float]] = {}
    for record in records:
        error = record.get("quality_row_error_median")
        if error is not None and error > EXACT:
            found.setdefault(data.method_text(record["method"]), []).append(error)
    if not found:
        return ""
    told = [f"{name} {amount(statistics.median(errors))}" for name, errors in found.items()]
    return (
        f"Not exact attention, with the median distance of a row of the output from that of exact attention: {listed(told)} "
        "(0 is exact; a row of zeros has 1)."
    )


def noise(records: Records) -> list[str]:
    """How exact the times of records are: sentences."""
    own = [r for r in records if r["outcome"] == "measured" and not r.get("external_source")]
    reaches = []
    for record in own:
        low, high = certainty.interval(record, *data.TIME_COLUMNS[1:])
        middle = record.get(data.TIME_COLUMNS[0])
        if middle and low is not None and high is not None:
            reaches.append((certainty.reach(middle, (low, high)), record))
    if not own:
        return ["No case was measured."]
    texts = []
    case_text = CaseTexts(records)
    if reaches:
        ordered = sorted(reach for reach, _ in reaches)
        worst, record = max(reaches, key=lambda found: found[0])
        kinds = {certainty.scope(record) for _, record in reaches}
        what = " and ".join(sorted(certainty.INTERVALS[kind] for kind in kinds if kind in certainty.INTERVALS))
        texts.append(
            f"Half of the {count_of(len(ordered), 'time')} are known to ± {share(_quantile(ordered, 0.5))} or better, 90 % of them to "
            f"± {share(_quantile(ordered, 0.9))}; the least exact to ± {share(worst)} "
            f"({case_text(record)}). These are {what}."
        )
    if single := len(own) - len(reaches):
        texts.append(
            f"{single} of {count_of(len(own), 'time')} {'comes' if single == 1 else 'come'} from a single process and "
            f"{'has' if single == 1 else 'have'} no interval."
        )
    for doubt in certainty.DOUBTS:
        with_doubt = [r for r in own if doubt in data.time_doubts(r)]
        if with_doubt:
            limits = {certainty.noise_limit(r) for r in with_doubt} if doubt == certainty.NOISY else set()
            target = f" (beyond ± {share(limits.pop())})" if len(limits) == 1 else ""
            named = [case_text(record) for record in with_doubt]
            examples = f", such as {_some(named)}" if 2 * len(with_doubt) <= len(own) else ""
            texts.append(f"{doubt.capitalize()}{target}: {len(with_doubt)} of {count_of(len(own), 'case')}{examples}.")
    per_case = span(len(r.get("process_medians_ms") or [None]) for r in own)
    texts.append(f"Each case was measured in {per_case} process{'' if per_case == '1' else 'es'}.")
    return texts


def _quantile(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, math.ceil(part * len(ordered)) - 1 if part else 0)]


def _close(settings: Iterable[Setting]) -> list[str]:
    """The lengths at which the intervals of the two fastest methods overlap."""
    found = [
        f"N = {n:,} ({setting.title}): {data.method_text(fastest.method)} or {data.method_text(fastest.next_method)}"
        for setting in settings
        for n, fastest in setting.fastest.items()
        if fastest.is_close
    ]
    return [f"Which method is the fastest at {text}; their intervals overlap." for text in found]


def _uncertain(rows: Iterable[Row], of_rows: Iterable[dict[str, Crossover]]) -> list[str]:
    """The methods of which the records cannot tell from which length on they are faster."""
    texts = []
    for row, mine in zip(rows, of_rows, strict=True):
        names = [data.method_text(c.method) for c in mine.values() if not _is_said(c)]
        if names:
            texts.append(f"Whether {RIVAL} or {' or '.join(names)} takes less time ({row.title}): the intervals are too wide.")
    return texts
