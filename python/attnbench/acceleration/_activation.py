"""Switches our operators on and off, for the whole process."""

import importlib.metadata
import importlib.util
import sys
import threading
from types import TracebackType

from attnbench.acceleration._counters import COUNTERS, Report
from attnbench.acceleration._undo import Undo

# Guards _active and _undo. It is reentrant, because a modelling module that this thread imports while it holds the lock may call
# accelerate().
_LOCK = threading.RLock()
_active: "set[Acceleration]" = set()
_undo = Undo()


class Acceleration:
    """One request that our operators be used, which ends with `undo()` or with the `with` block.

    Attributes:
        summary: one line about what is replaced in which versions.
    """

    def __init__(self, summary: str) -> None:
        self.summary = summary

    def undo(self) -> None:
        """Ends the request. When the last active request ends, all objects that were replaced are restored."""
        with _LOCK:
            _active.discard(self)
            if not _active:  # A second call after an interrupt (Ctrl-C) runs the remaining steps.
                _undo.run()

    def __enter__(self) -> "Acceleration":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.undo()

    def __repr__(self) -> str:
        return f"<{'active' if self in _active else 'undone'}: {self.summary}>"


def accelerate(*, quiet: bool = False) -> Acceleration:
    """Has models of transformers and flash-linear-attention call our operators with CPU tensors.

        with attnbench.accelerate():
            model.generate(…)

    Replaces operators in modelling modules that are imported already, wherever references to them are
    held, and in those that are imported later. Also registers the attention implementation "attnbench",
    which models choose with `model.set_attn_implementation("attnbench")`. A call that our operators
    cannot take is passed on to the function that would have run without `accelerate`;
    `attnbench.accelerate.report()` counts both kinds of calls.

    This concerns all threads of the process. Without `with`, it lasts until `undo()` of the result is
    called. Requests may be nested; when the last one ends, also by an exception, the objects that were
    replaced are restored.

    Args:
        quiet: True to write nothing to stderr. Otherwise the first of nested requests writes a line that
            says what is replaced in which versions.

    Raises:
        ImportError: neither package is installed.
        SignatureError: an installed version has functions with other parameters than the tested one.
            The message names the difference; nothing is replaced. While a request is active, the import of a
            modelling module whose functions have other parameters raises it as well.
    """
    with _LOCK:
        if _active:
            request = Acceleration(next(iter(_active)).summary)
        else:
            try:
                request = Acceleration(_replace())
                COUNTERS.clear()
                if not quiet:
                    print(f"attnbench: {request.summary}", file=sys.stderr)
            except BaseException:
                _undo.run()
                raise
        _active.add(request)
        return request


def report() -> Report:
    """The number of calls that our operators served and passed on, by operator, with the reasons. They are
    counted from the beginning of the outermost active request or, if none is active, were counted during the
    last one."""
    return COUNTERS.report()


accelerate.report = report  # type: ignore[attr-defined]


def _replace() -> str:
    """Replaces the operators of all installed packages, and returns the line that `summary` holds."""
    parts = []
    if importlib.util.find_spec("transformers") is not None:
        from attnbench.acceleration import _lightning, _softmax, _transformers

        kernels = _transformers.Kernels(_undo)
        _lightning.replace_lightning_attention(_undo)
        _softmax.register_softmax(_undo)
        count = sum(map(len, kernels.replaced.values()))
        parts.append(
            f"{', '.join(_transformers.OPERATORS)} and {_lightning.NAME} of transformers "
            f"{importlib.metadata.version('transformers')} (in {count} imported functions and in later imports), attention "
            f"implementation {_softmax.NAME!r}"
        )
    if importlib.util.find_spec("fla") is not None:
        from attnbench.acceleration import _fla

        parts.append(_fla.register_backends(_undo))
    if not parts:
        raise ImportError(
            "attnbench.accelerate needs transformers or fla-core, and neither is installed; pip install 'attnbench[models]' "
            "installs transformers"
        )
    return "on CPUs now computes " + "; ".join(parts)
