"""Running the steps, with a state that says how each went."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

from gpu_node.failures import bisect_all, note_failures
from gpu_node.files import UnfitError, read_json, records_of, write_json
from gpu_node.machine import Gpu
from gpu_node.processes import Clock, end, start
from gpu_node.reporting import CUT, NOT_RUN, RUNNING, write_archive, write_predictions, write_summary, write_table
from gpu_node.steps import Options, Step, write_module_source

STATE = "state.json"
MAX_LOG_BYTES = 1 << 20


class Run:
    """The folder of results, in which state.json says how each step went."""

    def __init__(self, options: Options, clock: Clock, facts: Dict[str, Any], gpu: Gpu, archive: str):
        self.options, self.clock, self.archive = options, clock, archive
        self.path = options.out / STATE
        self.own = {
            "revision": facts["revision"], "dirty": facts["dirty"], "gpu": gpu.name, "torch": facts["torch"]["version"],
            "stand_in": facts.get("stand_in", ""),
        }  # fmt: skip
        self.state: Dict[str, Any] = {"version": 1, **self.own, "driver": gpu.driver, "calls": [], "steps": {}}
        if self.path.exists():
            self.state = read_json(self.path, "the state that an earlier call wrote; choose another folder with --out")
            self.check()
        for step in self.state["steps"].values():
            if step["outcome"] == RUNNING:  # the call was killed
                step["outcome"], step["reason"] = CUT, "the call ended while it ran"
        self.state["calls"].append({"host": os.uname().nodename, "begun_at": now()})
        self.save()

    def check(self) -> None:
        """Refuses results of another bundle or GPU, which records of this one must not be mixed with."""
        if self.state.get("version") != 1 or not isinstance(self.state.get("steps"), dict):
            raise UnfitError(f"{self.path} has version {self.state.get('version')!r}; expected 1, which this program writes")
        different = [
            f"{name} {self.state.get(name)!r} there, {value!r} here" for name, value in self.own.items() if self.state.get(name) != value
        ]
        if different:
            raise UnfitError(f"{self.path} is of another run: {'; '.join(different)}; expected another folder in --out")

    def save(self) -> None:
        write_json(self.path, self.state)

    def of(self, step: Step) -> Dict[str, Any]:
        """What the state says of a step."""
        known: Dict[str, Any] = self.state["steps"].setdefault(
            step.name, {"outcome": NOT_RUN, "reason": "", "exit_code": None, "seconds": 0.0, "attempts": 0}
        )
        return known

    def passed(self, name: str) -> bool:
        return bool(self.state["steps"].get(name, {}).get("outcome") == "passed")

    def run(self, step: Step, limit_s: float) -> None:
        """Runs a step, ended after `limit_s` or when the time of the call is up."""
        known, options = self.of(step), self.options
        log = options.out / "logs" / f"{step.safe_name}.txt"
        output = options.out / step.output if step.output else log
        (options.out / "counters").mkdir(exist_ok=True)
        for path in (log, output):
            path.parent.mkdir(parents=True, exist_ok=True)
        source = options.out / "inputs" / f"{step.safe_name}.json"
        if step.input:
            source.parent.mkdir(exist_ok=True)
            source.write_text(step.input, "utf-8")
        if step.name == "python-methods":
            write_module_source(options)
        known.update(outcome=RUNNING, reason="", exit_code=None, attempts=known["attempts"] + 1, begun_at=now())
        self.save()
        print(f"=== {step.name}", flush=True)
        begin = time.monotonic()
        limit_s, of_call = min((limit_s, False), (self.clock.left_s(), True))
        outcome, reason = CUT, "the call was ended"
        try:
            # What a cut attempt printed stays, since the next one may be cut, too.
            with log.open("ab") as told, output.open("wb" if step.output else "ab") as printed:
                with open(source if step.input else os.devnull, "rb") as given:
                    child = start(step.command, options, stdin=given, stdout=printed, stderr=told,
                                  env={**options.environment(), **step.environment})  # fmt: skip
                try:
                    known["exit_code"] = child.wait(max(1.0, limit_s))
                    outcome = "passed" if known["exit_code"] == 0 else "failed"
                    reason = "" if outcome == "passed" else f"exit code {known['exit_code']}"
                except subprocess.TimeoutExpired:
                    end(child)
                    if of_call:
                        reason = "the time was up"
                    elif step.sweep:
                        reason = f"its {limit_s:.0f} s were up; the rest follows after the other steps"
                    else:
                        outcome, reason = "failed", f"ended after {limit_s:.0f} s; it was planned to take {60 * step.minutes:.0f}"
                except BaseException:
                    end(child)
                    raise
            if outcome == "passed" and step.sweep:
                why = why_unmeasured(options.out / "results" / step.sweep)
                outcome, reason = ("failed", why) if why else (outcome, reason)
        except OSError as error:
            outcome, reason = "failed", str(error)
        finally:
            known.update(outcome=outcome, reason=reason, seconds=round(known["seconds"] + time.monotonic() - begin, 1))
            shorten(log)
            self.save()
        print(f"=== {step.name}: {outcome}{', ' + reason if reason else ''}, {time.monotonic() - begin:.0f} s", flush=True)
        if outcome == "failed":
            print(log.read_text("utf-8", "replace")[-1500:], file=sys.stderr, flush=True)

    def after(self, step: Step) -> None:
        """Takes down what failed in a step, and writes what its results say."""
        note_failures(self.options, step)
        if step.sweep:
            write_table(self.options, step.sweep)
            write_predictions(self.options, self.state)
        write_summary(self.options, self.state)
        if self.archive:
            write_archive(self.options.out, Path(self.archive))


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def shorten(log: Path) -> None:
    data = log.read_bytes() if log.exists() else b""
    if len(data) > MAX_LOG_BYTES:
        log.write_bytes(b"[the beginning was left out]\n" + data[-MAX_LOG_BYTES:])


def why_unmeasured(folder: Path) -> str:
    """The reason why no record of a sweep is measured, which the sweep itself does not call a failure. Empty if one is."""
    records = records_of(folder)
    if any(record["outcome"] == "measured" for record in records):
        return ""
    return f"no case was measured: {records[0].get('reason') if records else 'there is no record'}"


def run_steps(run: Run, steps: List[Step], retry: bool) -> None:
    """Runs what has not ended yet, in order. What was cut twice, and the rest of sweeps, come after the other steps."""
    again = [NOT_RUN, CUT, "missing", *(["failed"] if retry else [])]
    open_steps = [step for step in steps if run.of(step)["outcome"] in again]
    late = [step for step in open_steps if run.of(step)["attempts"] >= 2 and run.of(step)["outcome"] == CUT]
    bisect_all(run.options, run.clock)
    for turn, todo in enumerate(([step for step in open_steps if step not in late], open_steps)):
        for step in todo:
            known = run.of(step)
            if turn == 1 and known["outcome"] != CUT:
                continue
            if run.clock.left_s() < run.clock.min_left_s:
                return
            known["reason"] = step.missing
            if not step.missing and step.needs and not run.passed(step.needs):
                known["reason"] = f"the step {step.needs} did not pass"
            if known["reason"]:
                known["outcome"] = "missing"
                print(f"=== {step.name}: not run, {known['reason']}", flush=True)
                run.save()
                continue
            limit_s = run.clock.left_s() if turn == 1 and step.sweep else step.limit_s()
            run.run(step, limit_s)
            run.after(step)
            bisect_all(run.options, run.clock)
