"""Replaces functions of transformers by our operators.

transformers decorates each function for which kernels exist. When a modelling module is imported, the
decorator chooses which kernel runs, and keeps the choice in the closure that it returns; layers may hold
references to that closure. All these closures share one code object, by which they are found. What is
replaced is the content of their cells: the function objects stay the same, so that every holder of a
reference calls our operator.
"""

import gc
import importlib
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from attnbench.acceleration._operators import OPERATORS, dispatching
from attnbench.acceleration._undo import Undo

DECORATOR = "use_kernel_func_from_hub_with_fallback"
TESTED_VERSION = "5.23.0"

# The names of the variables that the closures of the tested version hold.
CELLS = {"applicable_params", "func_name", "implementation", "is_new_implementation", "package", "torch_function"}

_DELTA = "query, key, value, g, beta, chunk_size=64, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=False, **kwargs"
# The parameters, in the tested version, of the functions that the decorator decorates, by the name under which transformers looks
# for kernels.
TESTED = {
    "causal_conv1d_fn": "hidden_states, weight, bias=None, activation=None, **kwargs",
    "causal_conv1d_update": "hidden_states, conv_state, weight, bias=None, activation=None",
    "chunk_gated_delta_rule": _DELTA,
    "chunk_kda": _DELTA,
    "fused_recurrent_gated_delta_rule": _DELTA.replace("chunk_size=64, ", ""),
    "fused_recurrent_kda": (
        "query, key, value, g, beta, initial_state, output_final_state, use_qk_l2norm_in_kernel=False, **kwargs"
    ),
    "mamba_chunk_scan_combined": (
        "hidden_states, dt, A, B, C, chunk_size, D=None, dt_bias=None, initial_states=None, dt_softplus=False, "
        "dt_limit=(0.0, inf), return_final_states=False, **kwargs"
    ),
    "mamba_split_conv1d_scan_combined": (
        "zxbcdt, conv1d_weight, conv1d_bias, dt_bias, A, D, chunk_size, initial_states=None, dt_limit=(0.0, inf), "
        "return_final_states=False, activation='silu', rmsnorm_weight=None, rmsnorm_eps=1e-06, outproj_weight=None, "
        "outproj_bias=None, headdim=None, ngroups=1, norm_before_gate=True, **kwargs"
    ),
    "selective_state_update": (
        "state, hidden_states, dt, A, B, C, D=None, dt_bias=None, dt_softplus=False, z=None, **kwargs"
    ),
}


# The copies that _replace() makes of closures. They have the same code object, but must not be replaced themselves.
_COPIES: "weakref.WeakSet[FunctionType]" = weakref.WeakSet()


class SignatureError(ImportError):
    """The functions of an installed package differ from those of the version with which attnbench was tested."""


def parameters_of(function: Callable[..., Any]) -> str:
    """The names, order and defaults of the parameters of a function, without annotations."""

    def text(parameter: inspect.Parameter) -> str:
        plain = parameter.replace(annotation=inspect.Parameter.empty)
        if isinstance(plain.default, FunctionType):
            return f"{plain.name}={plain.default.__name__}"
        return str(plain)

    return ", ".join(map(text, inspect.signature(function).parameters.values()))


def check_signature(where: str, function: Callable[..., Any], tested: str, package: str, tested_version: str) -> None:
    """Raises SignatureError unless parameters_of(function) is `tested`. `where` names the function in the message."""
    found = parameters_of(function)
    if found != tested:
        raise SignatureError(
            f"attnbench.accelerate: {where} has other parameters than in {package} {tested_version}, with which this version "
            f"of attnbench was tested\n  found  {found}\n  tested {tested}\nIt is not replaced; install "
            f"{package}=={tested_version}, or do not call attnbench.accelerate"
        )


class _Everything:
    """A container that contains everything. As `applicable_params` of a closure it keeps the closure from dropping
    keyword arguments that are not parameters of the reference implementation."""

    def __contains__(self, name: object) -> bool:
        return True

    def __repr__(self) -> str:
        return "every argument"


