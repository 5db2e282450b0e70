"""Gives each file of a method the modules of its own folder.

A method's file imports what lies beside it, as a script does. Two files in different folders may
have modules of the same name beside them, such as two versions of a method that both import
`helper`. The modules of a folder are therefore in `sys.modules` only while a method of that folder
is active. Modules that were found elsewhere, such as in site-packages, are shared by all methods.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


class Folder:
    """A folder that holds files of methods. At most one of them is active."""

    _all: dict[str, Folder] = {}
    _active: Folder | None = None

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_shared = path in sys.path  # for everybody, such as by PYTHONPATH
        self._modules: dict[str, Any] = {}  # while it is not active
        self._others: set[str] = set()  # the names of the modules that were there when it became active

    @classmethod
    def of(cls, path: Path) -> Folder:
        """The folder at this path, always the same object."""
        return cls._all.setdefault(str(path), cls(str(path)))

    def activate(self) -> None:
        """Makes imports, also those inside functions, find the modules of this folder first."""
        active = Folder._active
        if active is self:
            return
        if active is not None:
            active._deactivate()
        Folder._active = self
        if not self._is_shared:
            self._others = set(sys.modules)
            sys.modules.update(self._modules)
            sys.path.insert(0, self._path)

    def _deactivate(self) -> None:
        if self._is_shared:
            return
        own = {name for name in sys.modules if name not in self._others and self._is_found_here(name.partition(".")[0])}
        self._modules = {name: sys.modules.pop(name) for name in own}
        if self._path in sys.path:
            sys.path.remove(self._path)

    def _is_found_here(self, name: str) -> bool:
        """Whether the module of this name, which has no dot, was found in this folder itself."""
        module = sys.modules.get(name)
        packages = [str(Path(path).parent) for path in getattr(module, "__path__", ())]
        file = getattr(module, "__file__", None)
        return self._path in (packages or [str(Path(file).parent)] if file else packages)
