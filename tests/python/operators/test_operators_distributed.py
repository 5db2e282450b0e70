"""Tests of operators over sequences that are split over ranks: results, states and gradients of 2, 3 and 4
ranks against one process, what the ranks hand to collectives, and what is refused.

distributed_cases.py runs all cases in a few groups of ranks.
"""

import json
import math
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch

CASES = Path(__file__).with_name("distributed_cases.py")


@pytest.fixture(scope="module", autouse=True)
def library(build):
    torch.ops.load_library(str(build / "libattn.so"))


@pytest.fixture(scope="module")
def everything():
    """What the ranks printed."""
    done = subprocess.run(
        [sys.executable, CASES, "2", "3", "4"], capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def lines(everything):
    """What each rank found in each case."""
    found = [line for line in everything if "case" in line]
    failed = [f"{x['ranks']} ranks, rank {x['rank']}: {x['case']}\n{x['failed']}" for x in found if "failed" in x]
    assert not failed, "\n".join(failed)
    cases = {x["case"] for x in found}
    assert len(cases) >= 55 and len(found) == len(cases) * (2 + 3 + 4) * 2
    return found


def errors_by_tensor(lines, dtype):
    """By (ranks, case, tensor): the errors that the ranks found."""
    found = defaultdict(list)
    for line in lines:
        if line["dtype"] == dtype:
            for name, error in line["errors"].items():
                assert error["finite"], (line["ranks"], line["case"], name)
                found[line["ranks"], line["case"], name].append(error)
    return found


def test_float64_equals_one_process(lines):
    for key, errors in errors_by_tensor(lines, "float64").items():
        assert max(x["error"][0] for x in errors) <= 1e-11 * max(x["largest"] for x in errors), key


def test_float32_is_as_exact_as_one_process(lines):
    """The root of the mean squared error against float64 is at most twice that of one process. Errors of a few roundings of
    the largest entry do not count, and a little more of sums over all positions, which ranks add up in another order."""
    for (ranks, case, name), errors in errors_by_tensor(lines, "float32").items():
        mine, alone = (
            math.sqrt(sum(x[key][1] ** 2 for x in errors) / len(errors)) for key in ("error", "of_one_process")
        )
        largest = max(x["largest"] for x in errors)
        is_sum = name in ("gradient of A", "gradient of dt_bias", "gradient of A_log", "gradient of D")
        worst = max(x["error"][0] for x in errors)
        assert mine <= 2 * alone or worst <= (2e-6 if is_sum else 2e-7) * largest, (ranks, case, name, mine, alone)
        assert worst <= 1e-5 * largest, (ranks, case, name, worst, largest)


@pytest.mark.parametrize(
    ("case", "transition", "heads", "batch", "states"),
    [
        ("gated delta, mild gates", "matrix", 4, 2, 2),
        ("kda, strong gates", "matrix", 4, 2, 2),
        ("gla, mild gates", "diagonal", 4, 2, 2),
        ("simple gla, mild gates", "number", 4, 2, 2),
        ("linear", "one", 4, 2, 2),
        ("linear without states", "one", 4, 2, 0),
        ("delta without states", "matrix", 4, 2, 0),
        ("linear with normaliser", "one", 2, 2, 2),
        ("packed gated delta 1", "matrix", 4, 1, 1),
        ("packed simple gla 2", "number", 4, 1, 5),
    ],
)
def test_the_payload_is_that_of_the_formula(lines, case, transition, heads, batch, states):
    from attnbench.distributed import payload_bytes

    chosen = [line for line in lines if line["case"] == case]
    assert len(chosen) == 18
    for line in chosen:
        expected = payload_bytes(
            batch=batch, heads=heads, dim=16, value_dim=25 if "with normaliser" in case else 24, transition=transition,
            item_bytes=8 if line["dtype"] == "float64" else 4, backward=True, final_states=states,
        )  # fmt: skip
        assert line["payload"] == expected


@pytest.mark.parametrize("causal", [False, True])
def test_the_payload_of_a_ring_is_that_of_the_formula(lines, causal):
    from attnbench.distributed import ring_payload_bytes

    for line in [line for line in lines if line["case"] == f"softmax, causal={causal}"]:
        item = 8 if line["dtype"] == "float64" else 4
        assert line["payload"] == ring_payload_bytes(
            batch=2, key_heads=2, length=38, dim=16, value_dim=24, ranks=line["ranks"], item_bytes=item, gradient_item_bytes=item,
            backward=True,
        )  # fmt: skip


def test_a_ring_of_one_rank_sends_only_its_header(tmp_path):
    from attnbench.distributed import count_traffic, ring_payload_bytes
    from attnbench.functional import sparse_attention

    q, k, v = (torch.randn(1, 2, 8, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with count_traffic() as traffic:
            mine = sparse_attention(q, k, v, causal=True, cp_group=torch.distributed.group.WORLD)
            found = torch.autograd.grad(mine.square().sum(), (q, k, v))
    finally:
        torch.distributed.destroy_process_group()
    alone = sparse_attention(q, k, v, causal=True)
    for x, y in zip((mine, *found), (alone, *torch.autograd.grad(alone.square().sum(), (q, k, v))), strict=True):
        torch.testing.assert_close(x, y)
    sizes = {"batch": 1, "key_heads": 2, "length": 8, "dim": 4, "value_dim": 4, "item_bytes": 8, "gradient_item_bytes": 8}
    assert traffic.payload_bytes == ring_payload_bytes(**sizes, ranks=1, backward=True) == 128


# By refused call: what every rank says.
MESSAGES = {
    "unequal slices": "the slice of rank 0 has length 40 and that of rank 1 has length 39, expected slices of equal length",
    "unequal slices of softmax": "the slice of rank 0 has length 40 and that of rank 1 has length 39",
    "another dtype": "rank 0 and rank 1 differ in the dtype",
    "another head": "rank 0 and rank 1 differ in the heads of v: 4 and 2",
    "another function": "rank 0 and rank 1 differ in the axes of the gates: 4 and 3",
    "another scale": "rank 0 and rank 1 differ in the scale",
    "beta on one rank": "rank 0 and rank 1 differ in the presence of beta or an initial state",
    "a state on one rank": "rank 0 and rank 1 differ in the presence of beta or an initial state",
    "another eps": "rank 0 and rank 1 differ in the eps",
    "other borders": "rank 0 and rank 1 differ in the cu seqlens",
    "borders of a slice": "cu_seqlens goes from 0 to 40, expected to rise from 0 to 80, which 2 slices of 40 positions have",
    "gradients on one rank": "rank 0 and rank 1 differ in the recording of gradients: 1 and 0",
    "another version": "rank 0 and rank 1 differ in the versions of attnbench and torch",
    "wrong g": "recurrent_attention: g has heads 1, expected 4 as in v",
    "a wrong state": "recurrent_attention: initial_state is Double [2, 4, 3, 24] on cpu, expected Double [2, 4, 16, 24] on cpu",
    "an unknown implementation": "recurrent_attention: there is no implementation 'avx3' for cpu",
    "wrong keys of softmax": "sparse_attention: k has dim 3, expected 16 as in q",
    "wrong keys of linear": "linear_attention: k has dim 3, expected 16 as in q",
    "cp_context": "chunk_gated_delta_rule: the argument cp_context is not supported",
    "no group": "cp_group = 'world', expected a process group of torch.distributed",
    "lsh": "lsh_attention: cp_group is not supported, because LSH attention sorts the whole sequence",
    "an odd slice": "the slices of q and k have lengths 39 and 39; causal=True with cp_group needs equal and even lengths",
    "composed softmax": "implementation = 'composed' on cpu",
    "a pattern": "pattern does not go with cp_group",
    "key lengths of softmax": "key_lengths does not go with cp_group",
    "key lengths of linear": "key_lengths does not go with cp_group",
    "random features": "feature_map = 'favor', expected one of elu, elu0.1, relu beside cp_group",
}


def test_every_rank_says_what_is_refused(everything):
    found = {(line["rank"], line["refused"]): line["message"] for line in everything if "refused" in line}
    assert set(found) == {(rank, name) for rank in range(2) for name in MESSAGES}
    for (rank, name), message in found.items():
        assert MESSAGES[name] in message, (rank, name, message)
