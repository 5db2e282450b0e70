"""What the harness adds: its recorded median of sdpa beside the same call timed by hand.

Processes of both kinds alternate in random order, so that a machine whose speed drifts is fair to
both. Prints the ratio of the medians with its interval, and what a case costs besides the work it
measures.

Usage: python tests/overhead/compare.py [--length 2048] [--processes 12]
"""

import argparse
import json
import random
import statistics
import subprocess
from pathlib import Path

BUILD = Path(__file__).resolve().parents[2] / "build"


def by_hand(length: int, calls: int, threads: int) -> float:
    command = [BUILD / "tests/hand_loop", str(length), str(calls), str(threads)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def by_harness(length: int, calls: int, threads: int) -> dict:
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
    hand, harness, besides = [], [], []
    for _ in range(options.processes):
        for kind in random.sample(["hand", "harness"], 2):
            if kind == "hand":
                hand.append(by_hand(*arguments))
            else:
                record = by_harness(*arguments)
                harness.append(record["time_median_ms"])
                besides.append(record["worker_s"] - record["measured_s"])
    ratios = [
        statistics.median(random.choices(harness, k=len(harness)))
        / statistics.median(random.choices(hand, k=len(hand)))
        for _ in range(5000)
    ]
    cuts = statistics.quantiles(ratios, n=40)
    ratio = statistics.median(harness) / statistics.median(hand)
    print(f"sdpa, N = {options.length}, {options.threads} threads, {options.processes} processes a side")
    print(f"  by hand     {statistics.median(hand):.3f} ms")
    print(f"  recorded    {statistics.median(harness):.3f} ms")
    print(f"  ratio       {ratio:.4f}  (95 % interval {cuts[0]:.4f} to {cuts[-1]:.4f})")
    print(f"  a case costs {statistics.median(besides):.2f} s besides the work it measures")


if __name__ == "__main__":
    main()
