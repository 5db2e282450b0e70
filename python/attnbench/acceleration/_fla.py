"""Registers our operators as backends of flash-linear-attention (the package fla-core), whose own
kernels are written in Triton and do not run on CPUs. It accepts backends for the three functions in
TESTED."""

import importlib
import importlib.metadata
import inspect
from collections.abc import Callable
from typing import Any

import torch

from attnbench import recurrent
from attnbench.acceleration._counters import COUNTERS, PassOn
from attnbench.acceleration._operators import require_plain_cpu
from attnbench.acceleration._transformers import SignatureError, check_signature
from attnbench.acceleration._undo import Undo

TESTED_VERSION = "0.6.0"
BACKEND = "attnbench"

# By function that dispatches to backends: the module that defines it, and its tested parameters.
_STATE = "scale=None, initial_state=None, output_final_state=False"
TESTED = {
    "chunk_gated_delta_rule": (
        "fla.ops.gated_delta_rule.chunk",
        f"q, k, v, g, beta, {_STATE}, use_qk_l2norm_in_kernel=False, use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, "
        "state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None, chunk_indices=None, cp_context=None, **kwargs",
    ),
    "chunk_kda": (
        "fla.ops.kda.chunk",
        f"q, k, v, g, beta, {_STATE}, use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False, "
        "allow_neg_eigval=False, safe_gate=False, lower_bound=None, disable_recompute=False, return_intermediate_states=False, "
        "state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None, cp_context=None, use_graph=False, max_num_seqs=None, **kwargs",
    ),
    "fused_recurrent_simple_gla": (
        "fla.ops.simple_gla.fused_recurrent",
        f"q, k, v, g=None, g_gamma=None, {_STATE}, reverse=False, state_v_first=False, cu_seqlens=None, **kwargs",
    ),
}  # fmt: skip
# Functions that look up their backends by the name of an operation, and that name; the others use the function itself.
OPERATIONS = {"chunk_gated_delta_rule": "gated_delta_rule"}

# Parameters of our functions that must be None or False; any other value raises ValueError.
_REFUSED = ("cp_context", "use_graph", "return_intermediate_states", "reverse", "transpose_state_layout")


def register_backends(undo: Undo) -> str:
    """Registers the backends until `undo` runs, and returns a phrase that says for which functions of which
    version, or why for none. Raises SignatureError if the functions are not those of the tested version."""
    try:
        version = importlib.metadata.version("fla-core")
    except importlib.metadata.PackageNotFoundError:
        return "nothing of fla, of which no distribution fla-core is installed"
    try:
        backends = importlib.import_module("fla.backends")
        functions = {name: getattr(importlib.import_module(module), name) for name, (module, _) in TESTED.items()}
    except Exception as error:  # for example because Triton is not installed
        return f"nothing of fla-core {version}, which cannot be imported here ({type(error).__name__}: {error})"
    for name in ("register", "BaseBackend", "_get_operation_registry", "_function_registries"):
        if not hasattr(backends, name):
            raise SignatureError(
                f"attnbench.accelerate: fla.backends has no {name}, as that of fla-core {TESTED_VERSION} has, with which this "
                "version of attnbench was tested"
            )
    for name, function in functions.items():
        module, tested = TESTED[name]
        check_signature(f"{module}.{name}", inspect.unwrap(function), tested, "fla-core", TESTED_VERSION)
    for name, function in functions.items():
        _register(backends, name, function, undo)
    return f"{', '.join(functions)} of fla-core {version}"


def _register(backends: Any, name: str, function: Callable[..., Any], undo: Undo) -> None:
    ours = getattr(recurrent, name)
    accepted = inspect.signature(ours).parameters

    def verify(*args: Any, **kwargs: Any) -> tuple[bool, str | None]:
        try:
            require_plain_cpu(*(x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)))
            for key, value in inspect.signature(ours).bind(*args, **kwargs).arguments.items():
                given = value if key == "others" else {key: value}
                for argument, what in given.items():
                    unknown = argument in _REFUSED or argument not in accepted
                    if unknown and what is not None and what is not False:
                        raise PassOn(f"the argument {argument}")
        except (PassOn, TypeError) as why:
            COUNTERS.count_passed_on(f"fla {name}", str(why))
            return False, str(why)
        return True, None

    def implementation(self: Any, *args: Any, **kwargs: Any) -> Any:
        del self
        result = ours(*args, **kwargs)
        COUNTERS.count_served(f"fla {name}")
        return result

    def verifier(self: Any, *args: Any, **kwargs: Any) -> tuple[bool, str | None]:
        del self
        return verify(*args, **kwargs)

    members = {"backend_type": BACKEND, "priority": -1, name: implementation, f"{name}_verifier": verifier}
    operation = OPERATIONS.get(name)
    registry = (
        backends._get_operation_registry(operation)
        if operation
        else backends._function_registries[inspect.unwrap(function)]
    )
    before = dict(registry._backends)
    backends.register(operation or function)(type("AttnbenchBackend", (backends.BaseBackend,), members))

    def restore() -> None:
        if BACKEND in before:
            registry._backends[BACKEND] = before[BACKEND]
        else:
            registry._backends.pop(BACKEND, None)

    undo.add(restore)
