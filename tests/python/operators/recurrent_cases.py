"""Inputs, the definition in float64 and comparisons that the tests of recurrent attention share. Those of the convolution use `results`."""

import torch


def by_definition(q, k, v, g=None, beta=None, state=None, *, rule="delta", scale=None, normalize=False):
    """Token by token: tensors [B,H,T,…] → the output and the final state."""

    def used(x):
        x = x / torch.sqrt(x.square().sum(-1, keepdim=True) + 1e-6) if normalize else x
        return x.repeat_interleave(v.shape[1] // x.shape[1], 1)

    q, k = used(q) * (q.shape[3] ** -0.5 if scale is None else scale), used(k)
    if state is None:
        state = torch.zeros(v.shape[0], v.shape[1], q.shape[3], v.shape[3], dtype=q.dtype)
    rows = []
    for t in range(q.shape[2]):
        if g is not None:
            state = state * (g[:, :, t, :, None] if g.dim() == 4 else g[:, :, t, None, None]).exp()
        u = v[:, :, t]
        if rule == "delta":
            u = u - (state * k[:, :, t, :, None]).sum(2)
            if beta is not None:
                u = u * beta[:, :, t, None]
        state = state + k[:, :, t, :, None] * u[:, :, None, :]
        rows.append((state * q[:, :, t, :, None]).sum(2))
    return torch.stack(rows, 2), state


def example(shape, *, gates="gb", state=True, normalize=True, dtype=torch.float32, seed=0, extreme=False):
    """Tensors of one call; `shape` is (batch, heads of q and k, heads of v, T, K, V). `gates` names those
    that are given: g of a head (g) or of each feature of the keys (f), and beta (b)."""
    generator = torch.Generator().manual_seed(seed)
    batch, heads, value_heads, length, keys, values = shape
    wide = torch.float64 if dtype == torch.float64 else torch.float32

    def normal(*sizes):
        return torch.randn(*sizes, generator=generator, dtype=torch.float64)

    # Means, scales that differ between heads, and outliers.
    q = normal(batch, heads, length, keys) + 1
    k = normal(batch, heads, length, keys) + torch.linspace(-1, 1, keys)
    v = normal(batch, value_heads, length, values) * 10.0 ** torch.arange(value_heads)[:, None, None] + 3
    v[:, :, ::7] *= 5
    if not normalize:
        k = k / k.norm(dim=-1, keepdim=True)
    g = -torch.nn.functional.softplus(normal(batch, value_heads, length, *([keys] if "f" in gates else []))) / 4
    if "f" in gates:  # Features that keep, that forget slowly, and whose decays in 16 positions add up to less or more than 80.
        g = g * torch.tensor([0.0, 1e-5, 1.0, 15.0, 30.0], dtype=torch.float64)[torch.arange(keys) * 5 // keys]
        g[:, :, length // 2 :] /= 10
    beta = torch.sigmoid(normal(batch, value_heads, length))
    if extreme:
        choices = torch.tensor([0.0, -1e-6, -50.0, -float("inf"), -2.0], dtype=torch.float64)
        g = choices[torch.randint(5, g.shape, generator=generator)]
        if "f" in gates:  # A position with an extreme decay in a single feature, in a chunk with moderate ones, too.
            g[:, :, length // 2 :] = -0.25
            g[:, :, length * 3 // 4, keys // 2] = choices[3]
        beta = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)[torch.randint(3, beta.shape, generator=generator)]
    given = [q.to(dtype), k.to(dtype), v.to(dtype)]
    given.append(g.to(wide) if gates.strip("b") else None)
    given.append(beta.to(wide) if "b" in gates else None)
    given.append(normal(batch, value_heads, keys, values).to(wide) if state else None)
    return [None if x is None else x.requires_grad_() for x in given]


def results(function, given):
    """Both results, and the gradients of all tensors that are given, with fixed gradients of the
    results."""
    output, state = function(*given)
    generator = torch.Generator().manual_seed(5)
    weights = [torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.dtype) for x in (output, state)]
    return output, state, *torch.autograd.grad([output, state], [x for x in given if x is not None], weights)


def expect_close(found, expected, tolerance):
    for index, (a, b) in enumerate(zip(found, expected, strict=True)):
        # The gradient of a decay of −∞ is 0 by definition; the naive one is 0 or NaN.
        b = torch.nan_to_num(b)
        assert torch.isfinite(a).all(), index
        difference = (a.double() - b).abs().amax() / b.abs().amax().clamp_min(1e-30)
        assert difference <= tolerance, (index, difference)


def time_first(*tensors):
    return [x if x is None else x.detach().transpose(1, 2).contiguous().requires_grad_() for x in tensors]
