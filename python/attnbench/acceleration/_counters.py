"""Counts the calls that our operators serve, and those that they pass on, with the reasons."""

import threading
from dataclasses import dataclass, field

import torch


class PassOn(Exception):
    """Raised by an adapter that cannot take a call, before it has changed anything. Its message is the
    reason."""


@dataclass(frozen=True)
class Report:
    """What happened to the calls of the operators that `accelerate` replaces.

    Attributes:
        served: by operator the number of calls that our operators computed.
        passed_on: by operator and by reason the number of calls that the function computed which would have
            run without `accelerate`.
    """

    served: dict[str, int] = field(default_factory=dict)
    passed_on: dict[str, dict[str, int]] = field(default_factory=dict)

    def __str__(self) -> str:
        names = sorted({*self.served, *self.passed_on})
        if not names:
            return "no operator has been called"
        lines = []
        for name in names:
            reasons = self.passed_on.get(name, {})
            lines.append(f"{name}: {self.served.get(name, 0)} served, {sum(reasons.values())} passed on")
            lines += [f"    {count} × {reason}" for reason, count in sorted(reasons.items())]
        return "\n".join(lines)


class Counters:
    """Counters that several threads may use. Calls that torch.compile traces are not counted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._served: dict[str, int] = {}
        self._passed_on: dict[str, dict[str, int]] = {}

    def count_served(self, name: str) -> None:
        if torch.compiler.is_compiling():
            return
        with self._lock:
            self._served[name] = self._served.get(name, 0) + 1

    def count_passed_on(self, name: str, reason: str) -> None:
        if torch.compiler.is_compiling():
            return
        with self._lock:
            reasons = self._passed_on.setdefault(name, {})
            reasons[reason] = reasons.get(reason, 0) + 1

    def clear(self) -> None:
        with self._lock:
            self._served.clear()
            self._passed_on.clear()

    def report(self) -> Report:
        with self._lock:
            return Report(dict(self._served), {name: dict(reasons) for name, reasons in self._passed_on.items()})


COUNTERS = Counters()
