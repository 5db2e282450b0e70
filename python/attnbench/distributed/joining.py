"""Measures with ranks that torchrun or srun has started. This process is one of them.

All processes run the same command and make the same list of measurements; rank 0 writes the records. A rank that
fails ends; the others fail at their next exchange with it, at the latest when the deadline has passed.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attnbench.distributed.rank import ENVIRONMENT, Disagreement, Request, measure

_VARIABLES = {
    "torchrun": ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    "slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_STEP_ID"),
}


@dataclass
class Joined:
    """This process as one of the ranks that a launcher has started.

    Attributes:
        rank, size: the number of this rank, and the number of ranks.
        init: how the ranks find each other, an init_method of torch.distributed without the number of the measurement at its end.
        measured: the number of measurements so far.
    """

    rank: int
    size: int
    init: str
    measured: int = 0

    def measure(self, request: Request) -> dict[str, Any]:
        """Measures `request`, whose rank, ranks and init are set here. Returns what `rank.measure` returns, or {"failure": …} as
        `launch.run` does."""
        own = replace(request, rank=self.rank, ranks=self.size, init=f"{self.init}{self.measured}")
        self.measured += 1
        try:
            return measure(own)
        except Disagreement as error:
            return {"failure": {"kind": "disagreed", "rank": self.rank, "message": str(error)}}
        except (RuntimeError, ValueError) as error:
            # torch.distributed has no error type of its own for a timeout.
            kind = "timed_out" if "imed out" in str(error) or "imeout" in str(error) else "crashed"
            message = f"rank {self.rank} of {self.size}: {type(error).__name__}: {error}"
            return {"failure": {"kind": kind, "rank": self.rank, "message": message}}


def ranks_of(launcher: str, out: Path, environment: Mapping[str, str] = os.environ) -> Joined:
    """This process as one of the ranks that `launcher` has started: "torchrun", or "slurm" for srun. The ranks of srun find each
    other by a file in the folder `out`, which must be the same folder for all. Raises ValueError if a variable of the launcher is
    missing from the environment, or is no number where one is expected."""
    missing = [name for name in _VARIABLES[launcher] if name not in environment]
    if missing:
        program = "srun" if launcher == "slurm" else launcher
        raise ValueError(f"--join {launcher}: {', '.join(missing)} is not set, which {program} sets for the processes that it starts")

    def number(name: str) -> int:
        try:
            return int(environment[name])
        except ValueError:
            raise ValueError(f"--join {launcher}: {name} is {environment[name]!r}, expected a number") from None

    rank, size = map(number, _VARIABLES[launcher][:2])
    if launcher == "torchrun":
        return Joined(rank, size, ENVIRONMENT)
    step = "-".join(environment.get(name, "0") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"))
    out.mkdir(parents=True, exist_ok=True)
    return Joined(rank, size, f"file://{out.resolve()}/.ranks-{step}-")
