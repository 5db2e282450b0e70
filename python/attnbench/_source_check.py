"""Finds mistakes in the files of attention functions without importing the files or torch, which
takes seconds.

The driver runs this file before it starts a worker: it reads a JSON list of [path of the file, name
of the function] from standard input and prints a list with the message about each mistake, or null.
A message is the one that importing the file would lead to. Where the source alone does not tell what
the import would do, there is no message, and the worker finds out.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import sys
import traceback
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # run by its path, without the package's folder in sys.path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from attnbench import _signature
from attnbench._signature import MethodError

# A source with one of these names can define or change names in ways that its assignments do not show.
DYNAMIC = {"globals", "vars", "locals", "exec", "eval", "setattr", "delattr", "__getattr__", "__dict__", "modules"}


class Undecided(Exception):
    """The source alone does not tell."""


class _Unknown:
    """A value that only the import computes. A message that would show it cannot be written."""

    def __repr__(self) -> str:
        raise Undecided


class _Module:
    """What the source of a file says about the names that the file defines."""

    def __init__(self, tree: ast.Module) -> None:
        if any(_name_in(node) in DYNAMIC for node in ast.walk(tree)):
            raise Undecided
        self.imports: dict[str, str] = {}  # by name: what was imported, such as "torch.Tensor"
        self.values: dict[str, list[ast.expr | ast.stmt]] = {}  # by name: all that it is bound to
        self.bound_elsewhere: set[str] = set()  # names that are, or may be, bound in other ways
        self.has_text_annotations = False
        for statement in tree.body:
            if not _is_main_block(statement):
                self._add(statement)

    def _add(self, statement: ast.stmt) -> None:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self.values.setdefault(statement.name, []).append(statement)
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                self.imports[alias.asname or alias.name.split(".")[0]] = alias.name if alias.asname else alias.name.split(".")[0]
        elif isinstance(statement, ast.ImportFrom):
            if statement.module == "__future__":
                self.has_text_annotations |= any(alias.name == "annotations" for alias in statement.names)
            for alias in statement.names:
                if alias.name == "*":
                    raise Undecided
                self.imports[alias.asname or alias.name] = f"{statement.module}.{alias.name}"
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    self.values.setdefault(target.id, []).append(statement.value)
                else:
                    self.bound_elsewhere |= _bound_names(target)
            self.bound_elsewhere |= _bound_names(statement.value)
        else:
            self.bound_elsewhere |= _bound_names(statement)
        for node in ast.walk(statement):
            if isinstance(node, ast.Global):
                self.bound_elsewhere |= set(node.names)

    def functions(self) -> list[str]:
        """The names of the functions that may be attention, in the order of their definition."""
        names = []
        for name, values in self.values.items():
            value = values[-1]
            is_plain = isinstance(value, (ast.FunctionDef, ast.AsyncFunctionDef)) and self._is_plain(value)
            if is_plain or isinstance(value, ast.Lambda):
                if not name.startswith("_"):
                    names.append(name)
            elif isinstance(value, ast.ClassDef):
                if value.decorator_list:
                    raise Undecided
            elif not _is_literal(value):
                raise Undecided
        if self.bound_elsewhere:
            raise Undecided
        return names

    def _is_plain(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """Whether the name stands for the function as it is written: it has no decorator but
        attnbench.method, which returns the function itself."""
        return all(
            isinstance(decorator, ast.Call) and self._resolved(decorator.func) == "attnbench.method"
            for decorator in function.decorator_list
        )

    def _resolved(self, node: ast.expr) -> str | None:
        """The full name of what an expression such as `torch.Tensor` names, if it was imported."""
        if isinstance(node, ast.Attribute):
            before = self._resolved(node.value)
            return before and f"{before}.{node.attr}"
        if isinstance(node, ast.Name) and node.id not in self.values and node.id not in self.bound_elsewhere:
            return self.imports.get(node.id)
        return None

    def check(self, path: str, name: str) -> None:
        """Raises MethodError if the name stands for no attention function."""
        if not name.isidentifier() or name in self.bound_elsewhere or name in self.imports:
            raise Undecided
        if name not in self.values:
            raise _signature.missing(str(Path(path)), name, self.functions())
        if len(self.values[name]) > 1:
            raise Undecided
        (value,) = self.values[name]
        if isinstance(value, ast.expr) and _is_literal(value):
            literal = ast.literal_eval(value)
            if literal is not None:  # a name that is None counts as missing
                raise _signature.no_function(str(Path(path)), name, type(literal).__name__)
        if not isinstance(value, (ast.FunctionDef, ast.AsyncFunctionDef)) or not self._is_plain(value):
            raise Undecided
        _signature.Signature(f"{path}:{name}", self._signature(value))

    def _signature(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> inspect.Signature:
        kinds, given = inspect.Parameter, function.args
        positional = given.posonlyargs + given.args
        defaults: list[ast.expr | None] = [*[None] * (len(positional) - len(given.defaults)), *given.defaults]
        parameters = [
            self._parameter(argument, kinds.POSITIONAL_ONLY if i < len(given.posonlyargs) else kinds.POSITIONAL_OR_KEYWORD, default)
            for i, (argument, default) in enumerate(zip(positional, defaults, strict=True))
        ]
        if given.vararg:
            parameters.append(self._parameter(given.vararg, kinds.VAR_POSITIONAL, None))
        for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
            parameters.append(self._parameter(argument, kinds.KEYWORD_ONLY, default))
        if given.kwarg:
            parameters.append(self._parameter(given.kwarg, kinds.VAR_KEYWORD, None))
        return inspect.Signature(parameters, return_annotation=self._annotation(function.returns))

    def _parameter(self, argument: ast.arg, kind: Any, default: ast.expr | None) -> inspect.Parameter:
        value: Any = inspect.Parameter.empty
        if default is not None:
            value = ast.literal_eval(default) if _is_literal(default) else _Unknown()
        return inspect.Parameter(argument.arg, kind, default=value, annotation=self._annotation(argument.annotation))

    def _annotation(self, node: ast.expr | None) -> Any:
        """An annotation that is shown in a signature as the one in the source."""
        if node is None:
            return inspect.Parameter.empty
        if self.has_text_annotations:
            return ast.unparse(node)
        if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, str)):
            return node.value
        if isinstance(node, ast.Name) and node.id not in {*self.values, *self.imports, *self.bound_elsewhere}:
            known = getattr(builtins, node.id, None)
            if isinstance(known, type):
                return known
        if self._resolved(node) == "torch.Tensor":
            return type("Tensor", (), {"__module__": "torch", "__qualname__": "Tensor"})
        return _Unknown()


def _name_in(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return getattr(node, "name", None)


def _is_main_block(statement: ast.stmt) -> bool:
    """Whether it is `if __name__ == "__main__":`, which an import does not run."""
    return (
        isinstance(statement, ast.If)
        and not statement.orelse
        and isinstance(statement.test, ast.Compare)
        and isinstance(statement.test.left, ast.Name)
        and statement.test.left.id == "__name__"
        and isinstance(statement.test.ops[0], ast.Eq)
    )


def _is_literal(node: ast.AST) -> bool:
    try:
        ast.literal_eval(node)  # type: ignore[arg-type]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _bound_names(node: ast.AST) -> set[str]:
    """All names that are bound somewhere inside a statement or an expression."""
    names = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
            names.add(part.id)
        elif isinstance(part, ast.alias):
            if part.name == "*":
                raise Undecided
            names.add(part.asname or part.name.split(".")[0])
        elif isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
            names |= {part.name} if part.name else set()
        elif isinstance(part, ast.MatchMapping):
            names |= {part.rest} if part.rest else set()
    return names


def mistake_in(path: str, name: str) -> str | None:
    """The message about the function `name` of the file, or None if the source has no mistake that
    shows without importing it."""
    try:
        try:
            source = Path(path).read_bytes()
        except OSError as error:
            raise _signature.unreadable(path, error) from None
        resolved = str(Path(path).resolve())
        try:
            tree = ast.parse(source, resolved)
            compile(source, resolved, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            text = "".join(traceback.format_exception(type(error), error, None))
            raise _signature.unimportable(resolved, text) from None
        _Module(tree).check(path, name)
    except MethodError as mistake:
        return str(mistake)
    except (Undecided, RecursionError, MemoryError):
        pass
    return None


if __name__ == "__main__":
    json.dump([mistake_in(path, name) for path, name in json.load(sys.stdin)], sys.stdout)
