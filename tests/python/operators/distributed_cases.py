"""Runs operators over sequences that are split over ranks, and compares them with one process.

    python distributed_cases.py RANKS …   # → a line of JSON for each group of ranks and case

torch is imported once, and ranks are forks of this process. Each rank computes the whole sequence as
well, and compares its slice of the results and of the gradients.
"""

import datetime
import json
import multiprocessing
import sys
import tempfile
import traceback

import torch
import torch.distributed as dist

from attnbench import functional, recurrent
from attnbench.distributed import _exchange, count_traffic, zigzag
from attnbench.recurrent import _rule

BATCH, HEADS, VALUE_HEADS, DIM, VALUE_DIM = 2, 2, 4, 16, 24


class Example:
    """Tensors of a whole sequence, float64, and which of them are cut along time."""

    def __init__(self, length, *, batch=BATCH, value_heads=VALUE_HEADS, gates="mild", seed=0, states=None):
        self.generator = torch.Generator().manual_seed(seed)
        self.length = length
        self.q = self.normal(batch, length, HEADS, DIM)
        self.k = torch.nn.functional.normalize(self.normal(batch, length, HEADS, DIM), dim=-1)
        self.v = self.normal(batch, length, value_heads, VALUE_DIM) * 3 + 1
        self.beta = self.normal(batch, length, value_heads).sigmoid()
        self.g = self.gate((batch, length, value_heads), gates)
        self.features = self.gate((batch, length, value_heads, DIM), gates)
        self.state = self.normal(states or batch, value_heads, DIM, VALUE_DIM)

    def normal(self, *sizes):
        return torch.randn(*sizes, generator=self.generator, dtype=torch.float64)

    def gate(self, sizes, kind):
        g = -torch.nn.functional.softplus(self.normal(*sizes)) / 20
        if kind == "strong":  # decays that clear the state, or all but clear it
            g = g * 200
        if kind == "infinite":
            g[torch.rand(sizes, generator=self.generator) < 0.02] = -torch.inf
        return g


