"""Restores the objects that were replaced."""

from collections.abc import Callable


class Undo:
    """Functions that each undo one replacement; they are called in the reverse of the order in which they were added."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], None]] = []

    def add(self, step: Callable[[], None]) -> None:
        self._steps.append(step)

    def run(self) -> None:
        """Calls all steps, even if one raises an exception, and raises the first exception afterwards. If a
        KeyboardInterrupt ends a step, this step and the remaining ones stay, and another call of run() calls
        them; so a step must allow being called twice."""
        failures: list[Exception] = []
        while self._steps:
            try:
                self._steps[-1]()
            except Exception as error:
                failures.append(error)
            self._steps.pop()
        if failures:
            raise failures[0]
