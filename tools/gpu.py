#!/usr/bin/env python3
"""Verifies and measures everything on a GPU within a number of minutes, and continues where the last call ended.

    python3 attnbench-gpu/gpu.py --minutes 25

`make gpu-bundle` makes the folder that this file lies in (docs/gpu.md). The file and the package
gpu_node beside it need Python 3.9 or newer and nothing else; the programs need the torch that they
were built for, which the node has. Nothing needs a network, and everything is written to the folder
of results alone, after each step at the latest.

Exit codes: 0 if every step passed, 1 if one failed, 2 if the machine is not fit for it (nothing is
run then), 3 if none failed and the time is up before the last step: the same command continues. 130
and 143 after SIGINT and SIGTERM.
"""

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import Any, List

sys.dont_write_bytecode = True  # the bundle is not written to, also where it could be

from gpu_node.files import UnfitError
from gpu_node.machine import check_kernels, find_gpu, find_node
from gpu_node.processes import Clock, Ended
from gpu_node.reporting import print_plan, report, title_of, write_environment, write_summary
from gpu_node.running import Run, run_steps
from gpu_node.steps import Options, bundle_facts, chosen_steps, steps_of

BUNDLE = Path(__file__).resolve().parent
MIN_MINUTES = 5


def parse(arguments: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu.py", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=25, help=f"how long this call may take, at least {MIN_MINUTES} (default: 25)")
    parser.add_argument("--out", default="attnbench-gpu-results", metavar="FOLDER",
                        help="folder of results; one that an earlier call has begun is continued (default: attnbench-gpu-results)")  # fmt: skip
    parser.add_argument("--torch", default=os.environ.get("ATTNBENCH_TORCH", ""), metavar="FOLDER",
                        help="folder of torch, such as …/site-packages/torch (default: ATTNBENCH_TORCH, or that of --python)")  # fmt: skip
    parser.add_argument("--python", default="", metavar="FILE", help="Python that has torch (default: the one that runs this file)")
    parser.add_argument("--archive", default="", metavar="FILE", help="also pack the results into this file after each step (.tar.gz)")
    parser.add_argument("--dry-run", action="store_true", help="list the steps with the minutes that are planned for each, and run none")
    parser.add_argument("--retry", action="store_true", help="run the steps that failed in an earlier call again")
    parser.add_argument("--only", action="append", default=[], metavar="STEP", help="run only the steps whose names begin so; can be repeated")
    parser.add_argument("--skip", action="append", default=[], metavar="STEP", help="leave out the steps whose names begin so; can be repeated")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="replace an axis or a setting in every sweep")
    parser.add_argument("--plugin", action="append", default=[], metavar="FILE", help="shared library with further methods to verify")
    parser.add_argument("--trial-seconds", type=float, default=30, metavar="S",
                        help="after so long a case whose smallest failing size is searched counts as hanging (default: 30)")  # fmt: skip
    return parser.parse_args(arguments)


def main(arguments: List[str]) -> int:
    chosen = parse(arguments)
    clock = Clock(chosen.minutes)

    def stop(number: int, _: Any) -> None:
        raise Ended(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    run = None
    try:
        facts = bundle_facts(BUNDLE)
        if not chosen.minutes >= (0 if facts["stand_in"] else MIN_MINUTES):  # a rehearsal may be shorter
            raise UnfitError(f"--minutes {chosen.minutes:g}; expected at least {MIN_MINUTES}")
        node = find_node(chosen.torch, chosen.python)
        options = Options(Path(chosen.out).resolve(), BUNDLE, node, facts["stand_in"], chosen.set,
                          [str(Path(p).resolve()) for p in chosen.plugin], chosen.trial_seconds)  # fmt: skip
        steps = chosen_steps(steps_of(options), chosen.only, chosen.skip)
        if chosen.dry_run:
            print_plan(steps)
            return 0
        gpu = find_gpu(facts["torch"]["cuda"])
        check_kernels(gpu, facts["kernels"])
        options.out.mkdir(parents=True, exist_ok=True)
        run = Run(options, clock, facts, gpu, chosen.archive)
        print(f"{title_of(run.state)}; {node.torch}", flush=True)
        write_environment(options)
        run_steps(run, steps, chosen.retry)
        write_summary(options, run.state)
        return report(options, run.state, [(step, run.of(step)) for step in steps], chosen.archive)
    except UnfitError as error:
        print(f"gpu: {error}", file=sys.stderr)
        return 2
    except Ended as ended:
        if run is not None:
            write_summary(run.options, run.state)
        print(f"gpu: ended by {signal.Signals(ended.number).name}; the same command continues", file=sys.stderr)
        return 128 + ended.number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
