"""Tests of the private operators with arguments that do not fit together. Python code can call them, so
they check all that they receive. The calls run in another process, which a missing check could crash."""

import json
import subprocess
import sys

from conftest import HANG_S, ROOT

SETUP = """
import json, sys, torch
torch.ops.load_library(sys.argv[1])
ops = torch.ops.attn
torch.manual_seed(0)
q, k, v = (torch.randn(2, 3, 40, 8) for _ in range(3))
lengths = torch.tensor([40, 7])
rotations = torch.randn(8, 2, 3)
output, normalizer = ops._linear_attention(q, k, v, True, lengths, "elu", 1e-6, None, 16)
lsh_output, log_sum_exp, order = ops._lsh_attention(q, v, rotations, 4, True, lengths, "trax", None)
def linear(q=q, k=k, v=v, causal=True, lengths=lengths, map="elu", projection=None, chunk=16, implementation="auto"):
    return ops._linear_attention(q, k, v, causal, lengths, map, 1e-6, projection, chunk, implementation)
def linear_backward(gradient=torch.ones_like(output), q=q, k=k, v=v, normalizer=normalizer, lengths=lengths, map="elu", chunk=16,
                    implementation="auto"):
    return ops._linear_attention_backward(gradient, normalizer, q, k, v, True, lengths, map, 1e-6, None, chunk, implementation)
def lsh(qk=q, v=v, rotations=rotations, chunk=4, lengths=lengths, profile="trax", factors=None, implementation="auto"):
    return ops._lsh_attention(qk, v, rotations, chunk, True, lengths, profile, factors, implementation)
def lsh_backward(gradient=torch.ones_like(output), qk=q, v=v, output=lsh_output, lengths=lengths, log_sum_exp=log_sum_exp,
                 order=order, chunk=4, profile="trax", implementation="auto"):
    return ops._lsh_attention_backward(gradient, qk, v, output, lengths, log_sum_exp, order, chunk, True, profile, implementation)
tiny = torch.ones(1, 1, 1, 1)
for call in json.loads(sys.argv[2]):
    try:
        exec(call)
        result = "no error"
    except (ValueError, AssertionError) as error:
        result = f"{type(error).__name__}: {error}"
    print(json.dumps(result), flush=True)
"""


def evaluate(build, calls):
    """Runs each call and returns what came of it: the type and the message of its exception, "no error",
    or "crash" if the process did not survive it."""
    results = []
    while len(results) < len(calls):
        done = subprocess.run(
            [sys.executable, "-c", SETUP, str(build / "libattn.so"), json.dumps(calls[len(results) :])],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=HANG_S, check=False,
        )  # fmt: skip
        results += [json.loads(line) for line in done.stdout.splitlines()]
        if done.returncode != 0:
            results.append(f"crash with exit code {done.returncode}")
    return results


REFUSED = [
    ("linear(chunk=0, implementation='composed')", "chunk = 0"),
    ("linear(k=k[:1], implementation='composed')", "k has batch 1, expected 2 as in q"),
    ("linear(k=k[:, :, :7])", "v has length 40, expected 7"),
    ("linear(lengths=torch.tensor([1, 2, 3]))", "key_lengths has shape [3]"),
    ("linear(lengths=torch.tensor([1.0, 2.0]))", "key_lengths is Float"),
    ("linear(map='favor')", "projection"),
    ("linear(map='favor', projection=torch.ones(4, 3))", "projection has shape [4, 3]"),
    ("linear_backward(gradient=tiny)", "grad_output is float [1, 1, 1, 1]"),
    ("linear_backward(gradient=tiny, implementation='composed')", "grad_output is float [1, 1, 1, 1]"),
    ("linear_backward(gradient=torch.ones_like(output).double())", "grad_output is double"),
    ("linear_backward(normalizer=normalizer[:, :, :3])", "normalizer is float [2, 3, 3, 1]"),
    ("linear_backward(normalizer=normalizer.double())", "normalizer is double"),
    ("linear_backward(chunk=-1)", "chunk = -1"),
    ("linear_backward(k=k[:, :, :7], v=v[:, :, :7])", "causal needs as many keys"),
    ("lsh(chunk=0)", "chunk = 0"),
    ("lsh(v=v[:1])", "v has batch 1, expected 2 as in qk"),
    ("lsh(rotations=rotations[:5])", "rotations has dim 5, expected 8 as in qk"),
    ("lsh(profile='none')", "profile = 'none'"),
    ("lsh_backward(gradient=tiny)", "grad_output is float [1, 1, 1, 1]"),
    ("lsh_backward(gradient=tiny, implementation='composed')", "grad_output is float [1, 1, 1, 1]"),
    ("lsh_backward(order=order + 40)", "order has values from 40 to 79, expected positions from 0 to 39"),
    ("lsh_backward(order=order - 1)", "order has values from -1 to 38"),
    ("lsh_backward(order=order + 10**12, implementation='composed')", "expected positions from 0 to 39"),
    ("lsh_backward(order=order[:, :, :, :3])", "order is long [2, 3, 2, 3]"),
    ("lsh_backward(order=order.int())", "order is int"),
    ("lsh_backward(log_sum_exp=log_sum_exp[:, :, :, :3])", "log_sum_exp is double [2, 3, 2, 3]"),
    ("lsh_backward(log_sum_exp=log_sum_exp[:, :, :1])", "log_sum_exp is double [2, 3, 1, 40]"),
    ("lsh_backward(log_sum_exp=log_sum_exp.float())", "log_sum_exp is float"),
    ("lsh_backward(output=tiny)", "output is float [1, 1, 1, 1]"),
    ("lsh_backward(order=order.to('meta'))", "order is long [2, 3, 2, 40] on meta"),
]  # fmt: skip


def test_private_operators_refuse_what_does_not_fit(build):
    calls = [call for call, _ in REFUSED]
    for (call, said), result in zip(REFUSED, evaluate(build, calls), strict=True):
        assert result.startswith("ValueError") and said.lower() in result.lower(), f"{call}: {result}"


def test_key_lengths_outside_the_sequence_are_limited_to_it(build):
    calls = [
        f"far, near = ({function}(lengths=torch.tensor(lengths), implementation='{implementation}')"
        " for lengths in ([10**9, -(10**9)], [40, 0]))\n"
        "assert all(map(torch.equal, far, near)), 'they differ'"
        for implementation in ("auto", "composed")
        for function in ("linear", "linear_backward", "lsh", "lsh_backward")
    ]
    assert evaluate(build, calls) == ["no error"] * 8


def test_mixed_dtypes_under_autocast_are_refused(build):
    calls = [
        "with torch.autocast('cpu', torch.bfloat16): ops.linear_attention(q.bfloat16(), k, v, True)",
        "with torch.autocast('cpu', torch.bfloat16): assert ops.linear_attention(q, k, v, True).dtype == torch.float32",
        "with torch.autocast('cpu', torch.bfloat16): ops.lsh_attention(q.bfloat16(), v, rotations, 4, True)",
    ]
    mixed, equal, mixed_lsh = evaluate(build, calls)
    assert "k is float32 but q is bfloat16" in mixed and equal == "no error"
    assert "v is float32 but qk is bfloat16" in mixed_lsh
