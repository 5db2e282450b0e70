"""Trains the same model twice, once with attnbench.LinearAttention and once with the einsum form of
linear attention.

The model reads a sequence of numbers, one at a time, and predicts the number that stood DISTANCE
positions before. Both trainings begin with the same weights and see the same data, so their losses
are equal up to rounding in every step.

Usage: python examples/train_linear.py [STEPS]
"""

import sys

import torch
from torch import Tensor, nn

import attnbench

NUMBERS, LENGTH, DISTANCE = 8, 16, 2
WIDTH, HEADS = 32, 2


class EinsumAttention(attnbench.LinearAttention):
    """The same layer, whose attention is written with einsum: it keeps the running sums of every
    position in memory."""

    def forward(self, x: Tensor, key_lengths: Tensor | None = None) -> Tensor:
        heads = (x.shape[0], x.shape[1], self.heads, self.head_dim)
        q = nn.functional.elu(self.query(x).view(heads)) + 1
        k = nn.functional.elu(self.key(x).view(heads)) + 1
        v = self.value(x).view(heads)
        sums = torch.einsum("bnhd,bnhm->bnhdm", k, v).cumsum(1)
        normalizer = torch.einsum("bnhd,bnhd->bnh", q, k.cumsum(1)) + self.eps
        attended = torch.einsum("bnhd,bnhdm->bnhm", q, sums) / normalizer[..., None]
        return self.output(attended.flatten(2))


class Model(nn.Module):
    def __init__(self, attention: type[attnbench.LinearAttention]) -> None:
        super().__init__()
        self.numbers, self.positions = nn.Embedding(NUMBERS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.attention = attention(WIDTH, HEADS, causal=True)
        self.network = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, NUMBERS))

    def forward(self, numbers: Tensor) -> Tensor:
        x = self.numbers(numbers) + self.positions.weight
        return self.network(x + self.attention(x))


def losses(attention: type[attnbench.LinearAttention], steps: int) -> list[float]:
    """The loss of each step of a training."""
    torch.set_num_threads(1)  # Several threads would be slower on tensors this small.
    torch.manual_seed(0)
    model = Model(attention)
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    found = []
    for _ in range(steps):
        numbers = torch.randint(NUMBERS, (16, LENGTH))
        logits = model(numbers)[:, DISTANCE:]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), numbers[:, :-DISTANCE].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        found.append(loss.item())
    return found


def main(steps: int) -> None:
    kernel, einsum = losses(attnbench.LinearAttention, steps), losses(EinsumAttention, steps)
    print("step  LinearAttention  einsum")
    for step, (a, b) in enumerate(zip(kernel, einsum, strict=True), start=1):
        if step == 1 or step % 10 == 0:
            print(f"{step:4}  {a:15.6f}  {b:.6f}")
    difference = max(abs(a - b) for a, b in zip(kernel, einsum, strict=True))
    print(f"largest difference of a step: {difference:.1e}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
