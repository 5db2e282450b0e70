"""Tests of the attention implementation "attnbench" of transformers: windows, sinks, padding, packed
sequences and caches, compared with the attention of the model (eager)."""

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")

HEADS, GROUPS, DIM = 4, 2, 8


@pytest.fixture(scope="module", autouse=True)
def active(build):  # noqa: ARG001
    import attnbench

    torch.set_num_threads(1)
    with attnbench.accelerate(quiet=True):
        yield attnbench


def layer():
    """A layer with sinks, whose parameters do not matter here."""
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention, GptOssConfig

    config = GptOssConfig(
        hidden_size=HEADS * DIM, num_attention_heads=HEADS, num_key_value_heads=GROUPS, head_dim=DIM, num_hidden_layers=1
    )
    made = GptOssAttention(config, 0).eval()
    torch.nn.init.normal_(made.sinks)
    return made


def mask(implementation, queries, keys, *, batch=2, window=None, padding=None, positions=None, function=None):
    """A mask as models make it: `padding` are the numbers of hidden keys before (positive) or behind those
    of each batch entry, `positions` the position of each token."""
    from transformers import masking_utils
    from transformers.models.gpt_oss import GptOssConfig

    config = GptOssConfig(sliding_window=window)
    config._attn_implementation = implementation

    class Cache:
        def get_query_offset(self, layer_idx):
            return keys - queries

        def get_mask_sizes(self, query_length, layer_idx):
            return keys, 0

        is_sliding = is_linear = is_dummy = ()
        is_compileable = False

    hidden = None
    if padding is not None:
        hidden = torch.ones(batch, keys, dtype=torch.int64)
        for row, count in zip(hidden, padding, strict=True):
            row[slice(0, count) if count > 0 else slice(keys + count, keys)] = 0
    create = masking_utils.create_causal_mask if window is None else masking_utils.create_sliding_window_causal_mask
    further = {"and_mask_function": function} if function else {}
    return create(
        config, torch.zeros(batch, queries, 1), hidden, Cache() if queries != keys else None, position_ids=positions, **further
    )


def attend(implementation, module, tensors, mask, **arguments):
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

    function = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)
    return function(module, *tensors, mask, scaling=0.4, **arguments)[0]


CASES = {
    "causal": ({}, 20, 20),
    "window": ({"window": 5}, 20, 20),
    "window of 1": ({"window": 1}, 20, 20),
    "window and padding before": ({"window": 5, "padding": [0, 8]}, 20, 20),
    "padding before": ({"padding": [3, 8]}, 20, 20),
    "padding behind": ({"padding": [-3, 0]}, 20, 20),
    "packed": ({"positions": torch.tensor([[0, 1, 2, 3, 0, 0, 1, 2], [0, 1, 0, 1, 2, 3, 4, 5]])}, 8, 8),
    "packed and window": ({"positions": torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5]] * 2), "window": 3}, 11, 11),
    "a part of a prompt": ({}, 6, 20),
    "a part of a prompt and window": ({"window": 4}, 6, 20),
    "a token": ({}, 1, 20),
    "a token and window": ({"window": 7}, 1, 20),
    "a token and padding": ({"padding": [5, 0]}, 1, 20),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("with_sinks", [True, False], ids=["sinks", "no sinks"])
def test_the_output_is_that_of_the_model(active, name, with_sinks):
    options, queries, keys = CASES[name]
    module = layer()
    if not with_sinks:
        torch.nn.init.constant_(module.sinks, -1e4)  # in the attention of the model the same as none
    generator = torch.Generator().manual_seed(len(name))
    tensors = [
        torch.randn(2, heads, length, DIM, generator=generator).requires_grad_()
        for heads, length in ((HEADS, queries), (GROUPS, keys), (GROUPS, keys))
    ]
    theirs_mask, mine_mask = mask("eager", queries, keys, **options), mask("attnbench", queries, keys, **options)
    # What padding computes does not matter; its own key is hidden from it.
    own = theirs_mask.expand(2, 1, queries, keys).diagonal(keys - queries, 2, 3)[:, 0, :, None, None] == 0
    before = active.accelerate.report()
    results = []
    for implementation, made in (("eager", theirs_mask), ("attnbench", mine_mask)):
        sinks = {"s_aux": module.sinks} if with_sinks else {}
        output = attend(implementation, module, tensors, made, **sinks) * own
        output.square().sum().backward()
        results.append([output, *(x.grad for x in tensors), module.sinks.grad])
        for x in [*tensors, module.sinks]:
            x.grad = None
    for expected, found in zip(*results, strict=True):
        if expected is not None and found is not None:
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    after = active.accelerate.report()
    if with_sinks or mine_mask is not None:
        assert after.served.get("softmax attention", 0) == before.served.get("softmax attention", 0) + 1
    else:  # PyTorch's own attention is as fast
        assert after.served == before.served