def cases(ranks):
    """By name: (function of tensors and options, tensors cut along time, tensors that every rank has, options, how the
    options are cut)."""
    long = 37 * ranks
    found = {}
    for gates in ("mild", "strong", "infinite"):
        e = Example(long, gates=gates)
        qkv, final = {"q": e.q, "k": e.k, "v": e.v}, {"output_final_state": True}
        start = {"initial_state": e.state}
        found |= {
            f"gated delta, {gates} gates": (recurrent.chunk_gated_delta_rule, qkv | {"g": e.g, "beta": e.beta}, start, final),
            f"kda, {gates} gates": (recurrent.chunk_kda, qkv | {"g": e.features, "beta": e.beta}, start, final),
            f"simple gla, {gates} gates": (recurrent.chunk_simple_gla, qkv | {"g": e.g}, start, final),
            f"gla, {gates} gates": (recurrent.chunk_gla, qkv | {"g": e.features}, start, final),
        }
    found |= {
        "delta": (recurrent.chunk_delta_rule, qkv | {"beta": e.beta}, start, final),
        "delta without states": (recurrent.chunk_delta_rule, qkv | {"beta": e.beta}, {}, {}),
        "retention": (recurrent.chunk_retention, qkv, start, final),
        "lightning": (recurrent.chunk_lightning_attn, qkv, start, {"layer_idx": 1, "num_layers": 3, **final}),
        "linear": (recurrent.chunk_linear_attn, qkv, start, {"normalize": False, **final}),
        "linear without states": (recurrent.fused_recurrent_linear_attn, qkv, {}, {}),
        "normalised q and k": (
            recurrent.chunk_gated_delta_rule, qkv | {"g": e.g, "beta": e.beta}, start, {"use_qk_l2norm_in_kernel": True, **final},
        ),
        "value first": (
            recurrent.fused_recurrent_gated_delta_rule, qkv | {"g": e.g, "beta": e.beta},
            {"initial_state": e.state.transpose(2, 3).contiguous()}, {"state_v_first": True, "use_qk_l2norm_in_kernel": True, **final},
        ),
        "gates in the kernel": (
            recurrent.fused_recurrent_kda, qkv | {"g": e.normal(*e.features.shape), "beta": e.normal(*e.beta.shape)},
            start | {"A_log": e.normal(VALUE_HEADS), "dt_bias": e.normal(VALUE_HEADS * DIM)},
            {"use_gate_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "allow_neg_eigval": True, **final},
        ),
    }  # fmt: skip
    for name, gate in (("simple gla", e.g), ("gla", e.features)):
        found[f"{name} of normalised q and k"] = (added, {"q": e.q, "k": 5 * e.k, "v": e.v, "g": gate}, start, {"normalize": True, **final})
    positive = {"q": e.q.abs(), "k": e.k.abs(), "v": e.v[:, :, :HEADS]}
    pair = {"kv": e.state[:, :HEADS], "z": e.normal(BATCH, 1, HEADS, DIM).abs()}
    found["linear with normaliser"] = (normalised, positive, pair, {})
    found["linear with normaliser, without states"] = (recurrent.chunk_linear_attn, positive, {}, {"output_final_state": True})

    # Sequences that end at a cut, cross one or several, are empty, and lie inside a slice; and one after each other.
    for seed, borders in enumerate(
        ([0, 0, 5, 37, 37, long - 3, long], [0, long], [0, 20, 22, 60, long, long], [0, 36, 38, long - 1, long], [0, *range(1, long, 7), long])
    ):
        e = Example(long, batch=1, gates="mild" if seed % 2 else "infinite", seed=seed, states=len(borders) - 1)
        options = {"cu_seqlens": torch.tensor(borders), "output_final_state": True}
        qkv, start = {"q": e.q, "k": e.k, "v": e.v}, {"initial_state": e.state}
        found |= {
            f"packed gated delta {seed}": (recurrent.chunk_gated_delta_rule, qkv | {"g": e.g, "beta": e.beta}, start, options),
            f"packed gla {seed}": (recurrent.chunk_gla, qkv | {"g": e.features}, start, options),
            f"packed simple gla {seed}": (recurrent.chunk_simple_gla, qkv | {"g": e.g}, start, options),
            f"packed linear {seed}": (recurrent.chunk_linear_attn, qkv, start, {"normalize": False, **options}),
        }
    e = Example(long, seed=7)
    x, dt = e.v, e.normal(BATCH, long, VALUE_HEADS).exp() / 20
    mamba = {"x": x, "dt": dt, "B": e.k, "C": e.q, "z": e.normal(*x.shape)}
    whole = {"A": -e.normal(VALUE_HEADS).exp(), "D": e.normal(VALUE_HEADS), "dt_bias": e.normal(VALUE_HEADS)}
    whole["initial_states"] = e.state.transpose(2, 3).contiguous()
    options = {"chunk_size": 64, "dt_softplus": True, "return_final_states": True}
    found["mamba"] = (recurrent.mamba_chunk_scan_combined, mamba, whole, options)
    for cut in (36, 37, 38):
        numbers = (torch.arange(long) >= cut).long().expand(BATCH, -1)
        found[f"mamba with a new sequence at {cut}"] = (recurrent.mamba_chunk_scan_combined, mamba, whole, {**options, "seq_idx": numbers})
    found["simple gla under autocast"] = (autocasted(recurrent.chunk_simple_gla), *found["simple gla, mild gates"][1:])
    found["gated delta under autocast"] = (autocasted(recurrent.chunk_gated_delta_rule), *found["gated delta, mild gates"][1:])

    even = 38 * ranks
    e = Example(even, seed=9)
    for causal in (False, True):
        shared = {"q": e.v[..., :DIM], "k": e.k, "v": e.v[:, :, :HEADS]}
        found[f"softmax, causal={causal}"] = (head_first(functional.sparse_attention), shared, {}, {"causal": causal})
        found[f"softmax with sinks and log-sum-exp, causal={causal}"] = (
            head_first(functional.sparse_attention), shared, {"sinks": e.normal(VALUE_HEADS)},
            {"causal": causal, "return_log_sum_exp": True, "scale": 0.5},
        )  # fmt: skip
        same = {"q": e.q, "k": e.k, "v": e.v[:, :, :HEADS]}
        for feature_map in ("elu", "elu0.1", "relu"):
            found[f"linear attention with {feature_map}, causal={causal}"] = (
                head_first(functional.linear_attention), same, {}, {"causal": causal, "feature_map": feature_map, "eps": 1e-3},
            )  # fmt: skip
        found[f"linear attention under autocast, causal={causal}"] = (
            autocasted(head_first(functional.linear_attention)), same, {}, {"causal": causal, "eps": 1e-3},
        )  # fmt: skip
    return found


def autocasted(function):
    """The same function where PyTorch computes products in bfloat16, which must change nothing."""

    def called(**arguments):
        with torch.autocast("cpu", torch.bfloat16):
            return function(**arguments)

    return called


def head_first(function):
    """A function of tensors [B,H,T,K] as one of tensors [B,T,H,K]; a log-sum-exp [B,H,T] is one more column."""

    def called(*, sinks=None, **options):
        cut = {name: options.pop(name).transpose(1, 2) for name in ("q", "k", "v")}
        results = function(**cut, **options, **({} if sinks is None else {"sinks": sinks}))
        if isinstance(results, tuple):
            results = torch.cat([results.output, results.log_sum_exp.unsqueeze(3)], 3)
        return results.transpose(1, 2)

    called.is_zigzag = function is functional.sparse_attention
    return called


def added(**arguments):
    """The recurrence without the delta rule, with options that no public function of it has."""
    usual = {"scale": None, "cu_seqlens": None, "layout": "bthk", "implementation": "auto", "cp_group": None}
    return _rule.apply_rule(rule="add", **usual | arguments)


def normalised(*, kv, z, **others):
    return recurrent.chunk_linear_attn(**others, initial_state=(kv, z), output_final_state=True)


def run(function, cut, whole, options):
    """The results and the gradients, by name. A final state of the whole has the gradient of rank 0 alone, so that
    the losses of all ranks add up to that of one process."""
    tensors = {name: x.clone().requires_grad_() for name, x in (cut | whole).items()}
    results = flattened(function(**tensors, **options))
    return tensors, results


def flattened(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [x for part in value if part is not None for x in flattened(part)]


def paddings(cut, options, local, size):
    """How many positions that change nothing one process may have before the sequence: each cut is then the border
    of a chunk of the kernels, on which their rounding depends."""
    if not {"q", "k", "v", "g", "beta"} >= set(cut) or "use_gate_in_kernel" in options or "causal" in options:
        return [0]
    return [0, *(-rank * local % 16 for rank in range(1, size))]


def weights(results):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.dtype) for x in results]


