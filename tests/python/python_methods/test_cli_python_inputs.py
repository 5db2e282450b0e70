"""Tests of functions in Python that read tensors beside q, k and v: calls, gradients, decoding, files and mistakes."""

import json
import struct
import textwrap

import pytest
import torch
from conftest import small
from test_cli_python_functions import outcomes, records  # noqa: F401
from python_functions import pytestmark  # noqa: F401

GATED = """
    import attnbench
    import torch

    def decay(g, length):
        total = torch.zeros(1, 1, length) if g is None else g.cumsum(2)
        return (total.unsqueeze(3) - total.unsqueeze(2)).tril().exp().tril()

    def output_of(q, k, v, g):
        return (q @ k.transpose(2, 3) * decay(g, q.shape[2])).to(v.dtype) @ v

    def by_recurrence(q, k, v, *, g, rows):
        state, outputs = q.new_zeros(*q.shape[:2], q.shape[3], v.shape[3]), []
        for i in range(q.shape[2]):
            if g is not None:
                state = state * g[:, :, i, None, None].exp()
            state = state + k[:, :, i, :, None] * v[:, :, i, None]
            outputs.append(q[:, :, i, None] @ state)
        return torch.cat(outputs, 2)[:, :, rows]

    class State:
        def __init__(self, problem):
            self.sums = torch.zeros(problem["batch"], problem["heads"], problem["head_dim"], problem["value_dim"])

        def step(self, q, k, v, g):
            self.sums = self.sums * g.unsqueeze(3).exp() + k.transpose(2, 3) @ v
            return q @ self.sums

    declared = attnbench.method(reference=by_recurrence, full=False, causal=True, cross_attention=False, decode=State)

    @declared
    def gated(q, k, v, *, causal, g):
        return output_of(q, k, v, g)

    @declared
    def optional(q, k, v, *, causal, g=None):
        return output_of(q, k, v, g)

    @declared
    def without_gradient_of_g(q, k, v, *, causal, g):
        return output_of(q, k, v, g.detach())

    @declared
    def changes_g(q, k, v, *, causal, g):
        output = output_of(q, k, v, g)
        with torch.no_grad():
            g.mul_(0.5)
        return output

    def gradients(grad_output, q, k, v, output, *, causal, g):
        leaves = [x.detach().requires_grad_() for x in (q, k, v, g)]
        with torch.enable_grad():
            return torch.autograd.grad(output_of(*leaves), leaves, grad_output)

    @attnbench.method(reference=by_recurrence, full=False, causal=True, cross_attention=False, backward=gradients)
    def own_backward(q, k, v, *, causal, g):
        return output_of(q, k, v, g)

    @attnbench.method(exact="softmax")
    def g_is_an_option(q, k, v, *, causal, g=0.5):
        assert g == 0.5
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
"""
ALL = ("gated", "optional", "without_gradient_of_g", "changes_g", "own_backward", "g_is_an_option")


@pytest.fixture
def attnbench(forking):
    return forking


@pytest.mark.parametrize("command", ["measure", "verify"])
def test_a_further_tensor_is_given_by_its_name_and_has_a_gradient(records, command):  # noqa: F811
    methods = [f"gated.py:{name}" for name in ALL]
    found = records({"gated.py": GATED}, methods, command, causal=True, protocol="forward_backward")
    wrong = {"gated.py:without_gradient_of_g": "gradient of g disagrees with the float64 reference",
             "gated.py:changes_g": "the call changed its input g in place"}  # fmt: skip
    for method, (outcome, reason) in outcomes(found).items():
        assert outcome == ("failed" if method in wrong else "measured"), (method, reason)
        assert reason.startswith(wrong.get(method, "")), reason


def test_a_decoding_state_gets_the_further_tensor(records):  # noqa: F811
    found = records({"gated.py": GATED}, ["gated.py:gated", "gated.py:optional"], causal=True, protocol="decode")
    assert {outcome for outcome, _ in outcomes(found).values()} == {"measured"}


def test_the_reference_of_some_heads_gets_their_part_of_the_further_tensor(records):  # noqa: F811
    found = records({"gated.py": GATED}, ["gated.py:gated"], causal=True, heads=40, memory_limit_bytes=4 * 2**20)
    assert outcomes(found) == {"gated.py:gated": ("measured", "")}


