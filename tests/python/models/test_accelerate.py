"""Tests of attnbench.accelerate() with the classes of transformers: models compute the same, calls are
served or passed on, and afterwards everything is as before."""

import functools
import gc
import subprocess
import sys
import threading
from dataclasses import replace
from types import FunctionType

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")

CONFIGURATIONS = ["qwen3.5", "kimi-linear", "granite-4", "nemotron-h", "minimax", "gpt-oss"]
DECODING = {
    "qwen3.5": {"causal_conv1d_update", "fused_recurrent_gated_delta_rule"},
    "kimi-linear": {"causal_conv1d_update", "fused_recurrent_kda"},
    "granite-4": {"causal_conv1d_update", "selective_state_update"},
    "nemotron-h": {"causal_conv1d_update", "selective_state_update"},
    "minimax": set(),
    "gpt-oss": set(),
}


@pytest.fixture(scope="module")
def attnbench(build):  # noqa: ARG001
    import attnbench

    torch.set_num_threads(1)  # Several threads would be slower on models this small.
    return attnbench


@pytest.fixture(scope="module")
def configurations(attnbench):  # noqa: ARG001
    from attnbench.models.configurations import CONFIGURATIONS

    return {name: configuration.tiny() for name, configuration in CONFIGURATIONS.items()}


def accelerated(attnbench, model, configuration, compute):
    """What `compute` returns with ours, and the report."""
    before = model.config._attn_implementation
    with attnbench.accelerate(quiet=True):
        if configuration.attention:
            model.set_attn_implementation(configuration.attention)
        try:
            result = compute()
        finally:
            model.set_attn_implementation(before)
    return result, attnbench.accelerate.report()


def tokens(batch, length, seed=1):
    return torch.randint(2, 128, (batch, length), generator=torch.Generator().manual_seed(seed))


def expect_close(found, expected, tolerance):
    assert (found - expected).abs().max() <= tolerance * expected.abs().max()


def test_every_configuration_is_tested(configurations):
    assert list(configurations) == CONFIGURATIONS


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_logits_losses_and_gradients_are_those_of_transformers(attnbench, configurations, name):
    model = configurations[name].build()
    inputs = tokens(2, 70)

    def step():
        model.zero_grad()
        output = model(inputs, labels=inputs)
        output.loss.backward()
        return output.logits.detach(), output.loss.item(), {k: x.grad for k, x in model.named_parameters()}

    logits, loss, gradients = step()
    (mine, my_loss, my_gradients), report = accelerated(attnbench, model, configurations[name], step)
    expect_close(mine, logits, 1e-5)
    assert my_loss == pytest.approx(loss, rel=1e-6)
    largest = max(x.abs().max() for x in gradients.values())
    for key, gradient in gradients.items():
        assert (my_gradients[key] - gradient).abs().max() <= 1e-3 * gradient.abs().max() + 1e-6 * largest, key
    assert report.served[configurations[name].operator] > 0 and not report.passed_on


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_generation_from_caches_and_with_padding(attnbench, configurations, name):
    model = configurations[name].build().eval()
    mask = torch.ones(2, 20, dtype=torch.int64)
    mask[1, :7] = 0

    def generate():
        return model.generate(
            tokens(2, 20), attention_mask=mask, max_new_tokens=6, do_sample=False, return_dict_in_generate=True, output_logits=True
        )

    theirs = generate()
    mine, report = accelerated(attnbench, model, configurations[name], generate)
    assert torch.equal(mine.sequences, theirs.sequences)
    for found, expected in zip(mine.logits, theirs.logits, strict=True):
        expect_close(found, expected, 1e-5)
    assert set(report.served) >= {configurations[name].operator} | DECODING[name] and not report.passed_on


@pytest.mark.parametrize("name", [name for name in CONFIGURATIONS if name != "minimax"])
def test_a_prompt_may_be_read_in_parts(attnbench, configurations, name):
    model = configurations[name].build().eval()
    inputs = tokens(1, 40)

    @torch.no_grad()
    def in_parts():
        first = model(inputs[:, :23], use_cache=True)
        return model(inputs[:, 23:], past_key_values=first.past_key_values, use_cache=True).logits

    mine, report = accelerated(attnbench, model, configurations[name], in_parts)
    expect_close(mine, in_parts(), 1e-5)
    with torch.no_grad():
        expect_close(mine, model(inputs).logits[:, 23:], 1e-4)
    assert not report.passed_on


