#!/usr/bin/env python3
"""Predicts how long the CUDA kernels take on a GPU, from counts.

    attn/cuda/model/predict.py            prints the table of predictions
    attn/cuda/model/predict.py --renew    writes it to docs/cuda-model.md, and the predicted seconds to predictions.csv

A bundle for GPU nodes has predictions.csv, so that the node shows them beside what it measures (tools/gpu_node/reporting.py).

The counts are the launches and the bytes that build/tests/cuda_launch_probe prints, and the instructions of budgets.csv.
docs/cuda-model.md says how the model predicts; gpu.toml has its constants.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from math import ceil
from pathlib import Path

import compiled

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = compiled.ROOT
DOCUMENT = ROOT / "docs/cuda-model.md"
PREDICTIONS = Path(__file__).with_name("predictions.csv")
BUILD = Path(os.environ.get("ATTNBENCH_BUILD", ROOT / "build"))
GPU = tomllib.loads(Path(__file__).with_name("gpu.toml").read_text("utf-8"))
DIM = 64  # columns of a head
LSH_CHUNK = 64
CASES = [
    (method, dtype, protocol, heads, length)
    for method, dtype in (("linear", "bfloat16"), ("linear", "float32"), ("lsh", "bfloat16"))
    for protocol in ("forward", "forward_backward")
    if method == "linear" or protocol == "forward"  # see cuda_launch_probe
    for heads, length in ((8, 4096), (8, 65536), (64, 4096), (64, 16384), (64, 65536))
]


def probe(cases):
    """What the calls launch: a dictionary for each case."""
    command = [str(BUILD / "tests/cuda_launch_probe"), *(str(part) for case in cases for part in case)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def floor_bytes(call):
    """The bytes of the inputs and results of a call: what any kernel has to read and write."""
    row = DIM * {"bfloat16": 2, "float32": 4}[call["dtype"]]
    # Forward: q, k, v and the output. Backward: q, k, v, g and three gradients. LSH attention has one tensor for q and k.
    tensors = {"linear": (4, 7), "lsh": (3, 5)}[call["method"]]
    return call["heads"] * call["length"] * row * (tensors[0] if call["protocol"] == "forward" else sum(tensors))


def blocks_per_multiprocessor(code, launch):
    """How many blocks of a kernel a multiprocessor holds at once."""
    warps = ceil(launch["threads"] / 32)
    of_a_warp = ceil(code.registers * 32 / GPU["register_unit"]) * GPU["register_unit"]
    return max(
        1,
        min(
            GPU["blocks"],
            GPU["threads"] // launch["threads"],
            GPU["registers"] // (warps * of_a_warp),
            GPU["shared_bytes"] // (launch["shared_bytes"] + GPU["reserved_shared_bytes"]),
        ),
    )


def cycles_of(call, launch, code, blocks_of_kernel):
    """The cycles in which the busiest multiprocessor issues the instructions of a launch's main loops, and those in which its
    tensor cores multiply, and the waves of the launch."""
    if code is None or code.path_tensor == 0:
        return 0, 0, 0
    warps = launch["threads"] // 32
    rows = 16 * warps
    if call["method"] == "lsh":
        passes = 2 * ceil(LSH_CHUNK / rows)  # the keys of two chunks
    else:
        passes = ceil(ceil(call["heads"] * call["length"] / blocks_of_kernel) / rows)
    blocks = ceil(launch["blocks"] / GPU["multiprocessors"])
    work = blocks * passes * warps
    waves = launch["blocks"] / (GPU["multiprocessors"] * blocks_per_multiprocessor(code, launch))
    return (
        work * code.path_instructions / GPU["issued_per_cycle"],
        work * code.path_tensor * GPU["tensor_cycles"] / 4 / GPU["tensor_share"],
        waves,
    )


def predict(call, kernels):
    """Predicted seconds of a call at best and expected, with what they are made of."""
    source = f"attn/{call['method']}/cuda/{call['dtype']}.cu"
    total = {}
    for launch in call["launches"]:
        total[launch["kernel"]] = total.get(launch["kernel"], 0) + launch["blocks"]
    issue = tensor = 0.0
    waves = []
    for launch in call["launches"]:
        name = launch["kernel"].replace("attn::cuda::", "").replace("> >", ">>")
        code = kernels.get((source, name))
        of_launch = cycles_of(call, launch, code, total[launch["kernel"]])
        issue, tensor = issue + of_launch[0], tensor + of_launch[1]
        if of_launch[2]:
            waves.append(of_launch[2])
    memory = call["bytes"] / GPU["memory_bytes_per_s"]
    launches = sum(GPU["early_launch_s" if launch["begins_early"] else "launch_s"] for launch in call["launches"])
    issue, tensor = issue / GPU["clock_hz"], tensor / GPU["clock_hz"]
    return {
        "floor": floor_bytes(call) / GPU["memory_bytes_per_s"],
        "memory": memory,
        "issue": issue,
        "tensor": tensor,
        "waves": max(waves, default=0),
        "best": max(memory, issue, tensor) + launches,
        "expected": max(memory / GPU["bandwidth_share"], issue / GPU["issue_share"], tensor) + launches,
    }


def measured_records(folder=ROOT / "results"):
    """Records of this GPU under results/, as dictionaries."""
    for path in sorted(folder.rglob("records.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            if GPU["records"] in line:
                record = json.loads(line)
                if GPU["records"] in str(record.get("gpu")) and record.get("outcome") == "measured":
                    yield record


def measured(call, records):
    """The median of the times measured of a call, in seconds; None if none was."""
    names = {"lsh": ("lsh", "lsh-1")}.get(call["method"], (call["method"],))  # LSH attention with one round
    found = [
        record["time_median_ms"] / 1e3
        for record in records
        if record["method"] in names
        and all(record[name] == call[name] for name in ("dtype", "protocol"))
        and record["batch"] * record["heads"] == call["heads"]
        and record["query_len"] == record["key_len"] == call["length"]
        and record["head_dim"] == record["value_dim"] == DIM
        and record["causal"]
        and record["implementation"].startswith("kernel/cuda")
    ]
    return sorted(found)[len(found) // 2] if found else None


def table(calls, kernels, records):
    """The predictions as a table in Markdown."""
    lines = [
        "| call | heads | N | waves | floor | memory | instructions | tensor cores | at best | expected | share of floor | measured | measured / expected |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]

    def text(seconds):
        return f"{seconds * 1e6:.0f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"

    for call in calls:
        p = predict(call, kernels)
        time = measured(call, records)
        name = f"{call['method']} {call['dtype']} {call['protocol'].replace('_', ' + ')}"
        cells = [name, str(call["heads"]), f"{call['length']:,}", f"{p['waves']:.2f}"]
        cells += [text(p[part]) for part in ("floor", "memory", "issue", "tensor", "best", "expected")]
        cells += [f"{p['floor'] / p['expected']:.0%}"]
        cells += [text(time), f"{time / p['expected']:.2f}"] if time else ["not measured", "–"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def seconds_text(calls, kernels):
    """The predicted seconds as the text of predictions.csv."""
    lines = [f"# Predicted for {GPU['name']}; written by predict.py --renew", "method,dtype,protocol,heads,length,best_s,expected_s"]
    for call in calls:
        p = predict(call, kernels)
        names = [str(call[name]) for name in ("method", "dtype", "protocol", "heads", "length")]
        lines.append(",".join([*names, f"{p['best']:.3e}", f"{p['expected']:.3e}"]))
    return "\n".join(lines) + "\n"


def with_table(document, new):
    """The text of the document with its table of predictions replaced."""
    begin, end = "<!-- predictions -->\n", "<!-- end of predictions -->"
    return re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: begin + "\n" + new + "\n" + end, document, flags=re.DOTALL)


def current():
    """The table for the document, and the text of predictions.csv."""
    calls, kernels = probe(CASES), compiled.read_budgets()[1]
    return table(calls, kernels, list(measured_records())), seconds_text(calls, kernels)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--renew", action="store_true", help="write the table to docs/cuda-model.md, and predictions.csv")
    chosen = parser.parse_args()
    new_table, seconds = current()
    if chosen.renew:
        DOCUMENT.write_text(with_table(DOCUMENT.read_text("utf-8"), new_table), "utf-8")
        PREDICTIONS.write_text(seconds, "utf-8")
    else:
        print(new_table, end="")


if __name__ == "__main__":
    main()
