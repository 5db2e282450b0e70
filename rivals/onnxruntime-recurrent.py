"""The gated delta rule by onnxruntime's operator LinearAttention, which has no gradients.

The operator takes keys of length 1, so q and k are normalized by PyTorch operations first, and packs
the heads of a position into one row."""

import functools

import attnbench
import torch

INSTALL = "pip install onnxruntime==1.31.1 onnx==1.23.2"


@functools.cache
def session(heads, value_heads, threads):
    """A session that runs the operator alone."""
    import onnxruntime
    from onnx import TensorProto, helper

    names = ["query", "key", "value", "decay", "beta"]
    node = helper.make_node(
        "LinearAttention",
        ["query", "key", "value", "", "decay", "beta"],
        ["output", "state"],
        domain="com.microsoft",
        q_num_heads=heads,
        kv_num_heads=value_heads,
        update_rule="gated_delta",
    )
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * 3) for name in [*names, "output"]]
    graph = helper.make_graph([node], "linear_attention", values[:-1], values[-1:])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # By default the session's threads keep the processors busy after a call, while PyTorch's threads work. Measured in turns with
    # gated-delta on two processors, both then took up to twice as long.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


@attnbench.method(
    description="the gated delta rule by onnxruntime's LinearAttention",
    exact="gated-delta",
    requires={"onnxruntime": INSTALL, "onnx": INSTALL},
    time_order="O(N)",
    memory_order="O(N)",
    full=False,
    cross_attention=False,
    key_lengths=False,
    gradients=False,
    dtypes=["float32"],
)
def gated_delta(q, k, v, *, causal, g, beta):
    """q and k [B,H,N,D], v [B,H,N,M], g and beta [B,H,N]."""
    del causal
    q, k = (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    packed = [x.transpose(1, 2).flatten(2).numpy() for x in (q, k, v)]
    gates = [x.transpose(1, 2).contiguous().numpy() for x in (g, beta)]
    run = session(q.shape[1], v.shape[1], torch.get_num_threads()).run
    (output,) = run(None, dict(zip(("query", "key", "value", "decay", "beta"), (*packed, *gates), strict=True)))
    return torch.from_numpy(output).unflatten(2, (v.shape[1], -1)).transpose(1, 2).contiguous()
