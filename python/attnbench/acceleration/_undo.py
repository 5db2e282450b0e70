"""What brings back the objects that were there before something was replaced."""

from collections.abc import Callable


class Undo:
    """Steps that undo what was done, in the reverse order."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], None]] = []

    def add(self, step: Callable[[], None]) -> None:
        self._steps.append(step)

    def run(self) -> None:
        """Runs all steps, also if one fails, and raises the first failure afterwards. A step that an
        interrupt ended, and those after it, stay, and run when this is called again; so steps may run twice."""
        failures: list[Exception] = []
        while self._steps:
            try:
                self._steps[-1]()
            except Exception as error:
                failures.append(error)
            self._steps.pop()
        if failures:
            raise failures[0]
