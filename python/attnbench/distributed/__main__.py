"""Measures operators over several ranks of this machine, and predicts how they scale to more.

    python -m attnbench.distributed measure --out FOLDER    # times of 1, 2, 4, … ranks of this machine
    python -m attnbench.distributed bound                   # the efficiency that the operation counts allow
    python -m attnbench.distributed simulate --out FOLDER   # predictions for up to 1,024 ranks of a network
"""

import argparse
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from attnbench import _installation
from attnbench.distributed import bound, joining, launch
from attnbench.distributed.rank import Request

RECORDS, SCALING = "ranks.jsonl", "scaling.json"
# Exit codes: everything was measured, a measurement failed, the arguments are wrong.
OK, FAILED, REFUSED = 0, 1, 2
KEY = ("operator", "ranks", "length", "heads", "dim", "batch", "dtype", "backward", "threads")
SCHEMA = 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m attnbench.distributed", description="Attention over sequences that are split over ranks."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    _add_measure(commands.add_parser("measure", help="measure ranks on this machine, or those of torchrun or srun"))
    _add_bound(commands.add_parser("bound", help="print the efficiency of weak scaling that the operation counts allow"))
    _add_simulate(commands.add_parser("simulate", help="predict the times of up to 1,024 ranks"))
    chosen = parser.parse_args(arguments)
    run: dict[str, Callable[[argparse.Namespace], int]] = {"measure": _measure, "bound": _bound, "simulate": _simulate}
    try:
        return run[chosen.command](chosen)
    except (ValueError, OSError) as error:
        print(f"{parser.prog} {chosen.command}: {error}", file=sys.stderr)
        return REFUSED


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}, expected at least 1")
    return value


def _counts(text: str) -> list[int]:
    return [_positive(part) for part in _names(text)]


def _add_sizes(parser: argparse.ArgumentParser, length: int) -> None:
    parser.add_argument(
        "--operators", type=_names, default=["linear", "gated-delta", "softmax"], metavar="NAME,…",
        help="linear, linear-elu, linear-elu0.1, simple-gla, retnet, lightning, gla, delta, gated-delta, kda or softmax "
        "(default: linear,gated-delta,softmax)",
    )  # fmt: skip
    parser.add_argument("--length", type=_positive, default=length, help="positions of each rank (default: %(default)s)")
    parser.add_argument("--heads", type=_positive, default=8, help="(default: %(default)s)")
    parser.add_argument("--dim", type=_positive, default=64, help="of q, k and v (default: %(default)s)")
    parser.add_argument("--batch", type=_positive, default=1, help="(default: %(default)s)")
    parser.add_argument("--dtype", choices=("float32", "float64", "bfloat16"), default="float32", help="(default: %(default)s)")
    parser.add_argument("--backward", action="store_true", help="with the backward pass")
    parser.add_argument("--repeats", type=_positive, default=10, help="measured calls (default: %(default)s)")
    parser.add_argument("--threads", type=_positive, default=1, help="of each rank (default: %(default)s)")


def _chosen_operators(names: list[str]) -> list[str]:
    from attnbench.distributed.operators import OPERATORS

    for name in names:
        if name not in OPERATORS:
            raise ValueError(f"--operators: there is no operator {name!r}, expected one of {', '.join(OPERATORS)}")
    if not names:
        raise ValueError(f"--operators is empty, expected one or more of {', '.join(OPERATORS)}")
    return names


# ---------------------------------------------------------------- measure


def _add_measure(parser: argparse.ArgumentParser) -> None:
    _add_sizes(parser, 8192)
    parser.add_argument("--ranks", type=_counts, metavar="R,…", help="(default: 1,2,4,… up to the cores divided by --threads)")
    parser.add_argument("--out", type=Path, required=True, help=f"folder to which {RECORDS} is written")
    parser.add_argument(
        "--deadline", type=float, default=600.0, metavar="S", help="seconds that a measurement may take (default: %(default)g)"
    )
    parser.add_argument(
        "--oversubscribe", action="store_true",
        help="allow more threads than cores; the times are then no measure of speed, and the records are marked",
    )  # fmt: skip
    parser.add_argument(
        "--join", choices=("torchrun", "slurm"), help="measure with the ranks that torchrun or srun has started, of which this process is one"
    )  # fmt: skip


