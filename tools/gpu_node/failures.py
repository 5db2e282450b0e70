"""The cases that failed, and the search for the smallest size that fails."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

from gpu_node.files import axes_of, read_json, records_of, write_json
from gpu_node.processes import Clock, signal_group, start
from gpu_node.steps import Options, Step

MAX_FAILURES = 3  # of one step that are searched for the smallest size


def failures_of_verify(options: Options, step: Step) -> Iterator[Tuple[str, str, Dict[str, Any]]]:
    """The kind, the error and the case of what failed in the output of `attnbench verify`."""
    try:
        rows = json.loads((options.out / step.output).read_text("utf-8"))
    except (OSError, ValueError):
        return
    for row in rows:
        if row.get("failed_case") and "the worker ended at an earlier case" not in row["verdict"]:
            yield "verify", row["verdict"], row["failed_case"]


def failures_of_sweep(options: Options, step: Step) -> Iterator[Tuple[str, str, Dict[str, Any]]]:
    """The same of the records of a sweep. That a case needs more memory or time than there is, is no error of a kernel."""
    folder = options.out / "results" / step.sweep
    records = records_of(folder)
    axes = axes_of(folder) if records else []
    for record in records:
        if record["outcome"] == "failed" and record.get("device") == "cuda" and record.get("failure_kind") not in ("oom", "usage"):
            case = {name: record[name] for name in axes if record.get(name) is not None}
            yield "measure", f"{record.get('failure_kind')}: {record.get('reason')}", case


def note_failures(options: Options, step: Step) -> None:
    """Writes a file for each of the first failures of a step, which bisect_all() then completes."""
    found = failures_of_verify(options, step) if step.verifies else failures_of_sweep(options, step) if step.sweep else iter(())
    seen = set()
    for mode, error, case in found:
        kind = (case["method"], case["dtype"], case["protocol"], case.get("causal"))
        path = options.out / "failures" / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', '-'.join(map(str, kind)))}-{mode}.json"
        if kind in seen or path.exists():
            continue
        if len(seen) == MAX_FAILURES:
            break
        seen.add(kind)
        write_json(path, {
            "step": step.name, "mode": mode, "error": error, "seed": case.get("seed", 0), "case": case, "smallest": case,
            "bisected": False, "trials": [],
        })  # fmt: skip


def try_case(options: Options, mode: str, case: Dict[str, Any], limit_s: float) -> str:
    """Runs a case in a process of its own, and returns its error; empty if it agrees."""
    request = dict(case)
    if mode == "measure":
        request.update(time_budget_s=0.01, warmup_s=0, noise_target=1e9, deadline_s=max(1.0, limit_s))
    plugins = [f"--plugin={path}" for path in options.plugins]
    folders = [f"--methods-folder={options.bundle / 'attnbench/share/attnbench'}"]
    read, write = os.pipe()
    os.write(write, json.dumps(request).encode())
    os.close(write)
    with os.fdopen(read, "rb") as given:
        child = start([options.worker, "--answer-fd=1", *folders, *plugins, mode], options, stdin=given, stdout=subprocess.PIPE,
                      stderr=subprocess.PIPE, env=options.environment())  # fmt: skip
    try:
        answer, told = child.communicate(timeout=max(1.0, limit_s))
    except subprocess.TimeoutExpired:
        signal_group(child, signal.SIGKILL)
        child.communicate()
        return f"timeout: no answer within {limit_s:.0f} s"
    except BaseException:
        signal_group(child, signal.SIGKILL)
        child.communicate()
        raise
    for line in reversed(answer.decode("utf-8", "replace").splitlines()):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and "outcome" in record:
            return f"{record.get('failure_kind')}: {record.get('reason')}" if record["outcome"] == "failed" else ""
    return f"crashed: exit code {child.returncode}; it said: {told.decode('utf-8', 'replace')[-300:].strip()}"


class OutOfTime(Exception):
    """The time of the call is up in a search."""


class Search:
    """Looks for the smallest case that fails as a case does: fewer sequences and heads, fewer positions, fewer dimensions."""

    def __init__(self, options: Options, clock: Clock, path: Path):
        self.options, self.clock, self.path = options, clock, path
        self.failure = read_json(path, "what this program writes of a failure")

    def fails(self, case: Dict[str, Any]) -> bool:
        """Whether a case fails. Trials of an earlier call are not repeated."""
        for trial in self.failure["trials"]:
            if trial["case"] == case:
                return bool(trial["error"])
        if self.clock.left_s() < min(self.options.trial_s, 15):
            raise OutOfTime
        limit_s = min(self.options.trial_s, self.clock.left_s())
        error = try_case(self.options, self.failure["mode"], case, limit_s)
        if error.startswith("timeout") and limit_s < self.options.trial_s:
            raise OutOfTime  # it may only have been slow
        self.failure["trials"].append({"case": case, "error": error})
        if error:
            self.failure["smallest"], self.failure["smallest_error"] = case, error
        write_json(self.path, self.failure)
        return bool(error)

    def shrink(self, case: Dict[str, Any], names: Tuple[str, ...], values: List[int]) -> Dict[str, Any]:
        """Sets the axes `names`, which are equal, to the smallest of the ascending values that fails, if all above it fail, too."""
        low, high = -1, len(values) - 1  # values[high] fails
        while high - low > 1:
            middle = (low + high) // 2
            if self.fails({**case, **{name: values[middle] for name in names}}):
                high = middle
            else:
                low = middle
        return {**case, **{name: values[high] for name in names}}

    def search(self) -> None:
        case = self.failure["case"]
        if not self.fails(case):
            self.failure.update(bisected=True, reproduced=False)
            write_json(self.path, self.failure)
            return
        self.failure["reproduced"] = True
        for names in (("batch",), ("heads", "kv_heads", "value_heads")):
            alone = {**case, **{name: 1 for name in names}}
            if alone != case and self.fails(alone):
                case = alone
        lengths = ("query_len", "key_len") if case["query_len"] == case["key_len"] else ("query_len",)
        case = self.shrink(case, lengths, list(range(1, case["query_len"] + 1)))
        sizes = ("head_dim", "value_dim") if case["head_dim"] == case["value_dim"] else ("head_dim",)
        smaller = [size for size in (8, 16, 32, 64, 128) if size < case["head_dim"]]
        case = self.shrink(case, sizes, [*smaller, case["head_dim"]])
        self.failure.update(bisected=True, smallest=case, command=measure_command(case))
        write_json(self.path, self.failure)
        print(f"=== smallest failing case of {case['method']}: {self.failure['command']}", flush=True)


def measure_command(case: Dict[str, Any]) -> str:
    words = ["attnbench", "measure", str(case["method"])]
    for name, value in case.items():
        option = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words += [option] if value else []
        elif name != "method":
            words.append(f"{option}={value}")
    return " ".join(words)


def bisect_all(options: Options, clock: Clock) -> None:
    """Completes the files of failures whose smallest size is not known yet."""
    for path in sorted((options.out / "failures").glob("*.json")):
        search = Search(options, clock, path)
        if search.failure["bisected"]:
            continue
        try:
            search.search()
        except OutOfTime:
            return
