"""Tests of the operators' CUDA kernels on a real GPU, against the same operators in float64 on the
CPU. Without a GPU they are skipped or, if ATTNBENCH_REQUIRE_GPU is set, fail. ATTNBENCH_LIBRARIES
names the folder of the libraries; without it, that is the build folder. A bundle for GPU nodes has
this file without the others beside it (tools/gpu_bundle.py)."""

import os
from pathlib import Path

import pytest
import torch

REQUIRED = bool(os.environ.get("ATTNBENCH_REQUIRE_GPU"))
pytestmark = pytest.mark.skipif(not torch.cuda.is_available() and not REQUIRED, reason="no CUDA device")


@pytest.fixture(scope="module", autouse=True)
def library(request):
    assert torch.cuda.is_available(), "torch finds no GPU, but ATTNBENCH_REQUIRE_GPU says that there is one"
    folder = os.environ.get("ATTNBENCH_LIBRARIES") or request.getfixturevalue("build")
    for name in ("libattn.so", "libattn-cuda.so"):
        torch.ops.load_library(str(Path(folder) / name))


# By name: the implementation, the dtype of the inputs, and the tolerance of the relative error.
KINDS = {
    "cuda-bfloat16": ("cuda", torch.bfloat16, 4e-2),
    "cuda-float16": ("cuda", torch.float16, 1e-2),
    "cuda-float32": ("cuda", torch.float32, 1e-4),
    "cuda-tf32": ("cuda-tf32", torch.float32, 1e-2),
    "cuda-plain-float32": ("cuda-plain", torch.float32, 1e-4),
    "cuda-plain-float64": ("cuda-plain", torch.float64, 1e-10),
}


