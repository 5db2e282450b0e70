"""The decorator `attnbench.method`, which says more about an attention function than its signature.

A file with an attention function needs no import to be measured. What the decorator declares lets
attnbench check more (a reference), measure more (decoding, other sizes of the state) and predict
more (orders of growth).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from attnbench._signature import problem_of_label

# The attribute of a decorated function that holds its declaration.
ATTRIBUTE = "__attnbench_method__"

DTYPES = ("float32", "float64", "bfloat16", "float16")
DEVICES = ("cpu", "cuda")
MAX_MULTIPLE = 65536
ORDERS = ("O(1)", "O(log N)", "O(N)", "O(N log N)", "O(N²)", "O(N³)")

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Declaration:
    """What `attnbench.method` was told about a function."""

    description: str = ""
    label: str = ""
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    exact: str = ""
    reference: Callable[..., Any] | None = None
    approximates: str = ""
    setup: Callable[..., Any] | None = None
    decode: Callable[..., Any] | None = None
    backward: Callable[..., Any] | None = None
    flops: Callable[..., float] | None = None
    returns_tuple: bool = False
    time_order: str = ""
    memory_order: str = ""
    decode_time_order: str = ""
    decode_memory_order: str = ""
    causal: bool | None = None
    full: bool = True
    cross_attention: bool = True
    shared_heads: bool = False
    multiple_of: int | str | Callable[..., int] = 1
    key_lengths: bool | None = None
    gradients: Sequence[str] = DEVICES
    dtypes: Sequence[str] = DTYPES
    devices: Sequence[str] = DEVICES
    requires: Mapping[str, str] = field(default_factory=dict)


def is_multiple(value: object) -> bool:
    """Whether lengths can have to be multiples of this value."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_MULTIPLE


def _check(declaration: Declaration) -> None:
    if declaration.label and (problem := problem_of_label(declaration.label)):
        raise ValueError(f"attnbench.method: label = {problem}")
    if not isinstance(declaration.returns_tuple, bool):
        raise TypeError(f"attnbench.method: returns_tuple is {declaration.returns_tuple!r}, expected True or False")
    if declaration.exact and declaration.reference:
        raise ValueError("attnbench.method: exact and reference are both given, expected one")
    for name in ("reference", "setup", "decode", "backward", "flops"):
        value = getattr(declaration, name)
        if value is not None and not callable(value):
            raise TypeError(f"attnbench.method: {name} is {value!r}, expected a function")
    for name in ("time_order", "memory_order", "decode_time_order", "decode_memory_order"):
        value = getattr(declaration, name)
        if value and value not in ORDERS:
            expected = ", ".join(ORDERS)
            raise ValueError(f"attnbench.method: {name} = {value!r}, expected one of {expected}")
    for name, known in (("dtypes", DTYPES), ("devices", DEVICES), ("gradients", DEVICES)):
        value = getattr(declaration, name)
        unknown = [item for item in value if item not in known]
        is_empty = not value and name != "gradients"
        if isinstance(value, str) or is_empty or unknown:
            expected = ", ".join(known)
            raise ValueError(f"attnbench.method: {name} = {value!r}, expected a list of {expected}")
    multiple = declaration.multiple_of
    if not is_multiple(multiple) and not isinstance(multiple, str) and not callable(multiple):
        raise ValueError(
            f"attnbench.method: multiple_of = {multiple!r}, expected a whole number from 1 to {MAX_MULTIPLE}, "
            "the name of an option or a function of the options"
        )
    for name, option in declaration.options.items():
        unknown = set(option) - {"description", "choices", "min", "max"}
        if unknown:
            raise ValueError(
                f"attnbench.method: option {name} has {', '.join(sorted(unknown))}, "
                "expected description, choices, min, max"
            )
        for key in ("min", "max"):
            if type(option.get(key, 0)) is not int:
                raise TypeError(f"attnbench.method: {key} of option {name} is {option[key]!r}, expected a whole number")
        choices = option.get("choices", ())
        if isinstance(choices, str) or not all(isinstance(choice, str) for choice in choices):
            raise TypeError(f"attnbench.method: choices of option {name} are {choices!r}, expected a list of texts")


