"""The machine's measured ceilings, from the `environment.json` beside the records."""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from attnplots.records import RecordsError, short

FILE_NAME = "environment.json"
NUMBERS = ("read_gb_s", "copy_gb_s", "fma_float32_gflop_s", "fma_float64_gflop_s")


@dataclass(frozen=True)
class Ceilings:
    """Bandwidths and rates, the medians of those that each round measured, and the number of
    threads used."""

    read_gb_s: float
    copy_gb_s: float
    fma_float32_gflop_s: float
    fma_float64_gflop_s: float
    threads: int

    def rate(self, dtype: str) -> float:
        """The highest rate in GFLOP/s; dtypes narrower than float32 have the rate of float32."""
        return self.fma_float64_gflop_s if dtype == "float64" else self.fma_float32_gflop_s

    def roof(self, intensity: float, dtype: str) -> float:
        """The rate in GFLOP/s that the roofline model allows at `intensity` operations per byte."""
        return min(self.rate(dtype), self.copy_gb_s * intensity)


def load(folder: Path) -> Ceilings:
    """The ceilings in the `environment.json` of `folder`; raises RecordsError if one is missing."""
    path, environment = read_environment(folder)
    found = environment.get("ceilings")
    if not isinstance(found, dict):
        raise RecordsError(f"{path}: expected an object in `ceilings`, found {short(found)}")
    for name in (*NUMBERS, "threads"):
        _check(path, f"ceilings.{name}", found.get(name), integer=name == "threads")
    rounds = environment.get("ceilings_of_rounds") or [found]
    rates = {name: rate_of_rounds(path, rounds, name) for name in NUMBERS}
    return Ceilings(**rates, threads=found["threads"])


def read_environment(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The path of the `environment.json` of `folder`, and the object in it."""
    path = folder / FILE_NAME
    try:
        environment = json.loads(path.read_bytes().decode())
    except OSError as error:
        problem = error.strerror or type(error).__name__
        raise RecordsError(f"{path}: {problem}; expected a JSON object with `ceilings`")
    except (ValueError, RecursionError) as error:
        raise RecordsError(f"{path}: expected a JSON object with `ceilings`: {error}")
    if not isinstance(environment, dict):
        raise RecordsError(f"{path}: expected an object in `ceilings`, found null")
    return path, environment


def rate_of_rounds(path: Path, rounds: Any, name: str) -> float:
    """The median of a ceiling over the rounds of a sweep, as `ceilings_of_rounds` has them."""
    if not isinstance(rounds, list) or not rounds:
        what = "expected a list in `ceilings_of_rounds`"
        raise RecordsError(f"{path}: {what}, found {short(rounds)}")
    values = []
    for index, measured in enumerate(rounds):
        value = measured.get(name) if isinstance(measured, dict) else measured
        values.append(_check(path, f"ceilings_of_rounds[{index}].{name}", value))
    return median(values)


def _check(path: Path, name: str, value: Any, *, integer: bool = False) -> float:
    types, type_name = ((int,), "integer") if integer else ((int, float), "number")
    if type(value) not in types or not 0 < value < 1e300:
        what = f"expected a positive {type_name} in `{name}`"
        raise RecordsError(f"{path}: {what}, found {short(value)}")
    return value
