"""Measures the overhead of the harness: compares its median time of sdpa with a plain loop.

Processes of both kinds run in random order, so that a drift of the machine's speed affects both
alike. Prints the ratio of the medians with its 95 % interval, and the time that a case takes beside
its measurements.

Usage: python tests/overhead/compare.py [--length 2048] [--processes 12]
"""

import argparse
import json
import random
import statistics
import subprocess
from pathlib import Path

BUILD = Path(__file__).resolve().parents[2] / "build"


def time_by_hand(length: int, calls: int, threads: int) -> float:
    """Returns the median time of a call in milliseconds, timed by hand_loop."""
    command = [BUILD / "tests/hand_loop", str(length), str(calls), str(threads)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def record_of_harness(length: int, calls: int, threads: int) -> dict:
    """Returns the record of the same calls, measured by attnbench."""
    command = [BUILD / "attnbench", "measure", "sdpa", "--query-len", str(length), "--format=json"]
    command += ["--threads", str(threads), "--min-samples", str(calls), "--time-budget-s", "0"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--processes", type=int, default=12)
    options = parser.parse_args()
    arguments = (options.length, options.calls, options.threads)
    hand, harness, overhead_s = [], [], []
    for _ in range(options.processes):
        for kind in random.sample(["hand", "harness"], 2):
            if kind == "hand":
                hand.append(time_by_hand(*arguments))
            else:
                record = record_of_harness(*arguments)
                harness.append(record["time_median_ms"])
                overhead_s.append(record["worker_s"] - record["measured_s"])
    ratios = [
        statistics.median(random.choices(harness, k=len(harness)))
        / statistics.median(random.choices(hand, k=len(hand)))
        for _ in range(5000)
    ]
    cuts = statistics.quantiles(ratios, n=40)
    ratio = statistics.median(harness) / statistics.median(hand)
    print(
        f"sdpa, N = {options.length}, {options.threads} threads, "
        f"{options.processes} processes per side"
    )
    print(f"  by hand     {statistics.median(hand):.3f} ms")
    print(f"  recorded    {statistics.median(harness):.3f} ms")
    print(f"  ratio       {ratio:.4f}  (95 % interval {cuts[0]:.4f} to {cuts[-1]:.4f})")
    print(f"  a case takes {statistics.median(overhead_s):.2f} s beside its measurements")


if __name__ == "__main__":
    main()
