"""What is written of the results: tables, predictions, a summary and an archive; and what a call prints."""

import csv
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from gpu_node.failures import measure_command
from gpu_node.files import read_json, records_of
from gpu_node.steps import Options, Step

CUT, RUNNING, NOT_RUN = "cut", "running", "not run"


def title_of(state: Dict[str, Any]) -> str:
    if state.get("stand_in"):
        return f"REHEARSAL with {state['gpu']}, which stands in for a GPU: no figure here is that of a GPU"
    return f"{state['gpu']}, driver {state['driver']}, revision {state['revision']}, torch {state['torch']}"


def time_text(seconds: float) -> str:
    """Three digits, since the shortest times are a few microseconds."""
    unit, factor = ("µs", 1e6) if seconds < 0.9995e-3 else ("ms", 1e3)
    value = seconds * factor
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"


def write_table(options: Options, folder: str) -> None:
    """Writes the records as a table, unless there are none yet."""
    if not records_of(options.out / "results" / folder):
        return
    path = options.out / "tables" / f"{folder}.md"
    path.parent.mkdir(exist_ok=True)
    done = subprocess.run(
        [options.program, "table", str(options.out / "results" / folder), "--format", "markdown"], capture_output=True, check=False,
        env=options.environment(),
    )  # fmt: skip
    if done.returncode == 0:
        path.write_bytes(done.stdout)


def measured_of(prediction: Dict[str, str], records: List[Dict[str, Any]]) -> Optional[float]:
    """The median of the times measured of the call that a line of predictions.csv is about, in seconds; None if none was."""
    method = {"lsh": "lsh-1"}.get(prediction["method"], prediction["method"])
    found = sorted(
        record["time_median_ms"] / 1e3
        for record in records
        if record["outcome"] == "measured" and record["method"] in (method, prediction["method"])
        and all(record[name] == prediction[name] for name in ("dtype", "protocol"))
        and record["batch"] * record["heads"] == int(prediction["heads"])
        and record["query_len"] == record["key_len"] == int(prediction["length"])
        and record["head_dim"] == record["value_dim"] == 64 and record["causal"] and record["device"] == "cuda"
    )  # fmt: skip
    return found[len(found) // 2] if found else None


def write_predictions(options: Options, state: Dict[str, Any]) -> None:
    """Writes the predicted times of the calls that were measured beside the measured ones."""
    records = [r for folder in sorted((options.out / "results").glob("*")) for r in records_of(folder)]
    with (options.bundle / "predictions.csv").open(encoding="utf-8") as file:
        predictions = list(csv.DictReader(line for line in file if not line.startswith("#")))
    lines = [
        title_of(state), "",
        "The time of a call as predicted for an H100 SXM (docs/cuda-model.md), and as measured here. At best: the busiest part of the GPU "
        "works at its peak rate. Expected: it works at the share of it that is assumed to be achieved. Measured: the median. Where "
        "measured / expected is above 1, the call is slower than predicted. Heads are those of all sequences "
        "of the call.", "",
        "| call | heads | N | at best | expected | measured | measured / expected |", "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for p in predictions:
        time_s = measured_of(p, records)
        best, expected = float(p["best_s"]), float(p["expected_s"])
        if time_s is not None:
            name = f"{p['method']} {p['dtype']} {p['protocol'].replace('_', ' + ')}"
            lines.append(
                f"| {name} | {p['heads']} | {int(p['length']):,} | {time_text(best)} | {time_text(expected)} | {time_text(time_s)} "
                f"| {time_s / expected:.2f} |"
            )
    if len(lines) > 6:
        (options.out / "predictions.md").write_text("\n".join(lines) + "\n", "utf-8")


def write_summary(options: Options, state: Dict[str, Any]) -> None:
    lines = [title_of(state), "", "| step | outcome | seconds |", "|---|---|---|"]
    for name, step in state["steps"].items():
        reason = f": {step['reason']}" if step["reason"] else ""
        lines.append(f"| {name} | {step['outcome']}{reason.replace('|', '/')} | {step['seconds']:.0f} |")
    for path in sorted((options.out / "failures").glob("*.json")):
        failure = read_json(path, "what this program writes of a failure")
        what = "" if failure["bisected"] else " so far"
        lines += ["", f"**{failure['step']}**: {failure['error']}", "", f"The smallest case that fails{what}: "
                  f"`{measure_command(failure['smallest'])}`"]  # fmt: skip
    (options.out / "summary.md").write_text("\n".join(lines) + "\n", "utf-8")


def write_archive(folder: Path, archive: Path) -> None:
    """Packs the results into one file, for places that only few files come back from."""
    unfinished = archive.with_name(archive.name + ".new")
    with tarfile.open(unfinished, "w:gz") as tar:
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if path.is_file() and inside.parts[0] not in ("cache", "python-module") and path.resolve() != unfinished.resolve():
                if path.resolve() != archive.resolve():
                    tar.add(path, f"{folder.name}/{inside}", recursive=False)
    os.replace(unfinished, archive)


def write_environment(options: Options) -> None:
    """What other programs say about the machine."""
    for name, command in {
        "nvidia-smi.txt": ["nvidia-smi", "-q"],
        "processor.txt": ["lscpu"],
        "python.txt": [options.node.python or sys.executable, "-m", "pip", "freeze", "--disable-pip-version-check"],
    }.items():
        path = options.out / "environment" / name
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=20)
        except (OSError, subprocess.SubprocessError):
            continue
        if done.returncode == 0:
            path.write_bytes(done.stdout)


def print_plan(steps: List[Step]) -> None:
    print("Planned minutes on an H100; they are counted from the number of cases, and were not measured:")
    for step in steps:
        print(f"{step.minutes:6.2f}  {step.name}{': ' + step.missing if step.missing else ''}")
    print(f"{sum(step.minutes for step in steps if not step.missing):6.2f}  in all")


def report(options: Options, state: Dict[str, Any], outcomes: List[Tuple[Step, Dict[str, Any]]], archive: str) -> int:
    """Prints how the steps went, each of which comes with what the state says of it, and returns the exit code."""
    failed = [(step, known) for step, known in outcomes if known["outcome"] == "failed"]
    unfinished = [step for step, known in outcomes if known["outcome"] in (CUT, NOT_RUN)]
    for step, known in failed:
        print(f"gpu: {step.name}: failed, {known['reason']}", file=sys.stderr)
    for step, known in outcomes:
        if known["outcome"] == "missing":
            print(f"gpu: {step.name}: not run, {known['reason']}", file=sys.stderr)
    print(title_of(state))
    passed = sum(known["outcome"] == "passed" for _, known in outcomes)
    print(f"{options.out}: {passed} of {len(outcomes)} steps passed, {len(failed)} failed, {len(unfinished)} are left")
    if unfinished:
        print(f"the same command continues, with: {', '.join(step.name for step in unfinished[:5])}{', …' if len(unfinished) > 5 else ''}")
    if archive:
        print(f"{archive}: all results in one file")
    print(f"`attnbench merge {options.out.name}/results/SWEEP --out FOLDER` takes the records")
    return 1 if failed else 3 if unfinished else 0