# By model: the arguments with which it is told of packed sequences, beside position_ids.
PACKED = {
    "qwen3.5": ("cu_seq_lens_q", "seq_idx"),
    "kimi-linear": ("cu_seq_lens_q",),
    "granite-4": ("seq_idx",),
    "nemotron-h": ("cu_seq_lens_q",),
    "gpt-oss": ("cu_seq_lens_q",),
}


@pytest.mark.parametrize("name", PACKED)
def test_packed_sequences_are_kept_apart(attnbench, configurations, name):
    # The masks of granite-4 and gpt-oss do not know of packed sequences; our attention does.
    configuration = replace(configurations[name], attention="attnbench")
    model = configuration.build()
    lengths, inputs = [17, 1, 30], tokens(1, 48)
    borders = torch.tensor([0, 17, 18, 48])
    facts = {
        "cu_seq_lens_q": borders,
        "seq_idx": torch.repeat_interleave(torch.arange(3), torch.tensor(lengths))[None].int(),
    }
    packing = {"position_ids": torch.cat([torch.arange(n) for n in lengths])[None]} | {k: facts[k] for k in PACKED[name]}

    def packed():
        model.zero_grad()
        logits = model(inputs, use_cache=False, **packing).logits
        logits.square().sum().backward()
        return logits.detach(), {k: x.grad.clone() for k, x in model.named_parameters()}

    (mine, gradients), report = accelerated(attnbench, model, configuration, packed)
    assert not report.passed_on
    model.zero_grad()
    alone = torch.cat([model(part, use_cache=False).logits for part in inputs.split(lengths, 1)], 1)
    alone.square().sum().backward()
    expect_close(mine, alone, 1e-5)
    largest = max(x.abs().max() for x in gradients.values())
    for key, parameter in model.named_parameters():
        assert (gradients[key] - parameter.grad).abs().max() <= 1e-3 * parameter.grad.abs().max() + 1e-5 * largest, key
    if "seq_idx" in PACKED[name]:
        with pytest.raises(ValueError, match="can't keep packed sequences apart without"):
            packed()


def test_half_precision_has_the_dtypes_of_transformers(attnbench, configurations):
    for name in ("qwen3.5", "granite-4"):
        model = configurations[name].build().to(torch.bfloat16).eval()

        def logits(model=model):
            with torch.no_grad():
                return model(tokens(1, 33)).logits

        theirs = logits()
        mine, report = accelerated(attnbench, model, configurations[name], logits)
        assert mine.dtype == theirs.dtype and not report.passed_on
        expect_close(mine.float(), theirs.float(), 0.05)


# ---------------------------------------------------------------- afterwards everything is as before


def places():
    """The identities of all that accelerate() replaces."""
    import transformers.integrations
    from transformers.integrations import hub_kernels
    from transformers.masking_utils import AttentionMaskInterface
    from transformers.modeling_utils import AttentionInterface
    from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention

    gc.collect()  # copies that an earlier exception held
    wrappers = [f for f in gc.get_objects() if type(f) is FunctionType and f.__code__.co_filename == hub_kernels.__file__]
    cells = {id(f): [id(cell.cell_contents) for cell in f.__closure__ or ()] for f in wrappers}
    decorator = "use_kernel_func_from_hub_with_fallback"
    modules = {name: id(vars(m)[decorator]) for name, m in sys.modules.items() if decorator in getattr(m, "__dict__", {})}
    return (
        cells, modules, id(getattr(transformers.integrations, decorator)), id(getattr(hub_kernels, decorator)),
        id(vars(MiniMaxLightningAttention)["forward"]), dict(AttentionInterface._global_mapping),
        dict(AttentionMaskInterface._global_mapping),
    )  # fmt: skip


def rule():
    from transformers.models.qwen3_5 import modeling_qwen3_5

    return modeling_qwen3_5.torch_chunk_gated_delta_rule


def example(length=5, device="cpu"):
    q, k, v = (torch.randn(1, length, 2, 8, device=device) for _ in range(3))
    return q, k, v, -torch.rand(1, length, 2, device=device), torch.rand(1, length, 2, device=device)


