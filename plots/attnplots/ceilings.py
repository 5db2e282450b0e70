"""The machine's measured ceilings, from the `environment.json` beside the records."""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from attnplots.records import RecordsError, short

FILE_NAME = "environment.json"
NUMBERS = ("read_gb_s", "copy_gb_s", "fma_float32_gflop_s", "fma_float64_gflop_s")
# Those of a GPU, in the object `gpu` of the ceilings. Matrix products of float32 may use TF32.
MATMUL = "matmul_{}_gflop_s"
GPU_NUMBERS = ("copy_gb_s", *(MATMUL.format(t) for t in ("float64", "float32", "float16", "bfloat16")))


@dataclass(frozen=True)
class Ceilings:
    """Bandwidths and rates, the medians of those that each round measured, and the number of
    threads used."""

    read_gb_s: float
    copy_gb_s: float
    fma_float32_gflop_s: float
    fma_float64_gflop_s: float
    threads: int

    device = "cpu"
    prefix, in_gflop_s = "G", 1.0  # of the units of the figure
    kernels = "CPU kernels of this project"

    @property
    def bandwidth(self) -> float:
        """The bandwidth that limits the roof."""
        return self.copy_gb_s

    @property
    def bandwidths(self) -> dict[str, float]:
        """The slopes of the roof by their names."""
        return {"copy": self.copy_gb_s, "read": self.read_gb_s}

    @property
    def how(self) -> str:
        """How the roof was measured."""
        return (
            f"The roof was measured on {self.threads} thread{'' if self.threads == 1 else 's'}: the flat top is the "
            "rate of multiply-adds, the slope the bandwidth of copying (thin line: of reading) data "
            "much larger than the caches. Short lengths may fit into the caches. Percentages are "
            "shares of the thick line at the longest length."
        )

    def rate(self, dtype: str) -> float:
        """The highest rate in GFLOP/s; dtypes narrower than float32 have the rate of float32."""
        return self.fma_float64_gflop_s if dtype == "float64" else self.fma_float32_gflop_s

    def rate_name(self, dtype: str) -> str:
        return f"{self.rate_dtype(dtype)} multiply-add"

    def rate_dtype(self, dtype: str) -> str:
        """The dtype whose rate counts for `dtype`."""
        return "float64" if dtype == "float64" else "float32"

    def roof(self, intensity: float, dtype: str) -> float:
        """The rate in GFLOP/s that the roofline model allows at `intensity` operations per byte."""
        return min(self.rate(dtype), self.copy_gb_s * intensity)


@dataclass(frozen=True)
class GpuCeilings:
    """The bandwidth and the rates of matrix products by dtype of a GPU, the medians of the rounds, in
    TB/s and TFLOP/s."""

    copy_tb_s: float
    rates: dict[str, float]

    device = "cuda"
    prefix, in_gflop_s = "T", 1e3
    kernels = "CUDA kernels of this project"

    @property
    def bandwidths(self) -> dict[str, float]:
        return {"copy": self.bandwidth}

    @property
    def bandwidth(self) -> float:
        """The bandwidth that limits the roof."""
        return self.copy_tb_s

    @property
    def how(self) -> str:
        return (
            "The roof was measured on the GPU: the flat top is the rate of large matrix products, which for float32 use "
            "TF32, the slope the bandwidth of copying data much larger than the caches. Percentages are shares of the "
            "roof at the longest length."
        )

    def rate(self, dtype: str) -> float:
        return self.rates[dtype]

    def rate_name(self, dtype: str) -> str:
        return f"{dtype} matrix product"

    def rate_dtype(self, dtype: str) -> str:
        return dtype

    def roof(self, intensity: float, dtype: str) -> float:
        return min(self.rate(dtype), self.bandwidth * intensity)


def load(folder: Path) -> Ceilings:
    """The ceilings in the `environment.json` of `folder`; raises RecordsError if one is missing."""
    path, found, rounds = _measured(folder)
    for name in (*NUMBERS, "threads"):
        _check(path, f"ceilings.{name}", found.get(name), integer=name == "threads")
    rates = {name: rate_of_rounds(path, rounds, name) for name in NUMBERS}
    return Ceilings(**rates, threads=found["threads"])


def load_gpu(folder: Path) -> GpuCeilings:
    """The same for the GPU, whose ceilings are in the object `gpu`."""
    path, found, rounds = _measured(folder)
    gpus = [measured.get("gpu") if isinstance(measured, dict) else measured for measured in rounds]
    for gpu in [found.get("gpu"), *gpus]:
        if not isinstance(gpu, dict) or "unavailable" in gpu:
            why = gpu["unavailable"] if isinstance(gpu, dict) else f"found {short(gpu)}"
            raise RecordsError(f"{path}: expected the ceilings of a GPU in `ceilings.gpu`: {why}")
    rates = {name: rate_of_rounds(path, gpus, name) for name in GPU_NUMBERS}
    by_dtype = {dtype: rates[MATMUL.format(dtype)] / 1e3 for dtype in ("float64", "float32", "float16", "bfloat16")}
    return GpuCeilings(rates["copy_gb_s"] / 1e3, by_dtype)


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
