"""The machine's measured ceilings, from the `environment.json` beside the records."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from attnplots.records.json_lines import RecordsError, short
from attnplots.records.text import count_of

FILE_NAME = "environment.json"
NUMBERS = ("read_gb_s", "copy_gb_s", "fma_float32_gflop_s", "fma_float64_gflop_s")
AVX2 = "fma_float32_avx2_gflop_s"
# The rate of matrix products of a GPU, in the object `gpu` of the ceilings. Those of float32 may use TF32.
MATMUL = "matmul_{}_gflop_s"
GPU_DTYPES = ("float64", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Ceilings:
    """Rates, the medians of those that each round measured, and the number of threads used.

    `lowest` and `highest` have the extremes of the rounds by the name of the column, and `rounds` is
    the number of rounds. The rate of AVX2 is None where it was not measured.
    """

    read_gb_s: float
    copy_gb_s: float
    fma_float32_gflop_s: float
    fma_float64_gflop_s: float
    threads: int
    fma_float32_avx2_gflop_s: float | None = None
    rounds: int = 1
    lowest: dict[str, float] = field(default_factory=dict)
    highest: dict[str, float] = field(default_factory=dict)

    device = "cpu"
    operations = "multiply-adds"

    def rate(self, dtype: str) -> float:
        """The highest rate in GFLOP/s; dtypes narrower than float32 have the rate of float32."""
        return self.fma_float64_gflop_s if dtype == "float64" else self.fma_float32_gflop_s

    def words(self, dtype: str) -> str:
        """Where the rate of a dtype comes from, as the end of a sentence."""
        name = "fma_float64_gflop_s" if dtype == "float64" else "fma_float32_gflop_s"
        threads = f" on {count_of(self.threads, 'thread')}"
        return _words(self.rounds, self.lowest, self.highest, name, threads)


@dataclass(frozen=True)
class GpuCeilings:
    """Rates of large matrix products of a GPU, as Ceilings has those of the processor, by the name of the column."""

    median: dict[str, float]
    lowest: dict[str, float]
    highest: dict[str, float]
    rounds: int

    device = "cuda"
    operations = "large matrix products"
    fma_float32_avx2_gflop_s = None

    def rate(self, dtype: str) -> float:
        """The highest rate of a dtype in GFLOP/s."""
        return self.median[MATMUL.format(dtype)]

    def words(self, dtype: str) -> str:
        """Where the rate of a dtype comes from, as the end of a sentence."""
        return _words(self.rounds, self.lowest, self.highest, MATMUL.format(dtype), "")


def _words(rounds: int, lowest: dict[str, float], highest: dict[str, float], name: str, threads: str) -> str:
    if rounds < 2:
        return f"measured once, before the sweep,{threads}".rstrip(",")
    span = f"{lowest[name]:.0f} to {highest[name]:.0f} GFLOP/s"
    return f"the median of those measured in the same {rounds} rounds{threads} ({span})"


def load(folder: Path) -> Ceilings:
    """The ceilings in the `environment.json` of `folder`; raises RecordsError if one is missing."""
    path, found, rounds = _measured(folder)
    for name in (*NUMBERS, "threads"):
        _check(path, f"ceilings.{name}", found.get(name), integer=name == "threads")
    values = {name: values_of_rounds(path, rounds, name) for name in NUMBERS}
    if all(isinstance(one, dict) and one.get(AVX2) is not None for one in rounds):
        values[AVX2] = values_of_rounds(path, rounds, AVX2)
    return Ceilings(
        **{name: median(each) for name, each in values.items()}, threads=found["threads"],
        rounds=len(rounds), lowest={name: min(each) for name, each in values.items()},
        highest={name: max(each) for name, each in values.items()},
    )  # fmt: skip


def load_gpu(folder: Path) -> GpuCeilings:
    """The same for the GPU, whose ceilings are in the object `gpu`."""
    path, found, rounds = _measured(folder)
    gpus = [measured.get("gpu") if isinstance(measured, dict) else measured for measured in rounds]
    for gpu in [found.get("gpu"), *gpus]:
        if not isinstance(gpu, dict) or "unavailable" in gpu:
            why = gpu["unavailable"] if isinstance(gpu, dict) else f"found {short(gpu)}"
            raise RecordsError(f"{path}: expected the ceilings of a GPU in `ceilings.gpu`: {why}")
    names = [MATMUL.format(dtype) for dtype in GPU_DTYPES]
    values = {name: values_of_rounds(path, gpus, name) for name in names}
    return GpuCeilings(
        median={name: median(each) for name, each in values.items()},
        lowest={name: min(each) for name, each in values.items()},
        highest={name: max(each) for name, each in values.items()},
        rounds=len(rounds),
    )


def _measured(folder: Path) -> tuple[Path, dict[str, Any], Any]:
    """The path of `environment.json`, and the ceilings in it: the first, and those of each round."""
    path, environment = read_environment(folder)
    found = environment.get("ceilings")
    if not isinstance(found, dict):
        raise RecordsError(f"{path}: expected an object in `ceilings`, found {short(found)}")
    return path, found, environment.get("ceilings_of_rounds") or [found]


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
    return median(values_of_rounds(path, rounds, name))


def values_of_rounds(path: Path, rounds: Any, name: str) -> list[float]:
    """A ceiling in each round of a sweep, as `ceilings_of_rounds` has them."""
    if not isinstance(rounds, list) or not rounds:
        what = "expected a list in `ceilings_of_rounds`"
        raise RecordsError(f"{path}: {what}, found {short(rounds)}")
    values = []
    for index, measured in enumerate(rounds):
        value = measured.get(name) if isinstance(measured, dict) else measured
        values.append(_check(path, f"ceilings_of_rounds[{index}].{name}", value))
    return values


def _check(path: Path, name: str, value: Any, *, integer: bool = False) -> float:
    types, type_name = ((int,), "integer") if integer else ((int, float), "number")
    if type(value) not in types or not 0 < value < 1e300:
        what = f"expected a positive {type_name} in `{name}`"
        raise RecordsError(f"{path}: {what}, found {short(value)}")
    return value
