"""Softmax attention of transformers by `attnbench.sparse_attention`: an attention implementation named
"attnbench", which models choose with `model.set_attn_implementation("attnbench")`.

Its mask function makes the mask that PyTorch's own attention gets, and describes as causal attention
within sequences and windows which keys each query sees. The description is derived from the mask itself
and checked against it, so that a mask of any other form is not mistaken for one of these.
"""

import importlib
import sys
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from attnbench.acceleration._counters import COUNTERS, PassOn
from attnbench.acceleration._operators import MIXES_SEQUENCES, NEUTRAL, require_plain_cpu, separates_sequences, take_borders
from attnbench.acceleration._transformers import TESTED_VERSION, check_signature
from attnbench.acceleration._undo import Undo
from attnbench.functional import sparse_attention
from attnbench.recurrent._rule import wide_dtype

NAME = "attnbench"
COUNTED_AS = "softmax attention"

TESTED = {
    "transformers.masking_utils.sdpa_mask": (
        "batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=causal_mask_function, attention_mask=None, "
        "local_size=None, allow_is_causal_skip=True, allow_is_bidirectional_skip=False, use_vmap=False, device='cpu', **kwargs"
    ),
    "transformers.integrations.sdpa_attention.sdpa_attention_forward": (
        "module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, "
        "position_bias=None, cache=None, **kwargs"
    ),
}  # fmt: skip

# Names of keyword arguments whose effect the mask already contains.
_IN_THE_MASK = frozenset({"sliding_window"})


@dataclass(frozen=True)
class Visible:
    """The keys that the queries of a batch entry see.

    Attributes:
        causal: whether query i of N queries sees only the keys 0 to i + L − N of L keys.
        window: the number of keys that a query sees, of which its own is the last; None for all before it.
        borders: the positions at which packed sequences begin and end; () for one sequence. Padding is a
            sequence of its own.
        keys: for a single query, the first key that it sees and the one after the last; None for all.
    """

    causal: bool
    window: int | None = None
    borders: tuple[int, ...] = ()
    keys: tuple[int, int] | None = None


def describe(mask: Tensor) -> list[Visible] | str:
    """For each batch entry, what its queries see by a mask, bool [B,1,N,L]; or the reason why a `Visible` cannot
    describe it. A query that does not see its own key is taken for padding, whose output may be anything."""
    if mask.dtype != torch.bool or mask.dim() != 4 or mask.shape[1] != 1:
        return f"a mask of {str(mask.dtype).removeprefix('torch.')} and of shape {list(mask.shape)}"
    visible = mask[:, 0]
    queries, keys = visible.shape[1:]
    if queries == 1 and bool(visible.all()):
        return [Visible(False)] * len(visible)
    counts = visible.sum(2, dtype=torch.int64)
    first = visible.to(torch.uint8).argmax(2)
    last = first + counts - 1
    columns = torch.arange(keys)
    ranges = (columns >= first.unsqueeze(2)) & (columns <= last.unsqueeze(2))
    if not torch.equal(ranges, visible):
        return "a mask in which a query sees keys that do not follow each other"
    if queries == 1:
        if bool((counts == 0).any()):
            return "a mask in which the only query sees no key"
        return [Visible(False, keys=(int(a), int(b) + 1)) for a, b in zip(first[:, 0], last[:, 0], strict=True)]
    own = torch.arange(queries) + keys - queries
    found = []
    for entry, begin, end, count in zip(visible, first, last, counts, strict=True):
        real = (begin <= own) & (own <= end) & (count > 0)
        if not torch.equal(end[real], own[real]):
            return "a mask in which a query sees keys after its own"
        if queries == keys and bool(entry[:, ~real].any()):
            return "a mask in which a query does not see its own key, although others see it"
        if queries != keys and not bool(real.all()):
            return "padding beside keys from a cache"
        # A sequence begins where a query sees only its own key, or where padding begins or ends.
        padding_changes = torch.zeros(queries, dtype=torch.bool)
        padding_changes[1:] = real[1:] != real[:-1]
        begins = ((begin == own) & real) | padding_changes
        if queries == keys:
            begins[0] = True
        elif bool(begins.any()):
            return "packed sequences beside keys from a cache"
        start = torch.where(begins, own, 0).cummax(0).values
        window = None
        if not torch.equal(begin[real], start[real]):
            window = int(count[real].max())
            expected = torch.maximum(start, own - window + 1)
            if not torch.equal(begin[real], expected[real]):
                return "a mask that is no window of a fixed length"
        borders = (*begins.nonzero().flatten().tolist(), queries) if queries == keys and int(begins.sum()) > 1 else ()
        found.append(Visible(True, window, borders))
    return found