def normal(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def expect_close(found, expected, tolerance):
    """Checks the largest difference relative to the largest entry, on whose scale kernels round."""
    error = (found.double().cpu() - expected.double().cpu()).abs().max() / expected.abs().max()
    assert error < tolerance, f"the largest difference is {error} of the largest entry"


def expect_agreement(call, inputs, implementation, tolerance):
    """Compares output and gradients of call(implementation, *inputs) on the GPU with those of the
    composed implementation in float64 on the CPU."""
    mine = [x.cuda().requires_grad_() for x in inputs]
    theirs = [x.cpu().double().requires_grad_() for x in inputs]
    found, expected = call(implementation, *mine), call("composed", *theirs)
    assert found.dtype == inputs[0].dtype and found.is_cuda
    expect_close(found, expected, tolerance)
    gradient = normal(*expected.shape, seed=9)
    for a, b in zip(
        torch.autograd.grad(found, mine, gradient.to(found)),
        torch.autograd.grad(expected, theirs, gradient),
        strict=True,
    ):
        expect_close(a, b, tolerance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [1, 100, 5000])
@pytest.mark.parametrize("dims", [(64, 64), (16, 32), (128, 128), (40, 24)])
def test_linear_attention_agrees_with_float64(kind, causal, length, dims):
    implementation, dtype, tolerance = KINDS[kind]
    inputs = [normal(2, 3, length, d, dtype=dtype) for d in (dims[0], dims[0], dims[1])]
    lengths = torch.tensor([length, max(1, length // 3)])

    def call(wanted, q, k, v):
        return torch.ops.attn.linear_attention(
            q, k, v, causal, lengths.to(q.device), implementation=wanted
        )

    expect_agreement(call, inputs, implementation, tolerance)


@pytest.mark.parametrize("kind", ["cuda-bfloat16", "cuda-float16", "cuda-float32"])
@pytest.mark.parametrize("profile", ["trax", "fast-transformers"])
@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize(("length", "dim"), [(64, 64), (3000, 64), (500, 128), (200, 16)])
def test_lsh_attention_agrees_with_float64(kind, profile, rounds, length, dim):
    implementation, dtype, tolerance = KINDS[kind]
    rotations = normal(dim, rounds, max(1, length // 64))

    def call(wanted, qk, v):
        return torch.ops.attn.lsh_attention(
            qk, v, rotations.to(qk.device), 64, True, profile=profile, implementation=wanted
        )

    inputs = [normal(2, 2, length, dim, seed=i, dtype=dtype) for i in range(2)]
    expect_agreement(call, inputs, implementation, tolerance)


# Ways to lay out a tensor of the shape (batch, heads, length, dim) other than contiguously.
LAYOUTS = {
    "heads beside each other": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "dimensions apart": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "every second row": lambda x: x.repeat_interleave(2, 2)[:, :, ::2],
    "one head for all": lambda x: x[:, :1].expand_as(x),
    "at an odd address": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view_as(x),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("causal", [True, False])
def test_linear_attention_takes_strided_inputs(kind, layout, causal):
    implementation, dtype, tolerance = KINDS[kind]
    inputs = [LAYOUTS[layout](normal(2, 3, 300, 64, seed=i, dtype=dtype).cuda()) for i in range(3)]

    def call(wanted, q, k, v):
        return torch.ops.attn.linear_attention(q, k, v, causal, implementation=wanted)

    expect_agreement(call, inputs, implementation, tolerance)


@pytest.mark.parametrize("kind", ["cuda-bfloat16", "cuda-float32"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_lsh_attention_takes_strided_inputs(kind, layout):
    implementation, dtype, tolerance = KINDS[kind]
    rotations = normal(64, 2, 5)
    inputs = [LAYOUTS[layout](normal(2, 3, 300, 64, seed=i, dtype=dtype).cuda()) for i in range(2)]

    def call(wanted, qk, v):
        return torch.ops.attn.lsh_attention(qk, v, rotations.to(qk.device), 64, True, implementation=wanted)

    expect_agreement(call, inputs, implementation, tolerance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [True, False])
def test_linear_attention_of_65536_positions_agrees_with_float64(kind, causal):
    implementation, dtype, tolerance = KINDS[kind]
    inputs = [normal(1, 2, 65536, 64, seed=i, dtype=dtype) for i in range(3)]

    def call(wanted, q, k, v):
        return torch.ops.attn.linear_attention(q, k, v, causal, implementation=wanted)

    expect_agreement(call, inputs, implementation, tolerance)


@pytest.mark.parametrize("kind", ["cuda-bfloat16", "cuda-float32"])
def test_lsh_attention_of_65536_positions_agrees_with_float64(kind):
    implementation, dtype, tolerance = KINDS[kind]
    rotations = normal(64, 1, 1024)
    inputs = [normal(1, 1, 65536, 64, seed=i, dtype=dtype) for i in range(2)]

    def call(wanted, qk, v):
        return torch.ops.attn.lsh_attention(qk, v, rotations.to(qk.device), 64, True, implementation=wanted)

    expect_agreement(call, inputs, implementation, tolerance)


@pytest.mark.parametrize("implementation", ["cuda", "cuda-tf32", "cuda-plain"])
@pytest.mark.parametrize("causal", [True, False])
def test_means_do_not_cost_digits(implementation, causal):
    """Sums of values with a mean of 100 keep the digits of what differs between them."""
    q, k = (normal(1, 2, 4000, 64, seed=i, dtype=torch.float32) + 1 for i in range(2))
    v = normal(1, 2, 4000, 64, seed=2, dtype=torch.float32) + 100
    found = torch.ops.attn.linear_attention(q.cuda(), k.cuda(), v.cuda(), causal, implementation=implementation)
    expected = torch.ops.attn.linear_attention(q.double(), k.double(), v.double(), causal, implementation="composed")
    expect_close(found, expected, 1e-3 if implementation == "cuda-tf32" else 1e-5)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="no second CUDA device")
@pytest.mark.parametrize("name", ["linear", "lsh"])
def test_inputs_on_a_second_device_are_computed_there(name):
    assert torch.cuda.current_device() == 0
    rotations = normal(64, 2, 5)

    def call(wanted, q, v):
        if name == "linear":
            return torch.ops.attn.linear_attention(q, q, v, True, implementation=wanted)
        return torch.ops.attn.lsh_attention(q, v, rotations.to(q.device), 64, True, implementation=wanted)

    inputs = [normal(1, 2, 300, 64, seed=i, dtype=torch.float32) for i in range(2)]
    found = call("cuda", *(x.to("cuda:1") for x in inputs))
    assert found.device == torch.device("cuda:1")
    expect_close(found, call("composed", *(x.double() for x in inputs)), 1e-4)


def test_a_decoding_step_can_be_captured_in_a_cuda_graph():
    q, k, v = (normal(1, 8, 1, 64, seed=i, dtype=torch.float32).cuda() for i in range(3))
    sums, normalizers = torch.zeros(1, 8, 64, 64).cuda(), torch.zeros(1, 8, 64).cuda()

    def step():
        return torch.ops.attn.linear_attention_step(q, k, v, sums, normalizers)

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = step()
    sums.zero_(), normalizers.zero_()
    for tokens in (1, 2, 3):
        graph.replay()
        kappa = torch.nn.functional.elu(k) + 1
        torch.testing.assert_close(normalizers, tokens * kappa.squeeze(2))
    torch.testing.assert_close(output, v)  # because every token is the same


@pytest.mark.parametrize("name", ["linear", "lsh"])
def test_calls_can_be_captured_in_a_cuda_graph(name):
    q, v = normal(2, 4, 2000, 64, dtype=torch.bfloat16).cuda(), normal(2, 4, 2000, 64, seed=1, dtype=torch.bfloat16).cuda()
    rotations = normal(64, 2, 16).cuda()

    def call():
        if name == "linear":
            return torch.ops.attn.linear_attention(q, q, v, True)
        return torch.ops.attn.lsh_attention(q, v, rotations, 64, True)

    expected = call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = call()
    graph.replay()
    torch.testing.assert_close(found, expected)


def test_kernels_run_on_the_current_stream():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        q = torch.randn(1, 2, 300, 64, device="cuda")
        found = torch.ops.attn.linear_attention(q, q, q, True)
    stream.synchronize()
    expected = torch.ops.attn.linear_attention(q.cpu(), q.cpu(), q.cpu(), True)
    expect_close(found, expected, 1e-4)


def test_an_implementation_that_is_not_available_is_refused():
    q = torch.randn(1, 1, 8, 200, device="cuda")
    with pytest.raises(ValueError, match="'cuda' needs head_dim and value_dim of at most 128"):
        torch.ops.attn.linear_attention(q, q, q, True, implementation="cuda")
    with pytest.raises(ValueError, match="there is no implementation 'avx2' for cuda"):
        torch.ops.attn.linear_attention(q, q, q, True, implementation="avx2")
