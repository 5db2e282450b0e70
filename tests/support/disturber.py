"""Disturbs the machine in bursts of 0.1 to 3 s, for tests and trials of measurements.

    python tests/support/disturber.py --seconds 600 --share 0.1 --kind core

`core` keeps every processor busy, `memory` copies arrays that no cache holds on every processor. The
bursts take the given share of the time; their lengths and the pauses between them are random.
"""

import argparse
import multiprocessing
import os
import random
import time

ARRAY_BYTES = 64 << 20


def busy(end: float, kind: str) -> None:
    """Works until `end`, a time of time.monotonic()."""
    if kind == "memory":
        source, target = memoryview(bytearray(ARRAY_BYTES)), memoryview(bytearray(ARRAY_BYTES))
        while time.monotonic() < end:
            target[:] = source
    else:
        while time.monotonic() < end:
            pass


def disturb(seconds: float, share: float, kind: str, seed: int) -> None:
    chance = random.Random(seed)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        length = chance.uniform(0.1, 3)
        pause = length * (1 - share) / share * chance.uniform(0.5, 1.5) if share > 0 else seconds
        time.sleep(max(0.0, min(pause, end - time.monotonic())))
        stop = min(end, time.monotonic() + length)
        workers = [
            multiprocessing.Process(target=busy, args=(stop, kind), daemon=True)
            for _ in os.sched_getaffinity(0)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, required=True, help="how long to disturb in all")
    parser.add_argument("--share", type=float, default=0.1, help="share of the time in bursts")
    parser.add_argument("--kind", choices=("core", "memory"), default="core")
    parser.add_argument("--seed", type=int, default=0, help="of the lengths of bursts and pauses")
    options = parser.parse_args()
    disturb(options.seconds, options.share, options.kind, options.seed)