def _inner_code(code: CodeType, name: str) -> CodeType:
    """The code of the function `name` that a function with `code` defines. Raises SignatureError if it defines none."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and constant.co_name == name:
            return constant
    raise SignatureError(
        f"attnbench.accelerate: `{code.co_name}` of transformers.integrations.hub_kernels defines no function `{name}`, as "
        f"that of transformers {TESTED_VERSION} does, with which this version of attnbench was tested"
    )


class Kernels:
    """Replaces the content of the closures of transformers by our operators.

    Attributes:
        replaced: by operator the names of the functions that were replaced, such as
            transformers.models.qwen3_5.modeling_qwen3_5.torch_chunk_gated_delta_rule.
    """

    def __init__(self, undo: Undo) -> None:
        """Replaces the functions of modules that are imported already, and of those that are imported until
        `undo` runs. Raises SignatureError if the installed version differs from the tested one; `undo` must
        run then, too."""
        self.replaced: dict[str, list[str]] = {}
        # Held while functions are searched or replaced. The lock of accelerate() cannot be used for that, because a thread that holds
        # it may be waiting for an import of another thread.
        self._lock = threading.RLock()
        self._undo = undo
        self._hub = importlib.import_module("transformers.integrations.hub_kernels")
        decorator = getattr(self._hub, DECORATOR, None)
        if not isinstance(decorator, FunctionType):
            raise SignatureError(
                f"attnbench.accelerate: transformers.integrations.hub_kernels has no function {DECORATOR}, as transformers "
                f"{TESTED_VERSION} has, with which this version of attnbench was tested"
            )
        self._code = _inner_code(_inner_code(decorator.__code__, "decorator"), "wrapped")
        if set(self._code.co_freevars) != CELLS:
            raise SignatureError(
                f"attnbench.accelerate: the functions that {DECORATOR} makes hold {sorted(self._code.co_freevars)}, but "
                f"{sorted(CELLS)} in transformers {TESTED_VERSION}, with which this version of attnbench was tested"
            )
        # The decorator is replaced first, so that no module that another thread imports meanwhile is missed, and restored first.
        restore_decorator = self._replace_in_later_imports(decorator)
        try:
            with self._lock:
                self._replace_in_imported_modules()
        finally:
            self._undo.add(restore_decorator)

    def _replace_in_imported_modules(self) -> None:
        found = [f for f in gc.get_referrers(self._code) if self._is_closure(f) and f not in _COPIES]
        # gc.get_referrers() does not see objects that existed before a call of gc.freeze(), which servers make before they fork.
        for module in list(sys.modules.values()):
            held = list(getattr(module, "__dict__", {}).values())
            found += [f for f in held if self._is_closure(f) and f not in _COPIES and all(f is not known for known in found)]
        for function in found:
            self._check(function)
        for function in found:
            self._replace(function)

    def _is_closure(self, x: object) -> bool:
        return type(x) is FunctionType and x.__code__ is self._code

    def _cells(self, function: FunctionType) -> dict[str, CellType]:
        return dict(zip(self._code.co_freevars, function.__closure__ or (), strict=True))

    def _check(self, function: FunctionType) -> None:
        cells = self._cells(function)
        name = cells["func_name"].cell_contents
        if name in OPERATORS:
            reference = cells["torch_function"].cell_contents
            where = f"{reference.__module__}.{reference.__qualname__}"
            check_signature(where, reference, TESTED[name], "transformers", TESTED_VERSION)

    def _replace(self, function: FunctionType) -> None:
        cells = self._cells(function)
        name = cells["func_name"].cell_contents
        # The decorator may have replaced a function before the search found it.
        if name not in OPERATORS or isinstance(cells["applicable_params"].cell_contents, _Everything):
            return
        before = {key: cell.cell_contents for key, cell in cells.items()}
        # A copy with cells of its own, which runs what would have run without accelerate().
        theirs = FunctionType(
            function.__code__,
            function.__globals__,
            function.__name__,
            function.__defaults__,
            tuple(CellType(before[key]) for key in self._code.co_freevars),
        )
        _COPIES.add(theirs)
        package = before["package"] if before["is_new_implementation"] else None
        after = {
            "applicable_params": _Everything(),
            "implementation": dispatching(name, OPERATORS[name], theirs, package),
            "is_new_implementation": True,
        }
        # applicable_params is replaced first, so that no call reaches our operator after the closure has dropped arguments such as
        # those of packed sequences.
        for key, value in after.items():
            cells[key].cell_contents = value
        reference = before["torch_function"]
        self.replaced.setdefault(name, []).append(f"{reference.__module__}.{reference.__name__}")

        def restore() -> None:
            for key in reversed(after):
                cells[key].cell_contents = before[key]

        self._undo.add(restore)

    def _made(self, made: object) -> Iterator[FunctionType]:
        """The closures in what the decorator returned. If the package `kernels` is installed, that may be an object
        that refers to them, over up to three references."""
        found, seen, ring = [], {id(made)}, [made]
        for _ in range(4):
            found += [x for x in ring if isinstance(x, FunctionType) and self._is_closure(x)]
            if found:
                break
            ring = [y for x in ring for y in gc.get_referents(x) if not isinstance(y, ModuleType)]
            ring = [y for y in ring if not (id(y) in seen or seen.add(id(y)))]  # type: ignore[func-returns-value]
        yield from found

    def _replace_in_later_imports(self, decorator: FunctionType) -> Callable[[], None]:
        """Replaces the decorator in the two modules from which modelling modules import it, so that functions which it decorates
        later are replaced as well. Returns the function that restores it."""

        is_active = True  # After restore() has set it to False, no import may replace anything.

        def accelerating(*args: Any, **kwargs: Any) -> Callable[[Callable[..., Any]], Any]:
            decorate = decorator(*args, **kwargs)

            def decorated(reference: Callable[..., Any]) -> Any:
                made = decorate(reference)
                # A module may keep this decorator after restore().
                with self._lock:
                    for function in self._made(made) if is_active else ():
                        self._check(function)
                        self._replace(function)
                return made

            return decorated

        places = [self._hub]
        integrations = importlib.import_module("transformers.integrations")
        getattr(integrations, DECORATOR)  # A lazy module gets the attribute when it is first used.
        places.append(integrations)
        for place in places:
            setattr(place, DECORATOR, accelerating)

        def restore() -> None:
            nonlocal is_active
            with self._lock:
                is_active = False
            # Modules that were imported meanwhile hold our decorator, too.
            for module in list(sys.modules.values()):
                if getattr(module, "__dict__", {}).get(DECORATOR) is accelerating:
                    setattr(module, DECORATOR, decorator)

        return restore