def _measure(chosen: argparse.Namespace) -> int:
    operators = _chosen_operators(chosen.operators)
    if chosen.length % 2:
        raise ValueError(f"--length {chosen.length} is odd, expected an even number of positions")
    if not (math.isfinite(chosen.deadline) and chosen.deadline > 0):
        raise ValueError(f"--deadline {chosen.deadline:g}, expected more than 0 seconds")
    joined = joining.ranks_of(chosen.join, chosen.out) if chosen.join else None
    if joined is not None:
        if chosen.ranks:
            raise ValueError(f"--ranks does not go with --join {chosen.join}, which says how many there are")
        counts = [joined.size]
    else:
        cores = len(os.sched_getaffinity(0))
        counts = chosen.ranks or [2**power for power in range(16) if 2**power * chosen.threads <= cores] or [1]
        for ranks in counts:
            if not chosen.oversubscribe:
                launch.cores_of(ranks, chosen.threads)
    records = Records(chosen.out / RECORDS)
    failed = 0
    for operator in operators:
        for ranks in counts:
            request = Request(
                operator, 0, ranks, "", "", 0, [], chosen.length, chosen.heads, chosen.dim, chosen.batch, chosen.dtype, chosen.backward,
                chosen.repeats, chosen.threads, chosen.deadline,
            )  # fmt: skip
            if joined is not None:
                record = joined.measure(request)
                if joined.rank == 0:
                    failed += records.append(_described(request, record, oversubscribed=False, joined=chosen.join))
                    _print_line(records.lines[-1])
                elif "failure" in record:
                    print(record["failure"]["message"], file=sys.stderr)
                    return FAILED
                if "failure" in record:
                    return FAILED
                continue
            wanted = {name: getattr(request, name) for name in KEY}
            if records.has(wanted):
                continue
            many = ranks * chosen.threads > len(os.sched_getaffinity(0))
            found = launch.run(request, None if many else launch.cores_of(ranks, chosen.threads))
            failed += records.append(_described(request, found, oversubscribed=many, joined=None))
            _print_line(records.lines[-1])
    if joined is None or joined.rank == 0:
        _print_table(records.lines)
    return FAILED if failed else OK