def compare(function, cut, whole, options, dtype, group):
    """By name of a result or gradient: its error, that of one process, and the largest entry, all against one process in
    float64."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    local = next(iter(cut.values())).shape[1] // size
    is_zigzag = getattr(function, "is_zigzag", False) and options["causal"]
    part = zigzag(local * size, rank, size) if is_zigzag else slice(rank * local, (rank + 1) * local)

    def typed(tensors, dtype):
        return {name: x.to(dtype) for name, x in tensors.items()}

    def by_one_process(dtype, padding=0):
        given, changed = typed(cut, dtype), dict(options)
        if padding:
            given = {name: torch.cat([torch.zeros_like(x[:, :padding]), x], 1) for name, x in given.items()}
            if "cu_seqlens" in options:
                changed["cu_seqlens"] = torch.nn.functional.pad(options["cu_seqlens"][1:] + padding, (1, 0))
        tensors, (output, *states) = run(function, given, typed(whole, dtype), changed)
        of_output, *of_states = weights([output[:, padding:], *states])
        of_output = torch.cat([torch.zeros_like(of_output[:, :padding]), of_output], 1)
        found = torch.autograd.grad([output, *states], list(tensors.values()), [of_output, *of_states])
        shown = {"output": output[:, padding:][:, part]} | {f"state {i}": x for i, x in enumerate(states)}
        return shown | {f"gradient of {n}": x[:, padding:][:, part] if n in cut else x for n, x in zip(tensors, found, strict=True)}

    exact = by_one_process(torch.float64)
    alone = [by_one_process(dtype, padding) for padding in paddings(cut, options, local, size)] if dtype == torch.float32 else []
    mine = {name: x[:, part] for name, x in typed(cut, dtype).items()}
    sliced = {name: x[:, part] if name == "seq_idx" else x for name, x in options.items()}
    tensors, results = run(function, mine, typed(whole, dtype), {**sliced, "cp_group": group})
    all_weights = weights([torch.empty(results[0].shape[0], local * size, *results[0].shape[2:], dtype=dtype), *results[1:]])
    of_output, *of_states = all_weights
    # Each rank's loss has a share of the final states.
    found = torch.autograd.grad(results, list(tensors.values()), [of_output[:, part], *(x / size for x in of_states)])
    output, *states = results
    shown = {"output": output} | {f"state {i}": x for i, x in enumerate(states)}
    for name, x in zip(tensors, found, strict=True):
        if name in whole:
            x = x.clone()
            dist.all_reduce(x, group=group)
        shown[f"gradient of {name}"] = x
    assert set(shown) == set(exact)

    def error(x, name):
        difference = (x.detach().double() - exact[name].detach()).abs()
        return [float(difference.max()), float(difference.square().mean().sqrt())]

    return {
        name: {
            "error": error(x, name),
            "of_one_process": [max(of) for of in zip(*(error(plain[name], name) for plain in alone), strict=True)],
            "largest": float(exact[name].detach().abs().max()),
            "finite": bool(torch.isfinite(x).all()),
        }
        for name, x in shown.items()
    }


def refused_calls(rank, group):
    """By name: calls that every rank must refuse."""
    e = Example(40)
    q, k, v, g, beta = e.q, e.k, e.v, e.g, e.beta
    short = slice(0, 40 - rank)
    heads = [x.transpose(1, 2) for x in (q, k, v[:, :, :HEADS])]
    odd = [x[:, :, :39] for x in heads]
    chunk, softmax = recurrent.chunk_gated_delta_rule, functional.sparse_attention
    here = {"cp_group": group}
    packed = {"q": q[:1], "k": k[:1], "v": v[:1], "g": g[:1], "beta": beta[:1]}
    return {
        "unequal slices": lambda: chunk(q[:, short], k[:, short], v[:, short], g[:, short], beta[:, short], **here),
        "unequal slices of softmax": lambda: softmax(*(x[:, :, short] for x in heads), **here),
        "another dtype": lambda: chunk(*(x.to(torch.float64 if rank else torch.float32) for x in (q, k, v, g, beta)), **here),
        "another head": lambda: chunk(q, k, v[:, :, : 4 - 2 * rank], g[:, :, : 4 - 2 * rank], beta[:, :, : 4 - 2 * rank], **here),
        "another function": lambda: (chunk if rank else recurrent.chunk_kda)(q, k, v, g if rank else e.features, beta, **here),
        "another scale": lambda: chunk(q, k, v, g, beta, 0.1 + rank, **here),
        "beta on one rank": lambda: recurrent.fused_recurrent_delta_rule(q, k, v, beta if rank else None, **here),
        "a state on one rank": lambda: recurrent.chunk_simple_gla(q, k, v, g, initial_state=e.state if rank else None, **here),
        "another eps": lambda: functional.linear_attention(*heads, eps=1e-6 * (1 + rank), **here),
        "other borders": lambda: chunk(**packed, cu_seqlens=torch.tensor([0, 30 + rank, 80]), **here),
        "borders of a slice": lambda: chunk(**packed, cu_seqlens=torch.tensor([0, 30, 40]), **here),
        "gradients on one rank": lambda: chunk(q, k, v.clone().requires_grad_(rank == 0), g, beta, **here),
        "another version": lambda: other_version(rank, lambda: chunk(q, k, v, g, beta, **here)),
        "wrong g": lambda: chunk(q, k, v, g[:, :, :1], beta, **here),
        "a wrong state": lambda: recurrent.chunk_simple_gla(q, k, v, g, initial_state=e.state[:, :, :3], **here),
        "an unknown implementation": lambda: chunk(q, k, v, g, beta, implementation="avx3", **here),
        "wrong keys of softmax": lambda: softmax(heads[0], heads[1][..., :3], heads[2], **here),
        "wrong keys of linear": lambda: functional.linear_attention(heads[0], heads[1][..., :3], heads[2], **here),
        "cp_context": lambda: chunk(q, k, v, g, beta, cp_context=object()),
        "no group": lambda: chunk(q, k, v, g, beta, cp_group="world"),
        "lsh": lambda: functional.lsh_attention(heads[0], heads[2], **here),
        "an odd slice": lambda: softmax(*odd, causal=True, **here),
        "composed softmax": lambda: softmax(*heads, implementation="composed", **here),
        "a pattern": lambda: softmax(*heads, pattern="window:4", causal=True, **here),
        "key lengths of softmax": lambda: softmax(*heads, key_lengths=torch.tensor([3, 4]), **here),
        "key lengths of linear": lambda: functional.linear_attention(*heads, key_lengths=torch.tensor([3, 4]), **here),
        "random features": lambda: functional.linear_attention(*heads, feature_map="favor", projection=q[0, :4, 0], **here),
    }  # fmt: skip


def other_version(rank, call):
    version = _exchange._version
    _exchange._version = lambda: version() + rank
    try:
        call()
    finally:
        _exchange._version = version


def rank_main(rank, size, folder, answers):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store{size}", rank=rank, world_size=size, timeout=datetime.timedelta(seconds=60)
    )
    for name, case in cases(size).items():
        for dtype in (torch.float64, torch.float32):
            line = {"ranks": size, "rank": rank, "case": name, "dtype": str(dtype).removeprefix("torch.")}
            try:
                with count_traffic() as traffic:
                    line["errors"] = compare(*case, dtype, dist.group.WORLD)
                line["payload"] = traffic.payload_bytes
            except Exception:
                line["failed"] = traceback.format_exc()
            answers.put(json.dumps(line))
    for name, call in refused_calls(rank, dist.group.WORLD).items() if size == 2 else ():
        try:
            call()
            message = "not refused"
        except ValueError as error:
            message = str(error)
        answers.put(json.dumps({"ranks": size, "rank": rank, "refused": name, "message": message}))
    answers.put(None)
    dist.destroy_process_group()


def main():
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        for size in map(int, sys.argv[1:]):
            answers = context.SimpleQueue()
            ranks = [context.Process(target=rank_main, args=(rank, size, folder, answers)) for rank in range(size)]
            for process in ranks:
                process.start()
            ended = 0
            while ended < size:
                answer = answers.get()
                ended += answer is None
                if answer is not None:
                    print(answer, flush=True)
            for process in ranks:
                process.join()


if __name__ == "__main__":
    main()
