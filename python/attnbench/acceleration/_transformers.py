"""Puts our operators into the places where the layers of transformers look for them.

transformers decorates each function for which kernels exist: the decorator chooses what runs when a
modelling module is imported, and keeps the choice in a closure, which layers may hold. All closures
run the same code object, so they are found by it wherever they are. What is replaced is the content
of their cells; the function objects stay the same, and whoever holds one gets ours.
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

# The names of what the closures of the tested version hold.
CELLS = {"applicable_params", "func_name", "implementation", "is_new_implementation", "package", "torch_function"}

_DELTA = "query, key, value, g, beta, chunk_size=64, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=False, **kwargs"
# By the name under which transformers looks for kernels: the parameters, in the tested version, of
# the function that the decorator decorates.
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


# The functions that _replace() makes of what would have run. They run the same code, but are none of transformers.
_COPIES: "weakref.WeakSet[FunctionType]" = weakref.WeakSet()


class SignatureError(ImportError):
    """An installed package has other functions than the version for which attnbench was tested."""


def parameters_of(function: Callable[..., Any]) -> str:
    """The names, order and defaults of the parameters of a function, without annotations."""

    def text(parameter: inspect.Parameter) -> str:
        plain = parameter.replace(annotation=inspect.Parameter.empty)
        if isinstance(plain.default, FunctionType):
            return f"{plain.name}={plain.default.__name__}"
        return str(plain)

    return ", ".join(map(text, inspect.signature(function).parameters.values()))


def check_signature(where: str, function: Callable[..., Any], tested: str, package: str, tested_version: str) -> None:
    """Raises SignatureError unless the parameters of the function are the tested ones."""
    found = parameters_of(function)
    if found != tested:
        raise SignatureError(
            f"attnbench.accelerate: {where} has other parameters than in {package} {tested_version}, with which this version "
            f"of attnbench was tested\n  found  {found}\n  tested {tested}\nNothing of it is replaced; install "
            f"{package}=={tested_version}, or do not call attnbench.accelerate"
        )


class _Everything:
    """Contains everything: the wrapper of transformers drops the keyword arguments that are not in its
    `applicable_params`."""

    def __contains__(self, name: object) -> bool:
        return True

    def __repr__(self) -> str:
        return "every argument"


def _inner_code(code: CodeType, name: str) -> CodeType:
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and constant.co_name == name:
            return constant
    raise SignatureError(
        f"attnbench.accelerate: `{code.co_name}` of transformers.integrations.hub_kernels defines no function `{name}`, as "
        f"that of transformers {TESTED_VERSION} does, with which this version of attnbench was tested"
    )


class Kernels:
    """The closures of transformers whose cells hold ours, as long as they do.

    Attributes:
        replaced: by operator: the functions in which it was replaced, such as
            transformers.models.qwen3_5.modeling_qwen3_5.torch_chunk_gated_delta_rule.
    """

    def __init__(self, undo: Undo) -> None:
        """Replaces what is imported already, and what will be until `undo` is called. Raises
        SignatureError, and has replaced nothing, if the installed version is not as tested."""
        self.replaced: dict[str, list[str]] = {}
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
        found = [f for f in gc.get_referrers(self._code) if self._is_closure(f) and f not in _COPIES]
        # gc.freeze(), which servers call before they fork, hides what was there before from gc.get_referrers().
        for module in list(sys.modules.values()):
            held = list(getattr(module, "__dict__", {}).values())
            found += [f for f in held if self._is_closure(f) and f not in _COPIES and all(f is not known for known in found)]
        for function in found:
            self._check(function)
        for function in found:
            self._replace(function)
        self._replace_in_later_imports(decorator)

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
        if name not in OPERATORS:
            return
        before = {key: cell.cell_contents for key, cell in cells.items()}
        # What would have run: the same code with cells of its own.
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
        # In this order ours never gets arguments from which those that the reference lacks, such as borders, are left out.
        for key, value in after.items():
            cells[key].cell_contents = value
        reference = before["torch_function"]
        self.replaced.setdefault(name, []).append(f"{reference.__module__}.{reference.__name__}")

        def restore() -> None:
            for key in reversed(after):
                cells[key].cell_contents = before[key]

        self._undo.add(restore)

    def _made(self, made: object) -> Iterator[FunctionType]:
        """The closures in what the decorator returned; where the package kernels is installed, that may be
        an object which holds them."""
        found, seen, ring = [], {id(made)}, [made]
        for _ in range(4):
            found += [x for x in ring if isinstance(x, FunctionType) and self._is_closure(x)]
            if found:
                break
            ring = [y for x in ring for y in gc.get_referents(x) if not isinstance(y, ModuleType)]
            ring = [y for y in ring if not (id(y) in seen or seen.add(id(y)))]  # type: ignore[func-returns-value]
        yield from found

    def _replace_in_later_imports(self, decorator: FunctionType) -> None:
        """Modelling modules import the decorator by its name from two modules."""

        is_active = True
        # So that no import replaces anything once the steps of undoing run. The lock of accelerate() may be held by a thread that
        # waits for the import.
        lock = threading.Lock()

        def accelerating(*args: Any, **kwargs: Any) -> Callable[[Callable[..., Any]], Any]:
            decorate = decorator(*args, **kwargs)

            def decorated(reference: Callable[..., Any]) -> Any:
                made = decorate(reference)
                # Somebody may hold this decorator longer than it is active.
                with lock:
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
            with lock:
                is_active = False
            # Modules that were imported meanwhile have ours under the name, too.
            for module in list(sys.modules.values()):
                if getattr(module, "__dict__", {}).get(DECORATOR) is accelerating:
                    setattr(module, DECORATOR, decorator)

        self._undo.add(restore)
