"""Tests of the operators' CUDA kernels on a real GPU, against the same operators in float64 on the
CPU."""

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture(scope="module", autouse=True)
def library(build):
    torch.ops.load_library(str(build / "libattn.so"))
    torch.ops.load_library(str(build / "libattn-cuda.so"))


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
    theirs = [x.double().requires_grad_() for x in inputs]
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
    with pytest.raises(ValueError, match="'avx2' is not for CUDA"):
        torch.ops.attn.linear_attention(q, q, q, True, implementation="avx2")