@pytest.fixture
def held(configurations):
    """A reference to the gated delta rule of transformers, as a layer may hold one."""
    configurations["qwen3.5"].build()
    return rule()


def serves(attnbench, function):
    before = attnbench.accelerate.report().served.get("chunk_gated_delta_rule", 0)
    function(*example())
    return attnbench.accelerate.report().served.get("chunk_gated_delta_rule", 0) == before + 1


def test_objects_are_those_of_before(attnbench, held):
    before = places()
    with attnbench.accelerate(quiet=True):
        assert places() != before and serves(attnbench, held) and rule() is held
    assert places() == before and not serves(attnbench, held)
    with pytest.raises(ZeroDivisionError), attnbench.accelerate(quiet=True):
        assert places() != before
        raise ZeroDivisionError
    assert places() == before
    request = attnbench.accelerate(quiet=True)
    assert serves(attnbench, held) and repr(request).startswith("<active")
    request.undo()
    request.undo()  # does nothing
    assert places() == before and repr(request).startswith("<undone")


def test_nothing_stays_replaced_when_the_summary_cannot_be_printed(attnbench, held, monkeypatch):
    before = places()

    class Closed:
        def write(self, text):
            raise ValueError("I/O operation on closed file")

    monkeypatch.setattr(sys, "stderr", Closed())
    with pytest.raises(ValueError, match="closed file"):
        attnbench.accelerate()
    assert places() == before and not serves(attnbench, held)


def test_modules_that_were_imported_before_a_freeze_are_served(attnbench, held):
    gc.freeze()
    try:
        with attnbench.accelerate(quiet=True):
            assert serves(attnbench, held)
    finally:
        gc.unfreeze()


def test_an_interrupted_undoing_can_be_continued(attnbench, held):
    from attnbench.acceleration import _activation

    before = places()
    request = attnbench.accelerate(quiet=True)
    interrupts = [KeyboardInterrupt]

    def step():
        if interrupts:
            raise interrupts.pop()

    _activation._undo.add(step)
    with pytest.raises(KeyboardInterrupt):
        request.undo()
    assert serves(attnbench, held)
    request.undo()
    assert places() == before and not serves(attnbench, held)


def test_requests_may_be_nested_and_end_in_any_order(attnbench, held):
    before = places()
    outer = attnbench.accelerate(quiet=True)
    with attnbench.accelerate(quiet=True):
        assert serves(attnbench, held)
    assert serves(attnbench, held)
    inner = attnbench.accelerate(quiet=True)
    outer.undo()
    assert serves(attnbench, held)
    inner.undo()
    assert places() == before


def test_threads_share_what_is_replaced(attnbench, held):
    before = places()
    failures = []

    def work():
        try:
            for _ in range(30):
                with attnbench.accelerate(quiet=True):
                    held(*example())
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    with attnbench.accelerate(quiet=True):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert attnbench.accelerate.report().served["chunk_gated_delta_rule"] == 120
    assert not failures and places() == before


