"""Measures how long attnbench takes for folders of many records, and prints a row for each command.

Usage: python tools/speed.py [--only NAME] [--records 10000] [--runs 2] [--program build/attnbench]

The records are copies of those in results/ with other numbers of heads, head dimensions and seeds, so that there
are many series of several methods, protocols and lengths, of measured and of skipped cases. Of several runs the
fastest counts, because other programs on the machine can only make a run slower. The load of the machine and the
time of processors are printed, since they say how far the times can be trusted.

A row is an entry of ROWS.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable

ROOT = Path(__file__).resolve().parent.parent
# The sweeps whose records are copied: several methods, lengths, protocols and outcomes.
COPIED = ("figure1/*/records.jsonl", "methods/*/records.jsonl", "repeat/*/run-1/records.jsonl")


def templates() -> list[dict]:
    """The records of the sweeps that are copied. Each sweep has a seed of its own, so that no two are of the same case."""
    paths = [path for pattern in COPIED for path in sorted((ROOT / "results").glob(pattern))]
    return [
        json.loads(line) | {"seed": seed} for seed, path in enumerate(paths) for line in path.read_text("utf-8").splitlines()
    ]


def processor_s_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def slower(record: dict, factor: float) -> dict:
    """The record with all its times multiplied by the factor."""
    changed = dict(record)
    for name, value in record.items():
        if not name.endswith("_ms") or not name.startswith(("time_", "process_")):
            continue
        if isinstance(value, list):
            changed[name] = [number * factor for number in value]
        elif value is not None:
            changed[name] = value * factor
    return changed


def many_records(count: int, factor: float = 1) -> list[dict]:
    """So many records of different cases."""
    originals = [slower(record, factor) for record in templates()]
    records = []
    for copy in range(-(-count // len(originals))):
        axes = {"heads": 1 + copy % 4, "head_dim": 16 * (1 + copy // 4 % 4), "value_dim": 16}
        records += [record | axes | {"seed": record["seed"] + 100 * (copy // 16)} for record in originals]
    return records[:count]


class Bench:
    """The program, the folders of records that the rows share, and the clock."""

    def __init__(self, program: Path, folder: Path, records: int, runs: int):
        self.program, self.scratch, self.records, self.runs = program, folder, records, runs

    def folder(self, name: str = "a", records: int | None = None, factor: float = 1) -> Path:
        """A folder of so many records, which is made when it is first asked for."""
        records = records or self.records
        made = self.scratch / f"{name}-{records}"
        if not made.exists():
            made.mkdir()
            with open(made / "records.jsonl", "w", encoding="utf-8") as file:
                for record in many_records(records, factor):
                    file.write(json.dumps(record, separators=(",", ":"), ensure_ascii=False) + "\n")
        return made

    def time(self, *words) -> tuple[float, str]:
        """The seconds that the program takes with these arguments, and a remark about its processor time and its output."""
        seconds, processor = [], []
        for _ in range(self.runs):
            with open(self.scratch / "output", "wb") as output:
                used, begin = processor_s_of_children(), time.perf_counter()
                done = subprocess.run(
                    [self.program, *map(str, words)], stdin=subprocess.DEVNULL, stdout=output,
                    stderr=subprocess.PIPE, check=False, cwd=self.scratch,
                )  # fmt: skip
                seconds.append(time.perf_counter() - begin)
                processor.append(processor_s_of_children() - used)
            if done.returncode != 0:
                sys.exit(f"speed: attnbench {words[0]} ended with {done.returncode}: {done.stderr.decode()}")
        return min(seconds), f"{min(processor):.2f} s of processors; prints {(self.scratch / 'output').stat().st_size / 1e6:.1f} MB"


def page_of(bench: Bench) -> tuple[float, Path]:
    """The seconds that a report of half as many records takes, since a page holds all of them, and its file."""
    page = bench.scratch / "report.html"
    seconds, _ = bench.time("report", bench.folder(records=bench.records // 2), "--out", page)
    return seconds, page


def time_of_report(bench: Bench) -> tuple[float, str]:
    seconds, page = page_of(bench)
    return seconds, f"{bench.records // 2} records, {page.stat().st_size / 1e6:.1f} MB of 15 MB"


def time_of_report_in_chromium(bench: Bench) -> tuple[float, str]:
    """The time from opening the page to its first drawn chart."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if not program:
        sys.exit("speed: there is no chromium; `make setup` installs it")
    _, page = page_of(bench)
    seconds = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(bench.runs):
            tab = browser.new_page()
            begin = time.perf_counter()
            tab.goto(page.as_uri())
            tab.wait_for_selector(".panel svg .mark-symbol path")
            seconds.append(time.perf_counter() - begin)
            tab.close()
        browser.close()
    return min(seconds), f"{bench.records // 2} records in Chromium"


# By name: how many seconds the command may take, and the function that measures it, which returns the seconds and a remark.
ROWS: dict[str, tuple[float, Callable[[Bench], tuple[float, str]]]] = {
    "table": (2, lambda bench: bench.time("table", bench.folder())),
    "table-charts": (2, lambda bench: bench.time("table", bench.folder(), "--charts", "always")),
    "analyse": (2, lambda bench: bench.time("analyse", bench.folder())),
    "compare": (2, lambda bench: bench.time("compare", bench.folder("a"), bench.folder("b", factor=1.1))),
    "report": (8, time_of_report),
    "report-shown": (2, time_of_report_in_chromium),
}


def load_of_machine() -> str:
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=ROWS, action="append", help="the row to measure")
    parser.add_argument("--records", type=int, default=10_000, help="how many records a folder has")
    parser.add_argument("--runs", type=int, default=2, help="how often each command runs; the fastest counts")
    parser.add_argument("--program", type=Path, default=ROOT / "build/attnbench")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="attnbench-speed-") as scratch:
        bench = Bench(options.program.resolve(), Path(scratch), options.records, options.runs)
        size = (bench.folder() / "records.jsonl").stat().st_size
        print(f"{options.records} records of {size / options.records / 1e3:.1f} kB; {load_of_machine()}")
        for name in options.only or ROWS:
            at_most_s, measure = ROWS[name]
            seconds, remark = measure(bench)
            verdict = "" if seconds <= at_most_s else "  TOO SLOW"
            print(f"{name:<14} {seconds:6.2f} s of {at_most_s:g} s  {remark}; {load_of_machine()}{verdict}", flush=True)


if __name__ == "__main__":
    main()