def method(
    *,
    description: str = "",
    label: str = "",
    options: Mapping[str, Mapping[str, Any]] | None = None,
    exact: str = "",
    reference: Callable[..., Any] | None = None,
    approximates: str = "",
    setup: Callable[..., Any] | None = None,
    decode: Callable[..., Any] | None = None,
    backward: Callable[..., Any] | None = None,
    flops: Callable[..., float] | None = None,
    returns_tuple: bool = False,
    time_order: str = "",
    memory_order: str = "",
    decode_time_order: str = "",
    decode_memory_order: str = "",
    causal: bool | None = None,
    full: bool = True,
    cross_attention: bool = True,
    shared_heads: bool = False,
    multiple_of: int | str | Callable[..., int] = 1,
    key_lengths: bool | None = None,
    gradients: bool | Sequence[str] = True,
    dtypes: Sequence[str] = DTYPES,
    devices: Sequence[str] = DEVICES,
    requires: Mapping[str, str] | None = None,
) -> Callable[[Function], Function]:
    """Declares what attnbench cannot read from the signature of an attention function.

    The function takes `q, k, v` as `[batch, heads, length, dim]`, the keyword `causal` if it can
    apply the causal mask, and the keyword `key_lengths` (int64 `[batch]`, or None) if it can hide
    keys beyond these lengths. A parameter `pattern` without a default, or with the default "all", is
    given the text of the pattern of visible keys (docs/patterns.md), and `cu_seqlens`, without a
    default or with None, the borders of packed sequences (int64 `[sequences + 1]`, or None); where it
    is missing, such cases are skipped. A parameter `g` without a default, or with the default None, is given
    the logarithms of decays, at most 0 and float32 `[batch, value_heads, length]`, and has a gradient.
    Further keyword parameters with default values are options of the method. It returns a new tensor
    `[batch, heads, query_len, value_dim]`.

    Args:
        description: One line for tables of methods.
        label: What stands in tables and figures in place of the file and the name of the function, a
            text of at most 60 characters. The option `as` gives another one, `mine.py:f:as=mine`.
        options: For each option of the signature that needs it, a dict with any of `description`,
            `choices` (texts), `min` and `max` (whole numbers).
        exact: The registered method whose exact result the function computes, such as "softmax" or
            "linear". Its float64 reference is compared with the function's results.
        reference: A function with the same parameters that defines the result. It is called with
            float64 tensors, must be differentiable, and is never timed. If it has a parameter
            `rows` (int64 `[R]`), it returns these rows of the output alone. It may be given some
            of the heads of a call. Where the result of a head depends on which one it is, such as
            by a slope of each head, it has the parameters `heads` (int64 `[h]`), the indices of the
            heads that q, k and v hold, and `num_heads`, how many the call has.
        approximates: The registered method that the function approximates. The record then holds
            how close its results are to those of that method.
        setup: `setup(function, problem)`, called once for each problem before its first call, for
            example to compile. `problem` is a dict with batch, heads, kv_heads, value_heads, query_len,
            key_len, head_dim, value_dim, dtype, device, causal, pattern, packed and protocol. It may return a function to call instead. Its time is not
            part of the samples, but is recorded.
        decode: A class (or function) `decode(problem, **options)` that makes a decoding state with
            a method `step(q, k, v)`, which takes one token `[batch, heads, 1, dim]` and returns its
            output `[batch, heads, 1, value_dim]`, and optionally `prefill(q, k, v)`, which takes
            several tokens into an empty state and returns their outputs, and `extend(q, k, v)`,
            which takes several tokens and returns nothing. Each also gets the keyword `g` if the
            function has it. problem["max_tokens"] is the largest
            number of tokens.
        backward: `backward(grad_output, q, k, v, output, **keywords)`, which returns the gradients of
            q, k and v, and of g if the function has it. It gets the same keywords as the function: `causal` and `key_lengths` if the
            function has them, `g`, and the options. By default autograd computes the gradients.
        flops: `flops(problem, **options)`, the floating-point operations of a forward call; a
            multiply-add counts as two.
        returns_tuple: Whether the function returns a tuple or a list whose first element is the
            output, such as (output, state). So does the function that `setup` returns.
        time_order, memory_order: How time and memory beside the inputs grow with the length, such
            as "O(N)". `attnbench analyse` compares them with what was measured.
        decode_time_order, decode_memory_order: The same for one decoding step.
        causal: Whether the function can apply the causal mask; by default whether it has the
            parameter `causal`.
        full: Whether the function can attend without the causal mask.
        cross_attention: Whether key_len may differ from query_len.
        shared_heads: Whether k and v may have other numbers of heads than q, as with `enable_gqa=True`
            of PyTorch's attention. The output has the largest number. A reference is given tensors
            in which shared heads are repeated.
        multiple_of: A number of which query_len and key_len have to be multiples, such as the size of
            a kernel's blocks; or the name of the option that is this number, such as "block"; or a
            function of the options, `lambda block, **_: 2 * block`. Cases with other lengths are
            skipped.
        key_lengths: Whether it can hide keys; by default whether it has the parameter.
        gradients: Whether gradients of q, k and v can be computed, or the devices on which they can.
        dtypes: The dtypes that it takes: "float32", "float64", "bfloat16", "float16".
        devices: The devices that it runs on: "cpu", "cuda".
        requires: The modules that the function imports when it is called, each with the command
            that installs it. Where one is missing, cases are skipped with that command as their
            reason. Such modules must not be imported by the file itself.

    Raises:
        TypeError, ValueError: for a wrong declaration. The message names what was expected.
    """
    if isinstance(gradients, bool):
        gradients = DEVICES if gradients else ()
    dtypes, devices = (names if isinstance(names, str) else tuple(names) for names in (dtypes, devices))
    options, requires = dict(options or {}), dict(requires or {})
    # The local variables are the parameters, which the fields of a Declaration are named after.
    declaration = Declaration(**locals())
    _check(declaration)

    def declare(function: Function) -> Function:
        setattr(function, ATTRIBUTE, declaration)
        return function

    return declare