def test_modules_may_be_imported_later(attnbench):  # noqa: ARG001
    """In a process of its own, where no modelling module is imported yet."""
    code = """
import sys, torch, attnbench
with attnbench.accelerate():
    from transformers.models.mamba2 import modeling_mamba2 as later
    scan = later.mamba2_chunk_scan
    def call():
        scan(torch.ones(1, 4, 2, 3), torch.ones(1, 4, 2), -torch.ones(2), torch.ones(1, 4, 1, 5), torch.ones(1, 4, 1, 5), 2)
    call()
    report = attnbench.accelerate.report()
call()
assert report.served == {"mamba_chunk_scan_combined": 1} and attnbench.accelerate.report() == report, report
from transformers.integrations import hub_kernels
assert later.use_kernel_func_from_hub_with_fallback is hub_kernels.use_kernel_func_from_hub_with_fallback
assert hub_kernels.use_kernel_func_from_hub_with_fallback.__module__ == hub_kernels.__name__
print("fine")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False)
    assert ended.stdout == "fine\n", ended.stderr
    import transformers

    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("attnbench: ")]
    assert transformers.__version__ in line and "mamba_chunk_scan_combined" in line


# ---------------------------------------------------------------- what is passed on, and refused


@pytest.mark.parametrize("moment", ["before the search", "after the search"])
def test_modules_that_are_imported_meanwhile_are_served(attnbench, held, monkeypatch, moment):
    """As by an import of another thread, while accelerate() searches for the functions of imported modules."""
    from attnbench.acceleration._transformers import Kernels
    from transformers.integrations import hub_kernels

    reference = cells(held)["torch_function"].cell_contents
    made, searched, checked = [], gc.get_referrers, Kernels._check

    def import_once():
        if not made:
            made.append(None)
            made[0] = hub_kernels.use_kernel_func_from_hub_with_fallback("chunk_gated_delta_rule", "fla")(reference)

    def search(*objects):
        import_once()
        return searched(*objects)

    def check(kernels, function):
        import_once()
        checked(kernels, function)

    place = (gc, "get_referrers", search) if moment == "before the search" else (Kernels, "_check", check)
    with monkeypatch.context() as patched:
        patched.setattr(*place)
        request = attnbench.accelerate(quiet=True)
    with request:
        assert serves(attnbench, made[0])
        made[0](*example(), unknown=None, other=3)
        assert sum(attnbench.accelerate.report().passed_on["chunk_gated_delta_rule"].values()) == 1
    assert not serves(attnbench, made[0]) and not serves(attnbench, held)


def cells(function):
    return dict(zip(function.__code__.co_freevars, function.__closure__, strict=True))


def test_other_arguments_are_passed_on_and_counted(attnbench, held):
    arguments = example()
    with attnbench.accelerate(quiet=True):
        expected = held(*arguments)[0]
        output = held(*arguments, an_argument=3)[0]
        held(*arguments, num_items_in_batch=3, output_attentions=False, unknown=None)
        held(*example(device="meta"))
        text = str(attnbench.accelerate.report())
        report = attnbench.accelerate.report()
    torch.testing.assert_close(output, expected)
    assert report.served == {"chunk_gated_delta_rule": 2}
    assert report.passed_on == {"chunk_gated_delta_rule": {"the argument an_argument": 1, "a tensor is on meta": 1}}
    assert "chunk_gated_delta_rule: 2 served, 2 passed on\n    1 × a tensor is on meta\n" in text


def test_what_our_operator_refuses_is_passed_on(attnbench, held):
    q, k, v, g, beta = example()
    with attnbench.accelerate(quiet=True):
        output, _ = held(q.double(), k, v, g, beta)  # mixed dtypes
        assert output.dtype == torch.float64
        (reason,) = attnbench.accelerate.report().passed_on["chunk_gated_delta_rule"]
        assert reason.startswith("ValueError: ")
        with pytest.raises(RuntimeError, match="size"):  # wrong for both: the error is theirs
            held(q, k[:, :3], v, g, beta)


def test_decoding_steps_that_need_gradients_are_passed_on(attnbench, held):  # noqa: ARG001
    from transformers.models.qwen3_5 import modeling_qwen3_5

    x = torch.randn(1, 3, 1, requires_grad=True)
    with attnbench.accelerate(quiet=True):
        modeling_qwen3_5.causal_conv1d_update(x, torch.zeros(1, 3, 4), torch.ones(3, 4), None, "silu").sum().backward()
        assert x.grad.abs().sum() > 0
        assert attnbench.accelerate.report().passed_on == {"causal_conv1d_update": {"gradients of a decoding step": 1}}
        with torch.no_grad():
            modeling_qwen3_5.causal_conv1d_update(x, torch.zeros(1, 3, 4), torch.ones(3, 4), None, "silu")
        assert attnbench.accelerate.report().served == {"causal_conv1d_update": 1}


def test_packed_sequences_that_nobody_keeps_apart_are_an_error(attnbench, configurations):
    """The convolution of a model with another activation is passed on, and what would run in its place mixes the sequences."""
    model = configurations["qwen3.5"].build()
    for module in model.modules():
        if hasattr(module, "activation"):
            module.activation = "gelu"
    positions = torch.cat([torch.arange(8), torch.arange(12)])[None]
    for packing in ({"cu_seq_lens_q": torch.tensor([0, 8, 20])}, {"seq_idx": torch.tensor([[0] * 8 + [1] * 12])}):
        with attnbench.accelerate(quiet=True), pytest.raises(ValueError, match="causal_conv1d_fn: attnbench cannot take this call"):
            model(tokens(1, 20), use_cache=False, position_ids=positions, **packing)


def test_packed_sequences_of_minimax_are_an_error(attnbench, configurations):
    model = configurations["minimax"].build()
    packing = {"position_ids": torch.cat([torch.arange(8), torch.arange(12)])[None], "cu_seq_lens_q": torch.tensor([0, 8, 20])}
    reason = r"lightning attention of MiniMax: attnbench cannot take this call \(the argument cu_seq_lens_q\)"
    with attnbench.accelerate(quiet=True), pytest.raises(ValueError, match=reason):
        model(tokens(1, 20), use_cache=False, **packing)


def test_borders_that_contradict_each_other_are_passed_on(attnbench, held):  # noqa: ARG001
    from attnbench.acceleration._counters import PassOn
    from attnbench.acceleration._operators import take_borders

    lengths, numbers = torch.tensor([0, 2, 5]), torch.tensor([[0, 0, 1, 1, 1]])
    for given in ({"cu_seqlens": lengths}, {"seq_idx": numbers}, {"seq_idx": numbers, "cu_seq_lens_q": lengths.int()}):
        assert take_borders(1, 5, given).tolist() == [0, 2, 5] and not given
    with pytest.raises(PassOn, match="different packed sequences"):
        take_borders(1, 5, {"seq_idx": numbers, "cu_seqlens": torch.tensor([0, 3, 5])})
    with pytest.raises(PassOn, match=r"seq_idx of shape \[5\] in a batch of 1, expected \[1, 5\]"):
        take_borders(1, 5, {"seq_idx": numbers[0]})


def test_other_signatures_are_refused_by_name(attnbench, held):
    from transformers.integrations.hub_kernels import use_kernel_func_from_hub_with_fallback

    def another_rule(query, key, value, g, beta, chunk_size=32, **kwargs):
        return query, key, value, g, beta, chunk_size, kwargs

    before = places()
    wrapped = use_kernel_func_from_hub_with_fallback("chunk_gated_delta_rule", "fla")(another_rule)
    with pytest.raises(ImportError) as refusal:
        attnbench.accelerate(quiet=True)
    text = str(refusal.value)
    assert "another_rule has other parameters than in transformers 5.23.0" in text and "found  query, key" in text
    assert "chunk_size=32" in text and "chunk_size=64" in text
    assert not serves(attnbench, held)
    del wrapped, refusal
    gc.collect()
    assert places() == before
    with attnbench.accelerate(quiet=True):
        from transformers.integrations import hub_kernels  # a module that is imported later

        decorate = hub_kernels.use_kernel_func_from_hub_with_fallback("chunk_gated_delta_rule", "fla")
        with pytest.raises(attnbench.acceleration.SignatureError, match="another_rule"):
            decorate(another_rule)
    # Whoever has kept the decorator longer gets what transformers makes.
    assert decorate(another_rule)(*example())[5] == 32


def test_a_method_without_source_is_refused(attnbench, held, monkeypatch):
    from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention

    before = places()
    with monkeypatch.context() as patched:
        patched.setattr(MiniMaxLightningAttention, "forward", functools.partial(MiniMaxLightningAttention.forward))
        with pytest.raises(attnbench.acceleration.SignatureError, match="found  SHA-256 no source"):
            attnbench.accelerate(quiet=True)
    assert places() == before and not serves(attnbench, held)


def test_compiled_models_compute_the_same(attnbench, configurations):
    """With torch 2.11 the functions of transformers believe that compiling is exporting, for which they
    take their references whatever else there is; ours does not change that."""
    smaller = configurations["qwen3.5"].settings | {"num_hidden_layers": 1, "layer_types": ["linear_attention"]}
    model = replace(configurations["qwen3.5"], settings=smaller).build().eval()
    inputs = tokens(1, 16)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        expected = model(inputs, use_cache=False).logits
        expect_close(compiled(inputs, use_cache=False).logits, expected, 1e-5)
        with attnbench.accelerate(quiet=True):
            expect_close(compiled(inputs, use_cache=False).logits, expected, 1e-5)
            assert not attnbench.accelerate.report().served
            expect_close(model(inputs, use_cache=False).logits, expected, 1e-5)
            assert attnbench.accelerate.report().served["chunk_gated_delta_rule"] == 1
        expect_close(compiled(inputs, use_cache=False).logits, expected, 1e-5)
