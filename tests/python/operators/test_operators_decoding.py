"""Tests of attnbench.recurrent's decoding step of Mamba, and of linear attention without decay."""

import itertools

import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def recurrent(build):  # noqa: ARG001
    from attnbench import recurrent

    torch.set_num_threads(1)  # Several threads would be slower on tensors this small.
    return recurrent


def normal(*sizes, seed=0, dtype=torch.float32):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed + sum(sizes)), dtype=torch.float64).to(dtype)


# ---------------------------------------------------------------- selective_state_update


def token(kind, batch=3, heads=4, groups=2, dim=5, states=19, dtype=torch.float32):
    """The arguments of one step: those of Mamba-2, which are expanded, or different ones for all entries."""
    x, z = normal(batch, heads, dim, dtype=dtype), normal(batch, heads, dim, seed=1, dtype=dtype)
    B, C = normal(batch, groups, states, dtype=dtype), normal(batch, groups, states, seed=1, dtype=dtype)
    if kind == "expanded":
        dt = (6 * normal(batch, heads, 1, dtype=dtype)).expand(-1, -1, dim)
        A = -normal(heads, 1, 1).exp().expand(-1, dim, states)
        D, bias = (normal(heads, 1, seed=s, dtype=dtype).expand(-1, dim) for s in (2, 3))
    else:
        dt, A = 12 * normal(batch, heads, dim, seed=2, dtype=dtype), -normal(heads, dim, states).exp()
        D, bias = (normal(heads, dim, seed=s, dtype=dtype) for s in (2, 3))
    return x, dt, A, B, C, D, z, bias


