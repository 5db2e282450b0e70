"""Our operators with the parameters that the layers of transformers use.

Each function takes the arguments of the function of transformers with the same role, computes the same,
and raises PassOn for a call that our operator cannot take. Layers pass further arguments by keyword:
those in NEUTRAL cannot change the result, those that describe packed sequences are respected, and any
other one whose value is neither None nor False raises PassOn, so that no argument is silently dropped.

Shapes, dtypes and units are those of attnbench.recurrent and attnbench.convolution. A ValueError or
TypeError from there also passes the call on.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnbench import recurrent
from attnbench.acceleration._counters import COUNTERS, PassOn

# Names of keyword arguments that layers pass to all of their functions and that cannot change the results of these. They say
# what the model returns, how its loss is computed, and what softmax attention derives from positions.
NEUTRAL = frozenset(
    {
        "num_items_in_batch", "output_hidden_states", "output_attentions", "output_router_logits", "return_dict",
        "use_cache", "cu_seq_lens_k", "max_length_q", "max_length_k", "position_ids", "cache_position",
        "logits_to_keep", "position_embeddings", "labels", "shift_labels", "ignore_index",
    }
)  # fmt: skip

_NO_TRITON = (
    "attnbench passed this call on, because its operator cannot take it ({reason}); the function that transformers has "
    "chosen instead, `{function}` of the package {package}, does not run on a CPU"
)


def require_plain_cpu(*tensors: Tensor | None) -> None:
    """Raises PassOn unless all tensors are on the CPU and of no subclass of Tensor but Parameter, and no transformation of
    torch.func is active."""
    for tensor in tensors:
        if tensor is None:
            continue
        if tensor.device.type != "cpu":
            raise PassOn(f"a tensor is on {tensor.device.type}")
        if type(tensor) not in (Tensor, torch.nn.Parameter):
            raise PassOn(f"a tensor is a {type(tensor).__name__}")
    if torch._C._are_functorch_transforms_active():
        raise PassOn("a transformation of torch.func is active")


# For packed sequences in a call that our operator cannot take.
MIXES_SEQUENCES = "{name}: attnbench cannot take this call ({reason}), and what would run in its place does not keep packed sequences apart"


def _refuse(arguments: dict[str, Any]) -> None:
    """Raises PassOn for an argument that may change the result and is neither None nor False."""
    for name, value in arguments.items():
        if value is not None and value is not False and name not in NEUTRAL:
            raise PassOn(f"the argument {name}")


def take_borders(batch: int, length: int, arguments: dict[str, Any]) -> Tensor | None:
    """Removes the arguments that describe packed sequences from `arguments`. Returns the cumulative lengths of
    the N sequences, int64 [N+1], or None if there are no such arguments. Raises PassOn if they contradict each
    other."""
    number = arguments.pop("seq_idx", None)
    given = [arguments.pop(name, None) for name in ("cu_seqlens", "cu_seq_lens_q")]
    found = [lengths.to(torch.int64) for lengths in given if lengths is not None]
    if number is not None:
        if batch != 1 or list(number.shape) != [1, length]:
            raise PassOn(f"seq_idx of shape {list(number.shape)} in a batch of {batch}, expected [1, {length}] in a batch of 1")
        changes = (number[0, 1:] != number[0, :-1]).nonzero().flatten() + 1
        found.append(torch.cat([changes.new_zeros(1), changes, changes.new_full((1,), length)]))
    if any(not torch.equal(borders, found[0]) for borders in found):
        raise PassOn("arguments that describe different packed sequences")
    return found[0] if found else None


def separates_sequences(arguments: dict[str, Any]) -> bool:
    """Whether the arguments describe two packed sequences or more, on the CPU."""
    given = {
        name: value
        for name in ("cu_seqlens", "cu_seq_lens_q", "seq_idx")
        if isinstance(value := arguments.get(name), Tensor) and value.device.type == "cpu"
    }
    numbers = given.pop("seq_idx", None)
    return any(len(borders) > 2 for borders in given.values()) or (numbers is not None and bool((numbers != numbers[..., :1]).any()))


def _has_lengths(arguments: dict[str, Any]) -> bool:
    return any(arguments.get(name) is not None for name in ("cu_seqlens", "cu_seq_lens_q"))


def _delta_rule(operator: Callable[..., Any]) -> Callable[..., Any]:
    """A function of attnbench.recurrent with the delta rule, with the parameters with which layers call its chunked form."""

    def call(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        g: Tensor,
        beta: Tensor,
        chunk_size: int = 64,
        initial_state: Tensor | None = None,
        output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False,
        **others: Any,
    ) -> Any:
        del chunk_size
        require_plain_cpu(query, key, value, g, beta, initial_state)
        borders = take_borders(*value.shape[:2], others)
        _refuse(others)
        return operator(
            query, key, value, g, beta, initial_state=initial_state, output_final_state=output_final_state,
            use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel, cu_seqlens=borders,
        )  # fmt: skip

    return call


def _without_chunk_size(chunked: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with the parameters of the recurrent form, which has no chunk_size."""

    def call(query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, *others: Any, **named: Any) -> Any:
        return chunked(query, key, value, g, beta, 64, *others, **named)

    return call


