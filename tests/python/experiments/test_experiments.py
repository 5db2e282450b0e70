"""Compares the models, optimisers and losses of the training experiments with PyTorch and SciPy."""

import json
import math
import subprocess

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

CLOSE = {"rtol": 1e-9, "atol": 1e-10}
EPSILON = 1e-6  # of linear attention


class Probe:
    """Calls a function of tests/experiments/experiments_probe.cpp: probe("name", argument=value, …).
    Tensors are sent and received as such."""

    def __init__(self, process):
        self.process = process

    def __call__(self, name, **arguments):
        self.process.stdin.write(json.dumps({"call": name} | packed(arguments)) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert not (isinstance(answer, dict) and "error" in answer), answer
        return unpacked(answer)


@pytest.fixture(scope="module")
def probe(build):
    program = build / "tests/experiments_probe"
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Probe(process)
        process.stdin.close()


def packed(value):
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        numbers = value.long() if value.dtype == torch.bool else value
        return {"dtype": dtype, "shape": list(value.shape), "data": numbers.flatten().tolist()}
    if isinstance(value, dict):
        return {key: packed(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [packed(item) for item in value]
    return value


def unpacked(value):
    if isinstance(value, dict) and value.keys() == {"dtype", "shape", "data"}:
        return torch.tensor(value["data"], dtype=getattr(torch, value["dtype"])).view(value["shape"])
    if isinstance(value, dict):
        return {key: unpacked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [unpacked(item) for item in value]
    return value


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20260101)


def normal(*shape):
    return torch.randn(shape, dtype=torch.float64)


def assert_close(actual, expected, **tolerance):
    torch.testing.assert_close(actual, expected, **(CLOSE | tolerance))


def valid(tensor, lengths):
    """The rows of valid positions, of a tensor [B,N,…], one after the other."""
    return torch.cat([tensor[i, :length] for i, length in enumerate(lengths)])


# ---------------------------------------------------------------- models

ENCODER = {"layers": 3, "width": 12, "heads": 3, "head_dim": 4}


def encoder_weights(parameters, prefix=""):
    """The parameters whose names begin with the prefix, without it."""
    return {
        name.removeprefix(prefix): tensor.requires_grad_()
        for name, tensor in parameters.items()
        if name.startswith(prefix)
    }


def linear(x, weights, name):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def layer_norm(x, weights, name):
    return torch.nn.functional.layer_norm(
        x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"]
    )


def linear_attention(q, k, v, visible):
    """Equations 4 and 9 of "Transformers are RNNs", computed from all pairs."""
    phi_q, phi_k = torch.nn.functional.elu(q) + 1, torch.nn.functional.elu(k) + 1
    weights = (phi_q @ phi_k.transpose(-1, -2)) * visible
    return (weights @ v) / (weights.sum(-1, keepdim=True) + EPSILON)


def transcribed_encoder(x, weights, visible, options, attention=linear_attention):
    """The formulas of the encoder layer by layer. `visible` is [B,1,N,N] of zeros and ones."""
    batch, length, _ = x.shape

    def heads(tensor):
        return tensor.view(batch, length, options["heads"], options["head_dim"]).transpose(1, 2)

    for layer in range(options["layers"]):
        own = encoder_weights(weights, f"layer{layer}.")
        q, k, v = (heads(linear(x, own, f"attention.{name}")) for name in ("query", "key", "value"))
        attended = attention(q, k, v, visible).transpose(1, 2).reshape(batch, length, -1)
        x = layer_norm(x + linear(attended, own, "attention.output"), own, "norm1")
        hidden = torch.relu(linear(x, own, "linear1"))
        x = layer_norm(x + linear(hidden, own, "linear2"), own, "norm2")
    return layer_norm(x, weights, "norm")


def visible_pairs(batch, length, causal, lengths=None):
    visible = torch.ones(batch, 1, length, length, dtype=torch.float64)
    if causal:
        visible = visible.tril()
    if lengths is not None:
        visible = visible * (torch.arange(length) < lengths[:, None])[:, None, None, :]
    return visible


def torch_encoder(parameters, options):
    """A torch.nn.TransformerEncoder with these weights."""
    layer = torch.nn.TransformerEncoderLayer(
        options["width"], options["heads"], 4 * options["width"], dropout=0, batch_first=True,
        dtype=torch.float64,
    )  # fmt: skip
    encoder = torch.nn.TransformerEncoder(
        layer, options["layers"], torch.nn.LayerNorm(options["width"], dtype=torch.float64),
        enable_nested_tensor=False,
    )  # fmt: skip
    state = {"norm.weight": parameters["norm.weight"], "norm.bias": parameters["norm.bias"]}
    for i in range(options["layers"]):
        for kind in ("weight", "bias"):
            parts = [parameters[f"layer{i}.attention.{name}.{kind}"] for name in ("query", "key", "value")]
            state[f"layers.{i}.self_attn.in_proj_{kind}"] = torch.cat(parts)
            output = parameters[f"layer{i}.attention.output.{kind}"]
            state[f"layers.{i}.self_attn.out_proj.{kind}"] = output
            for name in ("linear1", "linear2", "norm1", "norm2"):
                state[f"layers.{i}.{name}.{kind}"] = parameters[f"layer{i}.{name}.{kind}"]
    encoder.load_state_dict(state)
    return encoder


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_softmax_encoder_is_pytorchs(probe, causal, padded):
    x = normal(3, 7, ENCODER["width"])
    lengths = torch.tensor([7, 4, 1]) if padded else torch.tensor([7, 7, 7])
    loss_weights = normal(*x.shape) * (torch.arange(7) < lengths[:, None])[:, :, None]
    result = probe(
        "encoder", options=ENCODER | {"method": "softmax"}, seed=1, x=x, causal=causal,
        loss_weights=loss_weights, **({"key_lengths": lengths} if padded else {}),
    )  # fmt: skip
    reference = torch_encoder(result["parameters"], ENCODER)
    hidden = torch.ones(7, 7, dtype=torch.bool).triu(1) if causal else None
    padding = torch.arange(7) >= lengths[:, None] if padded else None
    expected = reference(x, mask=hidden, src_key_padding_mask=padding)
    assert_close(valid(result["output"], lengths), valid(expected, lengths))
    (expected * loss_weights).sum().backward()
    gradients = result["gradients"]
    for i, layer in enumerate(reference.layers):
        names = [f"layer{i}.attention.{name}.weight" for name in ("query", "key", "value")]
        assert_close(torch.cat([gradients[name] for name in names]), layer.self_attn.in_proj_weight.grad)
        assert_close(gradients[f"layer{i}.linear1.weight"], layer.linear1.weight.grad)
        assert_close(gradients[f"layer{i}.norm2.bias"], layer.norm2.bias.grad)
    assert_close(gradients["norm.weight"], reference.norm.weight.grad)


@pytest.mark.parametrize("method", ["linear", "linear-chunked:chunk=3"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_linear_encoder_is_the_papers_formulas(probe, method, causal, padded):
    options = ENCODER | {"head_dim": 5, "feed_forward": 9}
    x = normal(3, 7, options["width"])
    lengths = torch.tensor([7, 4, 1]) if padded else torch.tensor([7, 7, 7])
    loss_weights = normal(*x.shape) * (torch.arange(7) < lengths[:, None])[:, :, None]
    result = probe(
        "encoder", options=options | {"method": method}, seed=1, x=x, causal=causal,
        loss_weights=loss_weights, **({"key_lengths": lengths} if padded else {}),
    )  # fmt: skip
    weights = encoder_weights(result["parameters"])
    expected = transcribed_encoder(x, weights, visible_pairs(3, 7, causal, lengths), options)
    assert_close(valid(result["output"], lengths), valid(expected, lengths))
    (expected * loss_weights).sum().backward()
    assert result["gradients"].keys() == weights.keys()
    for name, gradient in result["gradients"].items():
        assert_close(gradient, weights[name].grad)


def sinusoids(length, width):
    """Section 3.5 of "Attention Is All You Need", in NumPy."""
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    encodings = np.empty((length, width))
    encodings[:, 0::2], encodings[:, 1::2] = np.sin(angles), np.cos(angles)
    return torch.from_numpy(encodings)


def test_positions_are_the_papers_formula(probe):
    assert_close(probe("positions", length=300, width=128), sinusoids(300, 128))


def test_sequence_model_is_embedding_encoder_and_linear_layer(probe):
    tokens, width = torch.randint(0, 11, (2, 9)), ENCODER["width"]
    result = probe(
        "sequence_model", options=ENCODER | {"method": "linear"}, seed=2, tokens=11, outputs=5, x=tokens,
        loss_weights=normal(2, 9, 5),
    )  # fmt: skip
    parameters = result["parameters"]
    embedded = parameters["input.embedding.weight"][tokens]
    x = torch.cat([embedded, sinusoids(9, width // 2).expand(2, -1, -1)], -1)
    weights = encoder_weights(parameters, "encoder.")
    x = transcribed_encoder(x, weights, visible_pairs(2, 9, True), ENCODER)
    assert_close(result["output"], linear(x, parameters, "output"))


def test_speech_model_is_linear_layer_encoder_and_log_softmax(probe):
    frames, lengths, width = normal(3, 8, 6), torch.tensor([5, 8, 1]), ENCODER["width"]
    result = probe(
        "speech_model", options=ENCODER | {"method": "linear"}, seed=3, features=6, phones=4, x=frames,
        frame_lengths=lengths, loss_weights=normal(3, 8, 5),
    )  # fmt: skip
    parameters = result["parameters"]
    projected = linear(frames, parameters, "input.projection")
    x = torch.cat([projected, sinusoids(8, width // 2).expand(3, -1, -1)], -1)
    weights = encoder_weights(parameters, "encoder.")
    x = transcribed_encoder(x, weights, visible_pairs(3, 8, False, lengths), ENCODER)
    expected = torch.log_softmax(linear(x, parameters, "output"), -1)
    assert_close(valid(result["output"], lengths), valid(expected, lengths))


def test_weights_have_pytorchs_default_initialisation(probe):
    """torch.nn.Linear draws weights and biases uniformly within 1/√inputs, and torch.nn.Embedding
    from a standard normal distribution."""
    options = {"method": "linear", "layers": 2, "width": 64, "heads": 4, "head_dim": 16}
    result = probe(
        "sequence_model", options=options, seed=4, tokens=200, outputs=30, x=torch.zeros(1, 2).long(),
        loss_weights=normal(1, 2, 30),
    )  # fmt: skip
    inputs = {"linear2": 256}
    for name, tensor in result["parameters"].items():
        if "norm" in name:
            assert_close(tensor, torch.full_like(tensor, name.endswith("weight")))
        elif "embedding" in name:
            assert stats.kstest(tensor.flatten(), "norm").pvalue > 1e-4
        else:
            bound = 1 / math.sqrt(next((n for part, n in inputs.items() if part in name), 64))
            assert tensor.abs().max() <= bound, name
            assert stats.kstest(tensor.flatten(), "uniform", (-bound, 2 * bound)).pvalue > 1e-5, name


@pytest.mark.parametrize("layers", [1, 3])
def test_bi_lstm_is_pytorchs_with_packed_sequences(probe, layers):
    features, lengths = normal(4, 9, 6), torch.tensor([3, 9, 1, 6])
    loss_weights = normal(4, 9, 5)
    result = probe(
        "bi_lstm", seed=5, features=6, phones=4, layers=layers, hidden=7, x=features,
        frame_lengths=lengths, loss_weights=loss_weights,
    )  # fmt: skip
    parameters = result["parameters"]
    lstm = torch.nn.LSTM(6, 7, layers, batch_first=True, bidirectional=True, dtype=torch.float64)
    lstm.load_state_dict({n[5:]: t for n, t in parameters.items() if n.startswith("lstm.")})
    packed_input = torch.nn.utils.rnn.pack_padded_sequence(
        features, lengths, batch_first=True, enforce_sorted=False
    )
    states, _ = torch.nn.utils.rnn.pad_packed_sequence(
        lstm(packed_input)[0], batch_first=True, total_length=9
    )
    expected = torch.log_softmax(linear(states, parameters, "output"), -1)
    assert_close(result["output"], expected)
    (expected * loss_weights).sum().backward()
    for name, parameter in lstm.named_parameters():
        assert_close(result["gradients"][f"lstm.{name}"], parameter.grad)


def test_ctc_loss_of_a_models_output_is_pytorchs(probe):
    """The loss reads log-probabilities in the layout in which the models give them."""
    log_probabilities = torch.log_softmax(normal(3, 12, 6), -1)
    frame_lengths, label_lengths = torch.tensor([12, 7, 9]), torch.tensor([4, 2, 5])
    labels = torch.randint(1, 6, (int(label_lengths.sum()),))
    result = probe(
        "ctc", log_probabilities=log_probabilities, labels=labels, frame_lengths=frame_lengths,
        label_lengths=label_lengths,
    )  # fmt: skip
    variable = log_probabilities.clone().requires_grad_()
    expected = torch.nn.functional.ctc_loss(
        variable.transpose(0, 1), labels, frame_lengths, label_lengths, blank=0
    )
    expected.backward()
    assert result["loss"] == pytest.approx(expected.item(), rel=1e-12)
    assert_close(result["gradient"], variable.grad)


# ---------------------------------------------------------------- optimisers

RADAM = {"learning_rate": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.01}


def torch_radam(parameters, gradients, options, rates=None):
    """The parameters after each step of torch.optim.RAdam."""
    parameters = [parameter.clone().requires_grad_() for parameter in parameters]
    optimizer = torch.optim.RAdam(
        parameters, lr=options["learning_rate"], betas=(options["beta1"], options["beta2"]),
        eps=options["epsilon"], weight_decay=options["weight_decay"], decoupled_weight_decay=True,
    )  # fmt: skip
    steps = []
    for i, of_step in enumerate(gradients):
        for group in optimizer.param_groups:
            group["lr"] = rates[i] if rates else options["learning_rate"]
        for parameter, gradient in zip(parameters, of_step, strict=True):
            parameter.grad = gradient
        optimizer.step()
        steps.append([parameter.detach().clone() for parameter in parameters])
    return steps


@pytest.mark.parametrize(
    "changes",
    [{}, {"weight_decay": 0}, {"beta2": 0.9, "beta1": 0.5}, {"epsilon": 0.1}, {"beta2": 0.6}],
    ids=str,
)
def test_radam_is_pytorchs(probe, changes):
    """With β₂ = 0.999 the first five steps are those with ρ ≤ 5; with 0.6 all steps are."""
    options = RADAM | changes
    parameters = [normal(3, 4), normal(5), normal()]
    gradients = [[normal(3, 4) * 10, normal(5) * 1e-3, normal()] for _ in range(200)]
    steps = probe("radam", parameters=parameters, gradients=gradients, options=options)
    expected = torch_radam(parameters, gradients, options)
    for actual, of_step in zip(steps, expected, strict=True):
        for a, b in zip(actual, of_step, strict=True):
            assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_radam_counts_only_the_steps_that_have_a_gradient(probe):
    parameters = [normal(3), normal(2), normal(4)]
    gradients = [
        [normal(3), normal(2) if step % 3 else None, normal(4) if step > 10 else None]
        for step in range(40)
    ]
    steps = probe("radam", parameters=parameters, gradients=gradients, options=RADAM)
    for actual, expected in zip(steps, torch_radam(parameters, gradients, RADAM), strict=True):
        for a, b in zip(actual, expected, strict=True):
            assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("archive", [False, True])
@pytest.mark.parametrize("replace_after", [3, 20])
def test_radam_goes_on_from_a_saved_state_and_with_another_rate(probe, archive, replace_after):
    parameters = [normal(3), normal(2)]
    gradients = [[normal(3), normal(2)] for _ in range(40)]
    rates = [0.01] * 25 + [0.001] * 15
    steps = probe(
        "radam", parameters=parameters, gradients=gradients, options=RADAM, rates=rates,
        replace_after=replace_after, archive=archive,
    )  # fmt: skip
    expected = torch_radam(parameters, gradients, RADAM, rates)
    for a, b in zip(steps[-1], expected[-1], strict=True):
        assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_clipping_is_pytorchs_for_each_tensor(probe):
    for max_norm in (1.0, 0.3):
        gradients = [normal(3, 4) * scale for scale in (10, 1e-3, 1, 0.25, 0)]
        result = probe("clip", gradients=gradients, max_norm=max_norm)
        for i, gradient in enumerate(gradients):
            parameter = torch.zeros_like(gradient).requires_grad_()
            parameter.grad = gradient.clone()
            norm = torch.nn.utils.clip_grad_norm_(parameter, max_norm)
            assert_close(result["norms"][i], norm)
            assert_close(result["gradients"][i], parameter.grad)


def test_steps_of_the_rate_are_pytorchs(probe):
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1e-3)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[30], gamma=0.1)
    expected = []
    for _ in range(100):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    rates = probe("step_rates", learning_rate=1e-3, reduce_after=30, reduced_learning_rate=1e-4, updates=100)
    assert rates == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("patience", [0, 1, 3])
def test_plateau_rates_are_pytorchs(probe, patience):
    """Errors fall, stagnate, repeat themselves and rise; one is NaN."""
    random = np.random.default_rng(7)
    errors = (np.exp(-np.arange(80) / 20) + random.normal(0, 0.05, 80).round(2)).clip(0.01).tolist()
    errors[40] = math.nan
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1e-4)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=patience, threshold=0, eps=0
    )
    expected = []
    for error in errors:
        scheduler.step(error)
        expected.append(optimizer.param_groups[0]["lr"])
    sent = [None if math.isnan(error) else error for error in errors]
    rates = probe("plateau_rates", learning_rate=1e-4, patience=patience, errors=sent)
    assert rates == pytest.approx(expected, rel=1e-12)
    assert len(set(rates)) > 3


# ---------------------------------------------------------------- losses


def mixtures(count, components=10, low=-4.0, high=0.0):
    """Parameters [count,3K] with log-scales between low and high."""
    logits, means = normal(count, components), torch.rand(count, components).double() * 2 - 1
    log_scales = torch.rand(count, components).double() * (high - low) + low
    return torch.cat([logits, means, log_scales], -1)


def parts_of(parameters):
    """The weights, means and scales of one distribution."""
    logits, means, log_scales = np.split(parameters.numpy(), 3)
    return special.softmax(logits), means, np.exp(np.maximum(log_scales, -7))


def integrated(parameters, byte):
    """The integral of the mixture's density over the interval of this byte."""
    weights, means, scales = parts_of(parameters)

    def density(x):
        return float(np.sum(weights * stats.logistic.pdf(x, means, scales)))

    low = -np.inf if byte == 0 else (byte - 0.5) / 127.5 - 1
    high = np.inf if byte == 255 else (byte + 0.5) / 127.5 - 1
    if math.isfinite(low) and math.isfinite(high):
        return integrate.quad(density, low, high, epsabs=1e-13)[0]
    # The infinite tail begins where no component has its bulk, so that the quadrature sees it.
    reach = float(np.max(np.abs(means) + 40 * scales)) + 2
    ends = (-reach, high) if byte == 0 else (low, reach)
    inside = [m for m in sorted(means) if ends[0] < m < ends[1]]
    return integrate.quad(density, *ends, points=inside or None, epsabs=1e-13, limit=500)[0]


def test_likelihood_is_the_integral_of_the_density(probe):
    parameters = mixtures(3, low=-3, high=0.5)
    for distribution in parameters:
        bytes_ = torch.tensor([0, 1, 60, 128, 200, 254, 255])
        expanded = distribution.expand(len(bytes_), -1).contiguous()
        result = probe("mixture", parameters=expanded, bytes=bytes_)
        expected = [integrated(distribution, int(byte)) for byte in bytes_]
        assert_close(result["log_likelihood"].exp(), torch.tensor(expected, dtype=torch.float64), rtol=1e-6)
        bits = -np.mean(np.log2(expected))
        assert result["bits"] == pytest.approx(bits, rel=1e-6)


def transcribed_likelihood(parameters, bytes_):
    """The likelihood as its definition is written, with SciPy: differences of the logistic function
    where they are above 1e-5, and otherwise its density."""
    result = []
    for distribution, byte in zip(parameters, bytes_.tolist(), strict=True):
        weights, means, scales = parts_of(distribution)
        y, h = byte / 127.5 - 1, 1 / 255
        upper, lower = (y + h - means) / scales, (y - h - means) / scales
        difference = special.expit(upper) - special.expit(lower)
        density = stats.logistic.logpdf(y, means, scales) - np.log(127.5)
        part = np.where(difference > 1e-5, np.log(np.maximum(difference, 1e-5)), density)
        if byte in (0, 255):
            part = special.log_expit(upper if byte == 0 else -lower)
        result.append(special.logsumexp(part, b=weights))
    return torch.tensor(result)


@pytest.mark.parametrize(("low", "high"), [(-7.5, -4), (-4, 0), (0, 8)])
def test_likelihood_is_the_written_formula(probe, low, high):
    """Narrow components take the density far from their means, wide ones everywhere."""
    parameters = mixtures(400, low=low, high=high)
    bytes_ = torch.cat([torch.randint(0, 256, (380,)), torch.tensor([0, 255] * 10)])
    result = probe("mixture", parameters=parameters, bytes=bytes_)
    assert_close(result["log_likelihood"], transcribed_likelihood(parameters, bytes_), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("sampler", ["as-likelihood", "as-paper"])
@pytest.mark.parametrize(("low", "high"), [(-9, -8), (-5, -3), (-3, 1.5)])
def test_samples_have_the_distribution_of_their_sampler(probe, sampler, low, high):
    """A chi-square test of 200,000 samples with a fixed seed, over bytes that are expected at least
    ten times. Log-scales below -7 are clamped in one sampler, and above 0 the two differ."""
    count, parameters = 200_000, mixtures(1, low=low, high=high)[0]
    counts = probe("sample_counts", parameters=parameters, sampler=sampler, seed=11, count=count).numpy()
    weights, means, scales = parts_of(parameters)
    if sampler == "as-paper":
        scales = torch.nn.functional.elu(parameters[20:]).numpy() + 1.0001
    borders = (np.arange(255) + 0.5) / 127.5 - 1
    cumulative = stats.logistic.cdf(borders[:, None], means, scales) @ weights
    expected = np.diff(np.concatenate([[0], cumulative, [1]])) * count
    frequent = expected >= 10
    pooled = np.append(expected[frequent], expected[~frequent].sum())
    observed = np.append(counts[frequent], counts[~frequent].sum())
    keep = pooled > 0
    assert counts.sum() == count
    assert stats.chisquare(observed[keep], pooled[keep]).pvalue > 1e-3


def test_copy_loss_is_pytorchs_cross_entropy(probe):
    logits, targets = normal(3, 7, 11), torch.randint(0, 11, (3, 7))
    mask = torch.rand(3, 7) < 0.4
    result = probe("copy_loss", logits=logits, targets=targets, mask=mask)
    variable = logits.clone().requires_grad_()
    expected = torch.nn.functional.cross_entropy(variable[mask], targets[mask])
    expected.backward()
    assert result["loss"] == pytest.approx(expected.item(), rel=1e-12)
    assert_close(result["gradient"], variable.grad)
    right = logits[mask].argmax(-1) == targets[mask]
    assert result["accuracy"] == pytest.approx(right.double().mean().item(), rel=1e-12)