def by_definition(state, x, dt, A, B, C, D=None, z=None, bias=None, softplus=False):
    state, x, dt, A, B, C, D, z, bias = (None if t is None else t.double() for t in (state, x, dt, A, B, C, D, z, bias))
    dt = dt if bias is None else dt + bias
    dt = torch.nn.functional.softplus(dt)[..., None] if softplus else dt[..., None]
    B, C = (t.repeat_interleave(x.shape[1] // t.shape[1], 1)[:, :, None] for t in (B, C))
    state = (A * dt).exp() * state + dt * x[..., None] * B
    output = (state * C).sum(3)
    output = output if D is None else output + D * x
    return output if z is None else output * torch.nn.functional.silu(z), state


def expect_close(found, expected, tolerance=1e-5):
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        assert (a.double() - b).abs().amax() <= tolerance * b.abs().amax()


@pytest.mark.parametrize("implementation", ["auto", "composed"])
@pytest.mark.parametrize("kind", ["expanded", "different"])
@pytest.mark.parametrize("states", [1, 19, 64])
def test_the_step_of_mamba(recurrent, kind, states, implementation):
    x, raw, A, B, C, D, z, bias = token(kind, states=states)
    for options in ((), (D,), (D, z), (None, None, bias), (D, z, bias, True)):
        dt = raw if len(options) == 4 else raw.abs() / 3  # Without softplus, negative steps grow without bound.
        state = normal(3, 4, 5, states)
        expected = by_definition(state, x, dt, A, B, C, *options)
        output = recurrent.selective_state_update(state, x, dt, A, B, C, *options, implementation=implementation)
        expect_close((output, state), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("of_state", [torch.float32, torch.bfloat16, torch.float64])
def test_the_step_of_mamba_in_other_dtypes(recurrent, dtype, of_state):
    given, state = token("expanded", dtype=dtype), normal(3, 4, 5, 19, dtype=of_state)
    expected = by_definition(state, *given, True)
    for implementation in ("auto", "composed"):
        mine = state.clone()
        output = recurrent.selective_state_update(mine, *given, True, implementation=implementation)
        assert output.dtype == dtype
        expect_close([output], expected[:1], 1e-2 if dtype == torch.bfloat16 else 1e-6)
        expect_close([mine], expected[1:], 1e-2 if torch.bfloat16 in (dtype, of_state) else 1e-6)


@pytest.mark.parametrize("implementation", ["auto", "composed"])
def test_rows_of_the_state_are_chosen_by_indices(recurrent, implementation):
    given, state = token("expanded"), normal(6, 4, 5, 19)
    before, rows = state.clone(), torch.tensor([4, -1, 0], dtype=torch.int32)
    expected, after = by_definition(before[[4, 0, 0]], *given, True)
    output = recurrent.selective_state_update(state, *given, True, rows, implementation=implementation)
    expect_close((output[[0, 2]], state[[4, 0]]), (expected[[0, 2]], after[[0, 2]]))
    assert not output[1].any() and torch.equal(state[[1, 2, 3, 5]], before[[1, 2, 3, 5]])


def test_the_step_of_mamba_1_and_states_that_are_not_contiguous(recurrent):
    x, dt, A, B, C, D, z, bias = token("different", heads=1, groups=1)
    expected, after = by_definition(normal(3, 1, 5, 19), x, dt, A, B, C, D, z, bias, True)
    state = normal(3, 1, 5, 19)[:, 0].transpose(1, 2).contiguous().transpose(1, 2)
    output = recurrent.selective_state_update(
        state, x[:, 0], dt[:, 0], A[0], B[:, 0], C[:, 0], D[0], z[:, 0], bias[0], True
    )
    expect_close((output, state), (expected[:, 0], after[:, 0]))


def test_steps_of_mamba_are_its_scan(recurrent):
    x, dt, B, C = normal(2, 12, 4, 8), normal(2, 12, 4), normal(2, 12, 2, 16), normal(2, 12, 2, 16, seed=1)
    A, D, bias, state = -normal(4).exp(), normal(4, seed=1), normal(4, seed=2), torch.zeros(2, 4, 8, 16)
    expected, final = recurrent.mamba_chunk_scan_combined(
        x, dt, A, B, C, 256, D, None, bias, dt_softplus=True, return_final_states=True
    )
    wide = [A[:, None, None].expand(-1, 8, 16), D[:, None].expand(-1, 8), bias[:, None].expand(-1, 8)]
    rows = [
        recurrent.selective_state_update(
            state, x[:, t], dt[:, t, :, None].expand(-1, -1, 8), wide[0], B[:, t], C[:, t], wide[1], None, wide[2], True
        )
        for t in range(12)
    ]
    expect_close((torch.stack(rows, 1), state), (expected, final))


def test_opcheck_and_errors_of_the_step_of_mamba(recurrent):
    x, dt, A, B, C, D, z, bias = token("expanded")
    state = normal(3, 4, 5, 19)
    operator = torch.ops.attn.selective_state_step
    torch.library.opcheck(operator.default, (state.clone(), x, dt, A, B, C, D, z, bias, True))
    for changed, message in [
        ({"x": x[:2]}, r"state is Float \[3, 4, 5, 19\] on cpu, expected Float \[2, 4, 5, 19\]"),
        ({"A": A[:, :, :2]}, r"A is Float \[4, 5, 2\]"),
        ({"B": B[:, [0, 0, 0]]}, "B has 3 groups, expected a divisor of the 4 heads"),
        ({"state_batch_indices": torch.tensor([0, 1, 3])}, "contains 3, but state has 3 rows"),
        ({"implementation": "avx2"}, "implementation = 'avx2', expected 'auto' or 'composed'"),
        ({"dt": dt.int()}, "dt is Int, expected a floating dtype"),
    ]:
        with pytest.raises(ValueError, match="selective_state_update: .*" + message):
            recurrent.selective_state_update(**({"state": state, "x": x, "dt": dt, "A": A, "B": B, "C": C} | changed))


# ---------------------------------------------------------------- linear attention


def linear_by_definition(q, k, v, kv=None, z=None, *, normalize):
    """Tensors [B,T,H,…] → the output, the state, and the sum of the keys [B,1,H,K]."""
    S = 0 if kv is None else kv
    rows = []
    for t in range(q.shape[1]):
        S = S + k[:, t, :, :, None] * v[:, t, :, None, :]
        rows.append(torch.einsum("bhkv,bhk->bhv", S, q[:, t] * q.shape[3] ** -0.5))
    output, sums = torch.stack(rows, 1), k.cumsum(1) + (0 if z is None else z)
    if normalize:
        output = output / ((q * q.shape[3] ** -0.5 * sums).sum(3, keepdim=True) + 1e-10)
    return output, S, sums[:, -1:]


def gradients(function, given):
    found = [x for x in function(*given) if x is not None]
    weights = [normal(*x.shape).to(x.dtype) for x in found]
    return *found, *torch.autograd.grad(found, given, weights)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("name", ["chunk_linear_attn", "fused_recurrent_linear_attn"])
def test_linear_attention_agrees_with_the_definition(recurrent, name, normalize):
    given = [normal(2, 30, 3, 8).exp(), normal(2, 30, 3, 8, seed=1).exp(), normal(2, 30, 3, 5), normal(2, 3, 8, 5)]
    given += [normal(2, 1, 3, 8).exp()] if normalize else []
    given = [x.requires_grad_() for x in given]

    def mine(q, k, v, kv, z=None):
        state = kv if z is None else (kv, z)
        output, final = getattr(recurrent, name)(q, k, v, initial_state=state, output_final_state=True, normalize=normalize)
        return output, *(final if normalize else (final, None))

    def definition(*x):
        output, kv, z = linear_by_definition(*x, normalize=normalize)
        return output, kv, z if normalize else None

    expected = gradients(definition, [x.detach().double().requires_grad_() for x in given])
    expect_close(gradients(mine, given), expected)
    assert getattr(recurrent, name)(*given[:3], normalize=normalize)[1] is None
    # Which of the two normalises by default.
    default, alone = getattr(recurrent, name)(*given[:3])[0], getattr(recurrent, name)(*given[:3], normalize=name[0] == "c")[0]
    assert torch.equal(default, alone)


def test_linear_attention_of_packed_sequences_and_heads_first(recurrent):
    q, k, v = normal(1, 30, 3, 8).exp(), normal(1, 30, 3, 8, seed=1).exp(), normal(1, 30, 3, 5)
    borders, state = torch.tensor([0, 12, 12, 30]), (normal(3, 3, 8, 5), normal(3, 1, 3, 8).exp())
    output, (kv, z) = recurrent.chunk_linear_attn(q, k, v, initial_state=state, output_final_state=True, cu_seqlens=borders)
    for i, (a, b) in enumerate(itertools.pairwise(borders.tolist())):
        if a < b:
            cut, start = (x[:, a:b] for x in (q, k, v)), [x[i : i + 1] for x in state]
            expect_close((output[:, a:b], kv[i : i + 1], z[i : i + 1]), linear_by_definition(*cut, *start, normalize=True))
    assert torch.equal(kv[1], state[0][1]) and torch.equal(z[1], state[1][1])
    first = recurrent.chunk_linear_attn(*(x.transpose(1, 2) for x in (q, k, v)), layout="bhtk")[0]
    assert torch.equal(first.transpose(1, 2), recurrent.chunk_linear_attn(q, k, v)[0])
    half = recurrent.chunk_linear_attn(q.bfloat16(), k.bfloat16(), v.bfloat16())[0]
    assert half.dtype == torch.bfloat16
    with pytest.raises(ValueError, match="initial_state is a pair, which needs normalize=True"):
        recurrent.fused_recurrent_linear_attn(q, k, v, initial_state=state)
    with pytest.raises(ValueError, match="fused_recurrent_linear_attn: the argument reverse is not supported"):
        recurrent.fused_recurrent_linear_attn(q, k, v, reverse=True)
