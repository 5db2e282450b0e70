"""Measures attention methods from Python, such as from a notebook, with the program `attnbench`."""

import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from attnbench import _program
from attnbench._records import frame_of, plotting_module

# Exit codes of `attnbench measure` after which it has printed a record: measured or skipped, and
# failed.
_WITH_RECORD = (0, 1)


class MeasureError(RuntimeError):
    """`attnbench measure` gave no record; the message is the program's own."""


def measure(
    method: str | Callable[..., Any],
    *,
    options: Mapping[str, object] | None = None,
    **settings: object,
) -> pd.Series | pd.DataFrame:
    """Measures an attention method with `attnbench measure`, in a process of its own.

        attnbench.measure("linear", query_len=4096, causal=True)
        attnbench.measure("mine.py:attention", options={"window": 256}, query_len=[1024, 2048])

    The method is first compared with its float64 reference. A wrong result, a crash or a case that
    does not fit into memory raises no exception: the record says so in `outcome`, `failure_kind` and
    `reason`. A function that declares no reference needs `options={"like": "softmax"}` to be
    compared; otherwise its record is marked as unverified.

    Args:
        method: the name of a method, as `attnbench list` shows it; the file and the name of a
            function, such as "mine.py:attention"; or a function of a module, which the process can
            import from its file.
        options: options of the method by name, which is another way to write them behind its name;
            None is `none`. A function in Python has the options `like`, the method whose reference
            it is compared with, and `as`, its label in tables and figures.
        settings: axes and settings of the case by the names of columns, such as query_len=4096,
            causal=True or dtype="bfloat16"; `attnbench measure --help` lists them. Where values are
            lists, each combination is measured.

    Returns:
        The record as a Series with the names of columns as its index; if a value is a list, a data
        frame of records as `attnbench.records` returns it.

    Raises:
        MeasureError: the method, an option or a setting is unknown or wrong, or the program did not
            end as it should.
        ValueError: a function cannot be found by a name in a file; the message says how to save it
            to one.
    """
    spec = method if isinstance(method, str) else name_of_function(method)
    if options:
        # A method and its options are parted by a colon, and options by commas.
        joined = ",".join(f"{name}={_text(value)}" for name, value in options.items())
        spec += f",{joined}" if _has_options(spec) else f":{joined}"
    several = any(isinstance(value, (list, tuple)) for value in settings.values())
    lists = [value if isinstance(value, (list, tuple)) else [value] for value in settings.values()]
    cases = [dict(zip(settings, values, strict=True)) for values in itertools.product(*lists)]
    # The columns are asked of the program too, so that a missing program is reported by _record().
    measured = [_record(spec, case) for case in cases]
    frame = frame_of(measured, plotting_module("records.schema").current().columns)
    return frame if several else frame.astype(object).iloc[0].rename(spec)


def name_of_function(function: Callable[..., Any]) -> str:
    """The file and the name of a function, as `attnbench` takes them: "…/mine.py:attention".

    Raises ValueError if a process that imports the file would not find this function there by that
    name.
    """
    name = getattr(function, "__qualname__", None)
    if name is None:
        raise _refusal(f"the object of type {type(function).__name__} has no name of its own", "attention")
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if "<lambda>" in name:
        raise _refusal("a lambda has no name", "attention")
    if "<locals>" in name:
        raise _refusal(f"{name} is defined inside a function", name.rpartition(".")[2])
    if module is None or module.__name__ == "__main__" or file is None or not file.endswith(".py"):
        raise _refusal(f"{name} is not defined in a module that is imported from a file", name)
    if getattr(module, name, None) is not function:
        raise _refusal(f"{name} in {file} is another object than the one given", name)
    return f"{Path(file).resolve()}:{name}"


def _refusal(problem: str, name: str) -> ValueError:
    return ValueError(
        f"{problem}, so the process that measures it cannot import it; save it to a file, in a "
        "notebook with\n"
        f"    %%writefile mine.py\n"
        f"as the first line of the cell that defines it, and measure 'mine.py:{name}'"
    )


def _has_options(spec: str) -> bool:
    """Whether options follow the name of a method or of a function in a file."""
    file, function = spec.rfind(".py:"), spec.rfind(":")
    return function > (-1 if file < 0 else file + len(".py"))


def _text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _record(method: str, settings: Mapping[str, object]) -> dict[str, Any]:
    """The record of one case."""
    command = [str(_program.program()), "measure", "--format=json"]
    for name, value in settings.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            command.append(option)
        elif value is not False and value is not None:
            command.append(f"{option}={_text(value)}")
    code, printed, said = _run([*command, "--", method])
    try:
        record = json.loads(printed) if code in _WITH_RECORD else None
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise MeasureError(
            said.removeprefix("attnbench: ") or f"`attnbench measure` ended with exit code {code}"
        )
    if said:
        print(said, file=sys.stderr)
    return record


def _run(command: list[str]) -> tuple[int, str, str]:
    """The exit code of a command, and what it wrote to standard output and standard error."""
    process = subprocess.Popen(
        command, env=_program.environment(), encoding="utf-8", errors="backslashreplace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        printed, said = process.communicate()
    except BaseException:
        # A notebook interrupts its kernel alone. The program ends its workers when it is
        # interrupted.
        process.send_signal(signal.SIGINT)
        process.communicate()
        raise
    return process.returncode, printed, said.strip()