def mamba_chunk_scan_combined(
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    **others: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    require_plain_cpu(hidden_states, dt, A, B, C, D, dt_bias, initial_states)
    batch, length = hidden_states.shape[:2]
    seq_idx = None
    if batch > 1 and not _has_lengths(others):  # Each entry may have borders of its own.
        seq_idx = others.pop("seq_idx", None)
    elif (borders := take_borders(batch, length, others)) is not None:
        if batch != 1 or int(borders[-1]) != length:
            raise PassOn(f"cumulative lengths of {int(borders[-1])} tokens in a batch of {batch} × {length}")
        seq_idx = torch.repeat_interleave(torch.arange(len(borders) - 1), borders.diff())[None]
    _refuse(others)
    # The function of transformers that this replaces computes and returns float32, whatever the dtype of its arguments.
    return recurrent.mamba_chunk_scan_combined(
        hidden_states.float(), dt, A, B.float(), C.float(), chunk_size, D=D, dt_bias=dt_bias, initial_states=initial_states,
        seq_idx=seq_idx, dt_softplus=dt_softplus, dt_limit=dt_limit, return_final_states=return_final_states,
    )  # fmt: skip


def mamba_split_conv1d_scan_combined(projected: Tensor, *others: Any, **named: Any) -> None:
    """Returns None, by which transformers recognises that there is no fused form. The layer then calls the
    single steps with the same arguments."""
    require_plain_cpu(projected)


def selective_state_update(
    state: Tensor,
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    z: Tensor | None = None,
    **others: Any,
) -> Tensor:
    tensors = (state, hidden_states, dt, A, B, C, D, dt_bias, z)
    require_plain_cpu(*tensors)
    _refuse_gradients(*tensors)
    for name in ("cu_seqlens", "cu_seq_lens_q", "seq_idx"):
        if others.get(name) is not None:
            raise PassOn(f"the argument {name}")
    _refuse(others)
    return recurrent.selective_state_update(state, hidden_states, dt, A, B, C, D, z, dt_bias, dt_softplus)


def causal_conv1d_fn(
    hidden_states: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    **others: Any,
) -> Tensor:
    require_plain_cpu(hidden_states, weight, bias)
    batch, length = hidden_states.shape[0], hidden_states.shape[2]
    if batch > 1 and not _has_lengths(others):  # Each entry may have borders of its own.
        given = {"seq_idx": others.pop("seq_idx", None)}
    else:
        given = {"cu_seqlens": take_borders(batch, length, others)}
    _refuse(others)
    output = recurrent.causal_conv1d_fn(hidden_states, weight, bias, activation=activation, **given)
    assert isinstance(output, Tensor)
    return output


def causal_conv1d_update(
    hidden_states: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    **others: Any,
) -> Tensor:
    require_plain_cpu(hidden_states, conv_state, weight, bias)
    _refuse_gradients(hidden_states, conv_state, weight, bias)
    _refuse(others)
    return recurrent.causal_conv1d_update(hidden_states, conv_state, weight, bias, activation)


def _refuse_gradients(*tensors: Tensor | None) -> None:
    """Raises PassOn if gradients are to be recorded, because our decoding steps record none."""
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        raise PassOn("gradients of a decoding step")


_gated_delta_rule, _kda = _delta_rule(recurrent.chunk_gated_delta_rule), _delta_rule(recurrent.chunk_kda)
# Our operators by the names under which transformers looks for kernels.
OPERATORS: dict[str, Callable[..., Any]] = {
    "causal_conv1d_fn": causal_conv1d_fn,
    "causal_conv1d_update": causal_conv1d_update,
    "chunk_gated_delta_rule": _gated_delta_rule,
    "chunk_kda": _kda,
    "fused_recurrent_gated_delta_rule": _without_chunk_size(_gated_delta_rule),
    "fused_recurrent_kda": _without_chunk_size(_kda),
    "mamba_chunk_scan_combined": mamba_chunk_scan_combined,
    "mamba_split_conv1d_scan_combined": mamba_split_conv1d_scan_combined,
    "selective_state_update": selective_state_update,
}


def dispatching(
    name: str,
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    package: str | None = None,
    refusals: tuple[type[Exception], ...] = (TypeError, ValueError),
) -> Callable[..., Any]:
    """A function that calls `ours` or, where `ours` cannot take the call, `theirs` with the same arguments, and
    counts which of them.

    Args:
        name: the name of the operator in reports and errors.
        ours: raises PassOn for a call that it cannot take.
        theirs: the function that would have run without `accelerate`.
        package: the package that `theirs` belongs to if that package has no kernels for CPUs, otherwise
            None. An error of `theirs` on a CPU then gets a note that says why it was called.
        refusals: the errors besides PassOn that `ours` raises before it computes anything.

    The function raises ValueError for a call with packed sequences on a CPU that would be passed on to the
    reference implementation of transformers, because that mixes them.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            result = ours(*args, **kwargs)
        except PassOn as why:
            reason = str(why)
        except refusals as error:
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        else:
            COUNTERS.count_served(name)
            return result
        COUNTERS.count_passed_on(name, reason)
        if package is None and separates_sequences(kwargs):
            raise ValueError(MIXES_SEQUENCES.format(name=name, reason=reason))
        if package is None or any(isinstance(x, Tensor) and x.device.type != "cpu" for x in (*args, *kwargs.values())):
            return theirs(*args, **kwargs)
        try:
            return theirs(*args, **kwargs)
        except Exception as error:
            error.add_note(_NO_TRITON.format(reason=reason, function=name, package=package))
            raise

    return call
