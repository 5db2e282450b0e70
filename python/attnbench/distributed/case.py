"""Measures a case of `attnbench measure` or of a sweep that has several ranks, as attnbench-worker does with others.

    python case.py --answer-fd=3 measure --build=FOLDER < CASE   # CASE is JSON

The driver starts this file with the Python interpreter that runs Python methods. The answer is a line of JSON with the columns
of a record. If a rank dies, hangs or computes other results than one process, the record is a failure that quotes the end of
this rank's output.
"""

import argparse
import json
import os
import platform
import signal
import sys
import time
from pathlib import Path
from typing import Any

STARTED = time.monotonic()
MIN_SAMPLE_S = 1e-3  # the shortest time of a sample, as in attnbench-worker
KINDS = {"crashed": "crashed", "timed_out": "timeout", "disagreed": "invalid"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="case.py", description=__doc__)
    parser.add_argument("--answer-fd", type=int, default=1)
    parser.add_argument("command", choices=["measure"])
    parser.add_argument("--build", help="the folder of libattn in a source tree")
    chosen = parser.parse_args()
    # The driver asks this program to end before it kills it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if chosen.build:
        os.environ["ATTNBENCH_BUILD"] = chosen.build
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    answer = measure(json.load(sys.stdin))
    with os.fdopen(chosen.answer_fd, "w", encoding="utf-8") as stream:
        stream.write(json.dumps(answer) + "\n")
    # The driver has its answer now; an ordinary exit would take a second or more to unload torch.
    os._exit(0)


def measure(case: dict[str, Any]) -> dict[str, Any]:
    """The columns of the record of a case: measured or failed. `case` has a value for every axis and setting, by its name."""
    import torch

    from attnbench.distributed import launch
    from attnbench.distributed.operators import BY_METHOD
    from attnbench.distributed.rank import AGREEMENT_LENGTH, Request

    ranks = case["ranks"]
    operator = BY_METHOD[case["method"]]
    request = Request(
        operator.name, 0, ranks, "", "", 0, [], case["query_len"] // ranks, case["heads"], case["head_dim"], case["batch"],
        case["dtype"], case["protocol"] == "forward_backward", case["min_samples"], case["threads"],
        max(0.0, case["deadline_s"] - (time.monotonic() - STARTED)), case["decay_positions"], case["warmup_s"],
        case["noise_target"], case["time_budget_s"], MIN_SAMPLE_S, case["seed"], case["allocation"] == "kept",
    )  # fmt: skip
    found = launch.run(request, launch.cores_of(ranks, case["threads"]))
    columns: dict[str, Any] = {"python": f"{platform.python_version()}, torch {torch.__version__}"}
    if failure := found.get("failure"):
        return columns | {"outcome": "failed", "failure_kind": KINDS[failure["kind"]], "reason": failure["message"]}
    milliseconds = [1e3 * x * (1 + case.get("injected_slowdown_percent", 0) / 100) for x in found["seconds"]]
    peak = max(found["peak_extra_bytes"])
    return columns | {
        "outcome": "measured",
        "implementation": "gloo/ring" if operator.transition == "ring" else "gloo/states",
        "time_first_ms": 1e3 * found["first_s"],
        "time_samples_ms": milliseconds,
        "samples": len(milliseconds),
        "calls_per_sample": found["calls_per_sample"],
        "warmup_calls": found["warmup_calls"],
        "stop_reason": found["stop_reason"],
        "measured_s": found["first_s"] + sum(found["seconds"]) * found["calls_per_sample"],
        "payload_bytes": found["payload_bytes"],
        "rank_medians_ms": [1e3 * x for x in found["seconds_by_rank"]],
        "rank_peak_extra_bytes": found["peak_extra_bytes"],
        "input_bytes": found["input_bytes"],
        "peak_allocated_bytes": found["input_bytes"] + peak,
        "peak_extra_bytes": peak,
        "peak_extra_bytes_per_sample": peak / case["batch"],
        "max_rel_error": found["agreement"]["error"],
        "error_tolerance": found["agreement"]["tolerance"],
        "rows_checked": AGREEMENT_LENGTH * ranks,
    }


if __name__ == "__main__":
    main()