def every_third(batch_idx, head_idx, q_idx, kv_idx):  # noqa: ARG001
    return kv_idx % 3 == 0


@pytest.mark.parametrize("with_sinks", [True, False], ids=["sinks", "no sinks"])
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "a mask in which a query sees keys that do not follow each other"),
        ({"softcap": 1.0}, "the argument softcap"),
        ({"output_attentions": True}, "the argument output_attentions"),
        ({"dropout": 0.0, "unknown": 3}, "the argument unknown"),
    ],
)
def test_other_masks_and_arguments_are_passed_on(active, arguments, reason, with_sinks):
    module = layer()
    if not with_sinks:
        torch.nn.init.constant_(module.sinks, -1e4)
    tensors = [torch.randn(2, heads, 12, DIM) for heads in (HEADS, GROUPS, GROUPS)]
    made = {name: mask(name, 12, 12, function=every_third) for name in ("eager", "attnbench")}
    before = active.accelerate.report().passed_on.get("softmax attention", {}).get(reason, 0)
    sinks = {"s_aux": module.sinks} if with_sinks else {}
    output = attend("attnbench", module, tensors, made["attnbench"], **sinks, **arguments)
    torch.testing.assert_close(output, attend("eager", module, tensors, made["eager"]))
    assert active.accelerate.report().passed_on["softmax attention"][reason] == before + 1


def test_a_changed_mask_is_not_taken_for_what_it_was(active):
    module = layer()
    tensors = [torch.randn(2, heads, 12, DIM) for heads in (HEADS, GROUPS, GROUPS)]
    made = mask("attnbench", 12, 12, window=5).clone()
    attend("attnbench", module, tensors, made, s_aux=module.sinks)
    mine = mask("attnbench", 12, 12, padding=[2, 0])
    mine[0, 0, 7, 4] = False
    output = attend("attnbench", module, tensors, mine, s_aux=module.sinks)
    theirs = torch.where(mine, 0.0, torch.finfo(torch.float32).min)
    torch.testing.assert_close(output, attend("eager", module, tensors, theirs))
    reason = "a mask that the mask function of attnbench did not make, or that was changed"
    assert active.accelerate.report().passed_on["softmax attention"][reason] == 2


def test_masks_of_inference_mode_are_served(active):
    module = layer()
    before = active.accelerate.report().served.get("softmax attention", 0)
    with torch.inference_mode():
        tensors = [torch.randn(2, heads, 20, DIM) for heads in (HEADS, GROUPS, GROUPS)]
        output = attend("attnbench", module, tensors, mask("attnbench", 20, 20, window=5), s_aux=module.sinks)
        torch.testing.assert_close(output, attend("eager", module, tensors, mask("eager", 20, 20, window=5)), rtol=1e-4, atol=1e-5)
    assert active.accelerate.report().served["softmax attention"] == before + 1


def test_packed_sequences_that_nobody_keeps_apart_are_an_error(active):  # noqa: ARG001
    tensors = [torch.randn(1, heads, 12, DIM) for heads in (HEADS, GROUPS, GROUPS)]
    borders = torch.tensor([0, 5, 12])
    with pytest.raises(ValueError, match=r"attnbench cannot take this call \(dropout\), and what would run in its place does not keep"):
        attend("attnbench", layer(), tensors, None, dropout=0.5, cu_seq_lens_q=borders)


def test_masks_that_are_not_those_of_causal_attention_are_passed_on(active):
    from attnbench.acceleration import _softmax

    earlier = torch.ones(1, 1, 4, 4).tril(-1).bool()
    assert _softmax.describe(earlier) == "a mask in which a query does not see its own key, although others see it"
    # Beside three keys of a cache, the second of two queries begins a new sequence.
    packed = torch.tensor([[1, 1, 1, 1, 0], [0, 0, 0, 0, 1]]).bool().view(1, 1, 2, 5)
    assert _softmax.describe(packed) == "packed sequences beside keys from a cache"
    # Cross-attention to an encoder whose last three keys are padding has the mask of causal attention with padding.
    padding = torch.tensor([1, 0, 0, 0]).bool().expand(1, 1, 4, 4).clone()
    padding.attnbench = (_softmax.describe(padding), padding._version)
    module = layer()
    module.is_causal = False
    tensors = [torch.randn(1, heads, 4, DIM) for heads in (HEADS, GROUPS, GROUPS)]
    output = attend("attnbench", module, tensors, padding, s_aux=module.sinks)
    added = torch.where(padding, 0.0, torch.finfo(torch.float32).min)
    torch.testing.assert_close(output, attend("eager", module, tensors, added))
    assert active.accelerate.report().passed_on["softmax attention"]["a causal mask of attention that is not causal"] == 1
