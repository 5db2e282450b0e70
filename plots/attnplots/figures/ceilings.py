"""The rates that the machine was measured to reach at most, from the `environment.json` beside the records."""

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from attnplots.records import environment
from attnplots.records.text import RecordsError, count_of, short

FLOAT32, FLOAT64, AVX2 = "fma_float32_gflop_s", "fma_float64_gflop_s", "fma_float32_avx2_gflop_s"
# The rate of matrix products of a GPU, in the object `gpu` of the ceilings. Those of float32 may use TF32.
MATMUL = "matmul_{}_gflop_s"
GPU_DTYPES = ("float64", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Ceilings:
    """The highest rates of a device in GFLOP/s, as each round of the sweep measured them, by the name of the column.

    `operations` says of what, and `where` on how many threads. `columns` are those of dtypes, where dtypes narrower than float32
    have the rate of float32 if they have no column.
    """

    device: str
    operations: str
    rounds: dict[str, list[float]]
    columns: dict[str, str]
    where: str = ""

    def rate(self, dtype: str) -> float:
        """The highest rate of a dtype."""
        return median(self.rounds[self._column(dtype)])

    def avx2_rate(self) -> float | None:
        """That of float32 with the instruction set AVX2; None where it was not measured."""
        return median(self.rounds[AVX2]) if AVX2 in self.rounds else None

    def words(self, dtype: str) -> str:
        """Where the rate of a dtype comes from, as the end of a sentence."""
        rates = self.rounds[self._column(dtype)]
        if len(rates) < 2:
            return f"measured once, before the sweep,{self.where}".rstrip(",")
        span = f"{min(rates):.0f} to {max(rates):.0f} GFLOP/s"
        return f"the median of those measured in the same {len(rates)} rounds{self.where} ({span})"

    def _column(self, dtype: str) -> str:
        return self.columns.get(dtype, self.columns["float32"])


def load(folder: Path) -> Ceilings:
    """The ceilings in the `environment.json` of `folder`; raises RecordsError if one is missing."""
    path, found, rounds = _measured(folder)
    threads = found.get("threads")
    if type(threads) is not int or threads <= 0:
        raise RecordsError(f"{path}: expected a positive integer in `ceilings.threads`, found {short(threads)}")
    has_avx2 = all(isinstance(one, dict) and one.get(AVX2) is not None for one in rounds)
    names = (FLOAT32, FLOAT64, *([AVX2] if has_avx2 else []))
    values = {name: values_of_rounds(path, rounds, name) for name in names}
    columns = {"float32": FLOAT32, "float64": FLOAT64}
    return Ceilings("cpu", "multiply-adds", values, columns, f" on {count_of(threads, 'thread')}")


def load_gpu(folder: Path) -> Ceilings:
    """The same for the GPU, whose ceilings are in the object `gpu`."""
    path, found, rounds = _measured(folder)
    gpus = [measured.get("gpu") if isinstance(measured, dict) else measured for measured in rounds]
    for gpu in [found.get("gpu"), *gpus]:
        if not isinstance(gpu, dict) or "unavailable" in gpu:
            why = gpu["unavailable"] if isinstance(gpu, dict) else f"found {short(gpu)}"
            raise RecordsError(f"{path}: expected the ceilings of a GPU in `ceilings.gpu`: {why}")
    columns = {dtype: MATMUL.format(dtype) for dtype in GPU_DTYPES}
    values = {name: values_of_rounds(path, gpus, name) for name in columns.values()}
    return Ceilings("cuda", "large matrix products", values, columns)


def _measured(folder: Path) -> tuple[Path, dict[str, Any], Any]:
    """The path of `environment.json`, and the ceilings in it: the first, and those of each round."""
    path, said = folder / environment.FILE_NAME, environment.read(folder)
    found = said.get("ceilings")
    if not isinstance(found, dict):
        raise RecordsError(f"{path}: expected an object in `ceilings`, found {short(found)}")
    return path, found, said.get("ceilings_of_rounds") or [found]


def values_of_rounds(path: Path, rounds: Any, name: str) -> list[float]:
    """A ceiling in each round of a sweep, as `ceilings_of_rounds` has them."""
    if not isinstance(rounds, list) or not rounds:
        what = "expected a list in `ceilings_of_rounds`"
        raise RecordsError(f"{path}: {what}, found {short(rounds)}")
    values = [measured.get(name) if isinstance(measured, dict) else measured for measured in rounds]
    for index, value in enumerate(values):
        if type(value) not in (int, float) or not 0 < value < 1e300:
            what = f"expected a positive number in `ceilings_of_rounds[{index}].{name}`"
            raise RecordsError(f"{path}: {what}, found {short(value)}")
    return values