def attention_mask(*args: Any, **kwargs: Any) -> Tensor | None:
    """The mask function: returns the mask of the implementation "sdpa", and stores what `describe` says of it, with its version, in
    the mask's attribute `attnbench`."""
    from transformers.masking_utils import sdpa_mask

    mask: Tensor | None = sdpa_mask(*args, **kwargs)
    if mask is not None and mask.device.type == "cpu" and not (torch.compiler.is_compiling() or mask.is_inference()):
        mask.attnbench = (describe(mask), mask._version)  # type: ignore[attr-defined]
    return mask


def _description(mask: Tensor) -> list[Visible]:
    """What `describe` says of a mask. Raises PassOn if it cannot describe the mask, or the mask has been changed since."""
    found: list[Visible] | str | None
    if mask.is_inference():  # Inference tensors have no version that would show changes, so they are described at each call.
        found = describe(mask)
    else:
        found, version = getattr(mask, "attnbench", (None, -1))
        if found is None or mask._version != version:
            raise PassOn("a mask that the mask function of attnbench did not make, or that was changed")
    if isinstance(found, str):
        raise PassOn(found)
    return list(found)


def attention_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The attention function: query [B,H,N,D], key and value [B,G,L,D] → the output [B,N,H,D], and None for the
    weights. A call that our operator cannot take is passed on to PyTorch's own attention or, if that cannot
    take it either, to the attention function of the model."""
    try:
        output = _attend(module, query, key, value, attention_mask, dropout, scaling, is_causal, s_aux, kwargs)
    except PassOn as why:
        reason = str(why)
    except ValueError as error:  # what our operator refuses before it computes anything
        reason = f"ValueError: {str(error).splitlines()[0]}"
    else:
        COUNTERS.count_served(COUNTED_AS)
        return output, None
    COUNTERS.count_passed_on(COUNTED_AS, reason)
    if attention_mask is None and separates_sequences(kwargs):
        raise ValueError(MIXES_SEQUENCES.format(name=COUNTED_AS, reason=reason))
    wanted = {"dropout": dropout, "scaling": scaling}
    if s_aux is None and kwargs.get("softcap") is None and not kwargs.get("output_attentions"):
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        return sdpa_attention_forward(module, query, key, value, attention_mask, **wanted, is_causal=is_causal, **kwargs)
    eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if eager is None:
        raise NotImplementedError(
            f"the attention implementation attnbench cannot take this call ({reason}), and {type(module).__module__} has no "
            "function eager_attention_forward to which it could be passed on"
        )
    if s_aux is not None:
        kwargs["s_aux"] = s_aux
    if is_causal is not None:
        kwargs["is_causal"] = is_causal
    return eager(module, query, key, value, _added(module, query, key, attention_mask, is_causal), **wanted, **kwargs)


def _added(
    module: torch.nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool | None
) -> Tensor | None:
    """The mask in the form that the model's own attention adds to scores: 0 for a visible key, and otherwise the lowest number of
    the dtype. None for no mask."""
    queries, keys = query.shape[2], key.shape[2]
    if mask is None:
        if queries == 1 or not (getattr(module, "is_causal", True) if is_causal is None else is_causal):
            return None
        # Without a mask PyTorch's attention is called with is_causal=True, which aligns the first query with the first key.
        mask = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=query.device).tril()
    if mask.dtype != torch.bool:
        return mask
    return torch.where(mask, 0.0, torch.finfo(query.dtype).min).to(query.dtype)


def _attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    scaling: float | None,
    is_causal: bool | None,
    sinks: Tensor | None,
    others: dict[str, Any],
) -> Tensor:
    """The output of `attention_forward`. Raises PassOn, or ValueError, for a call that our operator cannot take."""
    require_plain_cpu(query, key, value, mask, sinks)
    if dropout:
        raise PassOn("dropout")
    if others.get("output_attentions"):
        raise PassOn("the argument output_attentions")
    others = dict(others)
    borders = take_borders(query.shape[0], query.shape[2], others)
    for name, given in others.items():
        if given is not None and given is not False and name not in NEUTRAL and name not in _IN_THE_MASK:
            raise PassOn(f"the argument {name}")
    queries, keys = query.shape[2], key.shape[2]
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if mask is not None:
        entries = _description(mask)
    elif sinks is None and borders is None:
        raise PassOn("no window, sinks, padding or packed sequences, where PyTorch's own attention is as fast")
    elif causal and 1 < queries != keys:
        raise PassOn("causal attention to keys from a cache without a mask")
    else:
        entries = [Visible(causal and queries > 1)]
    if mask is not None and not causal and any(visible.causal for visible in entries):
        raise PassOn("a causal mask of attention that is not causal")
    if mask is not None and len(entries) not in (1, query.shape[0]):
        raise PassOn(f"a mask for a batch of {len(entries)}, expected {query.shape[0]}")
    if mask is not None and mask.shape[2:] != (queries, keys):
        raise PassOn(f"a mask for {list(mask.shape[2:])} queries and keys, expected {[queries, keys]}")
    if borders is not None:
        # The masks of some models ignore the packed sequences that these arguments describe.
        entries = [_divided(visible, queries, keys, borders.tolist()) for visible in entries]
    output = _by_entries(query, key, value, sinks, scaling, entries)
    return output.transpose(1, 2).contiguous()


def _divided(visible: Visible, queries: int, keys: int, borders: list[int]) -> Visible:
    """`visible`, restricted to keys of a query's own sequence; sequences begin and end at `borders`. Raises PassOn if the attention
    is not causal, or not every query has a key."""
    if not visible.causal or queries != keys or borders[-1] != keys:
        raise PassOn(f"packed sequences of {borders[-1]} tokens, with {queries} queries and {keys} keys")
    return replace(visible, borders=tuple(sorted({*visible.borders, *borders})))


def _by_entries(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, scale: float | None, entries: list[Visible]
) -> Tensor:
    """The attention of each batch entry with what it sees; entries that see the same are computed together. A single element of
    `entries` is for the whole batch."""
    groups: dict[Visible, list[int]] = {}
    for number, visible in enumerate(entries):
        groups.setdefault(visible, []).append(number)
    wide = wide_dtype(q)
    sinks = None if sinks is None else sinks.to(wide)

    def attend(visible: Visible, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if visible.keys is not None:
            k, v = (x[:, :, slice(*visible.keys)] for x in (k, v))
        output = sparse_attention(
            q, k, v, causal=visible.causal, pattern="all" if visible.window is None else f"window:{visible.window}",
            cu_seqlens=torch.tensor(visible.borders) if visible.borders else None, sinks=sinks, scale=scale,
        )  # fmt: skip
        assert isinstance(output, Tensor)
        return output

    if len(groups) == 1:
        return attend(entries[0], q, k, v)
    order = [number for numbers in groups.values() for number in numbers]
    parts = [attend(visible, q[numbers], k[numbers], v[numbers]) for visible, numbers in groups.items()]
    return torch.cat(parts)[torch.tensor(order).argsort()]


def register_softmax(undo: Undo) -> None:
    """Registers the attention function and its mask function until `undo` runs. Raises SignatureError if the
    functions of transformers that they call are not those of the tested version."""
    for path, tested in TESTED.items():
        module, _, name = path.rpartition(".")
        check_signature(path, getattr(importlib.import_module(module), name), tested, "transformers", TESTED_VERSION)
    interfaces = [
        (importlib.import_module("transformers.modeling_utils").AttentionInterface, attention_forward),
        (importlib.import_module("transformers.masking_utils").AttentionMaskInterface, attention_mask),
    ]
    for interface, function in interfaces:
        before = interface._global_mapping.get(NAME)
        interface.register(NAME, function)

        def restore(interface: Any = interface, before: Any = before) -> None:
            if before is None:
                interface._global_mapping.pop(NAME, None)
            else:
                interface.register(NAME, before)

        undo.add(restore)
