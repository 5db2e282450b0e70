"""The machine's measured ceilings, from the `environment.json` beside the records."""

import json
from dataclasses import dataclass
from pathlib import Path

from attnplots.records import RecordsError, short

FILE_NAME = "environment.json"
NUMBERS = ("read_gb_s", "copy_gb_s", "fma_float32_gflop_s", "fma_float64_gflop_s")


@dataclass(frozen=True)
class Ceilings:
    """The highest bandwidths and rates that were measured, and the number of threads used."""

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
    path = folder / FILE_NAME
    try:
        environment = json.loads(path.read_bytes().decode())
    except OSError as error:
        problem = error.strerror or type(error).__name__
        raise RecordsError(f"{path}: {problem}; expected a JSON object with `ceilings`")
    except (ValueError, RecursionError) as error:
        raise RecordsError(f"{path}: expected a JSON object with `ceilings`: {error}")
    found = environment.get("ceilings") if isinstance(environment, dict) else None
    if not isinstance(found, dict):
        raise RecordsError(f"{path}: expected an object in `ceilings`, found {short(found)}")
    for name in (*NUMBERS, "threads"):
        value = found.get(name)
        types, type_name = ((int,), "integer") if name == "threads" else ((int, float), "number")
        if type(value) not in types or not 0 < value < 1e300:
            what = f"expected a positive {type_name} in `ceilings.{name}`"
            raise RecordsError(f"{path}: {what}, found {short(value)}")
    return Ceilings(**{name: found[name] for name in (*NUMBERS, "threads")})