class Records:
    """The file of records: a line of JSON for each measurement.

    Attributes:
        path: the file, which need not exist before the first record is appended.
        lines: the records, those that the file held before included.
    """

    def __init__(self, path: Path) -> None:
        """Reads the file. A last line that was only partly written does not count, and the next record replaces it. Raises ValueError
        that names the first other line that is not a record."""
        self.path = path
        self.lines: list[dict[str, Any]] = []
        self._partial_from: int | None = None  # the byte at which a partly written line begins
        self._line_break = b""  # what the last line lacks
        contents = path.read_bytes() if path.exists() else b""
        for number, text in enumerate(contents.splitlines(keepends=True), 1):
            line = _record_of(text)
            if line is None and not text.endswith(b"\n"):
                self._partial_from = len(contents) - len(text)
                break
            if line is None:
                raise ValueError(f"{path}:{number}: expected a record of schema {SCHEMA} with {', '.join(KEY)}")
            self.lines.append(line)
            self._line_break = b"" if text.endswith(b"\n") else b"\n"

    def has(self, wanted: dict[str, Any]) -> bool:
        """Whether a record without a failure has these values."""
        return any(line["failure"] is None and all(line[name] == value for name, value in wanted.items()) for line in self.lines)

    def append(self, line: dict[str, Any]) -> bool:
        """Appends a record to the file, and returns whether it is a failure."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab") as file:
            if self._partial_from is not None:
                file.truncate(self._partial_from)
            file.write(self._line_break + json.dumps(line).encode() + b"\n")
        self._partial_from, self._line_break = None, b""
        self.lines.append(line)
        return line["failure"] is not None


def _record_of(text: bytes) -> dict[str, Any] | None:
    """The record of a line of the file, or None if it is none."""
    from attnbench.distributed.operators import OPERATORS

    try:
        line = json.loads(text)
    except ValueError:
        return None
    if not isinstance(line, dict) or line.get("schema") != SCHEMA or not all(name in line for name in KEY):
        return None
    return line if line["operator"] in OPERATORS else None


def _described(request: Request, found: dict[str, Any], *, oversubscribed: bool, joined: str | None) -> dict[str, Any]:
    """A record: what was measured, what `rank.measure` or `launch.run` found, and on which machine."""
    return {
        "schema": SCHEMA, **{name: getattr(request, name) for name in KEY}, "repeats": request.repeats,
        "deadline_s": request.deadline_s, "oversubscribed": oversubscribed, "joined": joined, **machine(),
        **{"failure": None} | found,
    }  # fmt: skip


def machine() -> dict[str, Any]:
    """The machine, the versions and the time (UTC), by the names that the columns of sweeps' records have."""
    import torch

    try:
        info = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        info = ""
    model = re.search(r"^model name\s*:\s*(.*)$", info, re.MULTILINE)
    return {
        "host": platform.node(), "cpu_model": model[1] if model else platform.machine(), "torch_version": torch.__version__,
        **_revision(), "attnbench_version": _installation.build_facts()["version"],
        "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }  # fmt: skip


def _revision() -> dict[str, Any]:
    """The commit of the git checkout that this file belongs to, and whether tracked files differ from it; None for both if this
    file is not tracked."""
    here = Path(__file__)

    def git(*command: str) -> str | None:
        done = subprocess.run(["git", "-C", str(here.parent), *command], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    if not git("ls-files", "--error-unmatch", here.name):
        return {"revision": None, "dirty": None}
    return {"revision": git("rev-parse", "--short=12", "HEAD"), "dirty": bool(git("status", "--porcelain", "--untracked-files=no", ":/"))}


def _print_line(line: dict[str, Any]) -> None:
    what = f"{line['operator']}, {line['ranks']} ranks of {line['length']} positions"
    if line["failure"]:
        print(f"{what}: {line['failure']['kind']}: {line['failure']['message']}", file=sys.stderr)
    else:
        print(f"{what}: {statistics.median(line['seconds']) * 1e3:.3f} ms", file=sys.stderr)


def efficiency_of(line: dict[str, Any], lines: list[dict[str, Any]]) -> float | None:
    """The efficiency of a record: the speed of each of its ranks, divided by that of the last record of one rank with the same
    settings and host. None if there is no such record, and for failures, oversubscribed records and joined ranks."""
    if line["oversubscribed"] or line["joined"] or line["failure"]:
        return None
    for other in reversed(lines):
        same = all(other[name] == line[name] for name in (*KEY, "host") if name != "ranks")
        if same and other["ranks"] == 1 and other["failure"] is None:
            work = line["ranks"] if line["operator"] == "softmax" else 1
            return work * statistics.median(other["seconds"]) / statistics.median(line["seconds"])
    return None


def _print_table(lines: list[dict[str, Any]]) -> None:
    from attnbench.distributed.operators import OPERATORS

    print("| operator | ranks | positions of a rank | backward | ms | efficiency | bound | payload of a rank | peak memory of a rank |")
    print("|---|---|---|---|---|---|---|---|---|")
    for line in lines:
        operator = OPERATORS[line["operator"]]
        start = f"| {line['operator']} | {line['ranks']} | {line['length']} | {'yes' if line['backward'] else 'no'} |"
        if line["failure"]:
            print(f"{start} {line['failure']['kind']} | | | | |")
            continue
        share = efficiency_of(line, lines)
        limit = ""
        if operator.transition != "ring" and not operator.has_normalizer:
            limit = f"{bound.weak_scaling_bound(operator.transition, line['dim'], line['dim'], line['ranks'], backward=line['backward']):.2f}"
        marked = f"{statistics.median(line['seconds']) * 1e3:.3f}{' (oversubscribed)' if line['oversubscribed'] else ''}"
        print(
            f"{start} {marked} | {'' if share is None else f'{share:.2f}'} | {limit} | {line['payload_bytes']} B | "
            f"{max(line['peak_extra_bytes']) / 2**20:.1f} MiB |"
        )


# ---------------------------------------------------------------- bound


def _add_bound(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dim", type=_positive, default=64, help="of q, k and v (default: %(default)s)")


def _bound(chosen: argparse.Namespace) -> int:
    print((bound.__doc__ or "").strip())
    print("\n| operators | ranks | pass | bound |\n|---|---|---|---|")
    names = {"one": "linear, simple-gla", "diagonal": "gla", "matrix": "delta, gated-delta, kda"}
    for transition, operators in names.items():
        for ranks in (2, 3) if transition == "matrix" else (2,):
            for backward in (False, True):
                text = bound.formula_text(transition, chosen.dim, chosen.dim, ranks, backward=backward)
                count = "2" if transition == "matrix" and ranks == 2 else f"{ranks} or more"
                print(f"| {operators} | {count} | {'forward and backward' if backward else 'forward'} | {text} |")
    return OK


# ---------------------------------------------------------------- simulate


def _add_simulate(parser: argparse.ArgumentParser) -> None:
    _add_sizes(parser, 8192)
    parser.add_argument("--out", type=Path, required=True, help=f"folder to which {SCALING} is written")
    parser.add_argument("--latency-us", type=float, default=10.0, help="of a message, in microseconds (default: %(default)g)")
    parser.add_argument("--bandwidth", type=float, default=12.5, help="of a rank, in gigabytes a second (default: %(default)g)")
    parser.add_argument(
        "--total", type=_positive, default=1 << 20, help="positions of the sequence that strong scaling splits (default: %(default)s)"
    )


def _simulate(chosen: argparse.Namespace) -> int:
    import torch

    from attnbench.distributed import kernels, simulation
    from attnbench.distributed.operators import OPERATORS, Sizes

    for name, value, least in (("latency-us", chosen.latency_us, 0), ("bandwidth", chosen.bandwidth, 1e-9)):
        if not (math.isfinite(value) and value >= least):
            raise ValueError(f"--{name} {value:g}, expected at least {least:g}")
    if chosen.total < 2:
        raise ValueError(f"--total {chosen.total}, expected at least 2")
    torch.set_num_threads(chosen.threads)
    sizes = Sizes(chosen.length, chosen.heads, chosen.dim, chosen.dtype, chosen.batch)
    operators = _chosen_operators(chosen.operators)
    for name in operators:
        if not OPERATORS[name].is_predicted:
            known = ", ".join(one.name for one in OPERATORS.values() if one.is_predicted)
            raise ValueError(f"--operators: {name} is not predicted, expected one of {known}")
    lines = []
    for name in operators:
        lines.append({"operator": name, "sizes": asdict(sizes), "times": kernels.measure(OPERATORS[name], sizes, chosen.repeats)})
        print(f"{name}: {lines[-1]['times']}", file=sys.stderr)
    network = simulation.Network(chosen.latency_us * 1e-6, chosen.bandwidth * 1e9)
    found = simulation.scaling(lines, network, chosen.total, backward=chosen.backward)
    found |= {"schema": SCHEMA, "kernels": lines, "threads": chosen.threads, **machine()}
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / SCALING).write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    print(f"| operator | fastest for {chosen.total:,} positions | speed-up there | twice the ranks gain 1.5 times up to |")
    print("|---|---|---|---|")
    for one in found["operators"]:
        best = min(one["strong"], key=lambda point: point["seconds"])
        speedup = one["strong"][0]["seconds"] / best["seconds"]
        print(f"| {one['operator']} | {best['ranks']} ranks | {speedup:.1f} | {one['scales_to']} ranks |")
    return OK


if __name__ == "__main__":
    sys.exit(main())