def test_inputs_of_a_file_may_hold_the_further_tensor(records, tmp_path):  # noqa: F811
    tensors = {name: torch.randn(1, 2, 64, 8) for name in "qkv"} | {"g": -torch.rand(1, 2, 64)}

    def written(names):
        header, data = {}, b""
        for name in names:
            content = tensors[name].numpy().tobytes()
            header[name] = {"dtype": "F32", "shape": list(tensors[name].shape), "data_offsets": [len(data), len(data) + len(content)]}
            data += content
        text = json.dumps(header).encode()
        path = tmp_path / f"{''.join(names)}.safetensors"
        path.write_bytes(struct.pack("<Q", len(text)) + text + data)
        return f"file:{path}"

    sizes = {"batch": 1, "heads": 2, "query_len": 64, "key_len": 64, "head_dim": 8, "value_dim": 8, "causal": True}
    methods = ["gated.py:gated", "gated.py:optional"]
    assert outcomes(records({"gated.py": GATED}, methods, inputs=written("qkvg"), **sizes)) == dict.fromkeys(methods, ("measured", ""))
    without = outcomes(records({"gated.py": GATED}, methods, inputs=written("qkv"), **sizes))
    assert without["gated.py:optional"] == ("measured", "")
    assert "no tensor has the name 'g'" in without["gated.py:gated"][1]


def test_measure_takes_a_function_with_a_further_tensor(attnbench, tmp_path):
    path = tmp_path / "gated.py"
    path.write_text(textwrap.dedent(GATED))
    done = attnbench("measure", f"{path}:gated", "--causal", *small(protocol="forward_backward"))
    assert done.returncode == 0, done.stderr


MASKED = """
    import attnbench

    def seen(q, k, v, *, causal, pattern, cu_seqlens=None):
        return attnbench.sparse_attention(q, k, v, causal=causal, pattern=pattern, cu_seqlens=cu_seqlens)

    def ignores_both(q, k, v, *, causal, pattern="all", cu_seqlens=None):
        return attnbench.sparse_attention(q, k, v, causal=causal)

    def by_reference(q, k, v, *, causal, pattern, cu_seqlens, rows):
        return attnbench.sparse_attention(q, k, v, causal=causal, pattern=pattern, cu_seqlens=cu_seqlens)[:, :, rows]

    @attnbench.method(reference=by_reference)
    def own_reference(q, k, v, *, causal, pattern, cu_seqlens):
        return seen(q, k, v, causal=causal, pattern=pattern, cu_seqlens=cu_seqlens)

    def neither(q, k, v, *, causal):
        return attnbench.sparse_attention(q, k, v, causal=causal)
"""


def test_functions_take_patterns_and_packed_sequences(attnbench, tmp_path):
    (tmp_path / "masked.py").write_text(textwrap.dedent(MASKED))
    functions = ["seen:like=softmax", "ignores_both:like=softmax", "own_reference", "neither:like=softmax"]
    methods = ", ".join(f'"masked.py:{name}"' for name in functions)
    (tmp_path / "masked.toml").write_text(f"""
        [[axes]]
        method = [{methods}]
        causal = true
        query_len = 64
        heads = 2
        head_dim = 16
        pattern = ["window:8", "all"]
        [[axes]]
        method = [{methods}]
        query_len = 64
        heads = 2
        head_dim = 16
        packed = "uniform:5"
        [timing]
        processes = 1
        time_budget_s = 0.02
    """)
    attnbench("sweep", "masked.toml", "--out", "out", code=1)
    found = {}
    for line in (tmp_path / "out/records.jsonl").read_text().splitlines():
        record = json.loads(line)
        key = (record["method"].split(":")[1], record["pattern"], record["packed"])
        found[key] = record["reason"].split(";")[0] if record["outcome"] == "skipped" else record.get("failure_kind") or record["outcome"]
    masks = [("window:8", "none"), ("all", "none"), ("all", "uniform:5")]
    for name in ("seen", "own_reference"):
        assert {found[name, *mask] for mask in masks} == {"measured"}
    assert [found["ignores_both", *mask] for mask in masks] == ["invalid", "measured", "invalid"]
    assert found["neither", "window:8", "none"].endswith("has no patterns of visible keys")
    assert found["neither", "all", "uniform:5"].endswith("takes no packed sequences")
