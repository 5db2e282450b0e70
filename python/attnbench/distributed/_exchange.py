"""What ranks exchange: headers, by which they check that all make the same call, and tensors."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch
import torch.distributed as dist
from torch import Tensor

from attnbench import _installation


@dataclass
class Traffic:
    """What this rank has passed to collectives and has sent to single ranks.

    Attributes:
        calls: the number of collectives and of tensors sent.
        payload_bytes: the bytes of their inputs, counted once, however many ranks receive them.
    """

    calls: int = 0
    payload_bytes: int = 0


_counters: list[Traffic] = []


@contextmanager
def count_traffic() -> Iterator[Traffic]:
    """Counts what the operators of this package send within the `with` block, in the backward pass as well."""
    counter = Traffic()
    _counters.append(counter)
    try:
        yield counter
    finally:
        _counters[:] = [other for other in _counters if other is not counter]


def count(sent: Tensor) -> None:
    """Adds a tensor that this rank sends to all counters of `count_traffic`."""
    for counter in _counters:
        counter.calls += 1
        counter.payload_bytes += sent.numel() * sent.element_size()


class Ranks:
    """The ranks of a process group.

    Attributes:
        group: the group.
        rank: the number of this process in it.
        size: the number of ranks.
    """

    def __init__(self, function: str, group: dist.ProcessGroup) -> None:
        """Error messages begin with `function`. Raises ValueError if `group` is not a process group or this process is not in it."""
        if not dist.is_initialized() or not isinstance(group, dist.ProcessGroup):
            raise ValueError(f"{function}: cp_group = {group!r}, expected a process group of torch.distributed")
        self.function, self.group = function, group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise ValueError(f"{function}: this process is not in cp_group")

    @contextmanager
    def exchanging(self, what: str) -> Iterator[None]:
        """A RuntimeError of torch.distributed within the `with` block becomes one that says which exchange failed, and why."""
        try:
            yield
        except RuntimeError as error:
            raise RuntimeError(
                f"{self.function}: rank {self.rank} of {self.size} could not exchange {what} within the timeout of the group: "
                f"another rank has ended, does not take part or sends tensors of other sizes ({error})"
            ) from error

    def all_gather(self, what: str, x: Tensor) -> Tensor:
        """x of each rank, which must have the same shape and dtype on all: [size, *x.shape]."""
        x = x.contiguous()
        found = x.new_empty(self.size * x.numel())
        count(x)
        with self.exchanging(what):
            dist.all_gather_into_tensor(found, x.view(-1), group=self.group)
        return found.view(self.size, *x.shape)

    def sum_up(self, what: str, x: Tensor) -> Tensor:
        """The sum of x over the ranks."""
        x = x.clone(memory_format=torch.contiguous_format)  # all_reduce changes its argument
        count(x)
        with self.exchanging(what):
            dist.all_reduce(x, group=self.group)
        return x

    def peer(self, offset: int) -> int:
        """The number, in the whole world, of the rank that is `offset` behind this one in the ring."""
        return dist.get_global_rank(self.group, (self.rank + offset) % self.size)


# ---------------------------------------------------------------- header

_HEADER_NUMBERS = 16
HEADER_BYTES = 8 * _HEADER_NUMBERS


def number_of(text: str) -> int:
    """A number that stands for a text in a header."""
    return zlib.crc32(text.encode())


@cache
def _version() -> int:
    facts = _installation.build_facts()
    return number_of(f"{facts['version']} torch {torch.__version__}")


def check_header(ranks: Ranks, device: torch.device, **fields: int) -> None:
    """Raises ValueError on every rank if not all ranks have the same numbers, and says what differs.

    `fields` are the numbers by name, at most 15; error messages show the names with spaces for underscores.

    Ranks must compare them before they send tensors, because Gloo aborts a process that receives more bytes than it
    expects. The header always has HEADER_BYTES bytes, so that it cannot itself be such a message.
    """
    names = ["versions of attnbench and torch", *(name.replace("_", " ") for name in fields)]
    numbers = [_version(), *fields.values()]
    assert len(numbers) <= _HEADER_NUMBERS
    padded = torch.tensor(numbers + [0] * (_HEADER_NUMBERS - len(numbers)), device=device)
    rows = ranks.all_gather("the shapes of its call", padded).tolist()
    for name, *values in zip(names, *rows, strict=False):
        differing = next((rank for rank, value in enumerate(values) if value != values[0]), None)
        if differing is None:
            continue
        if name == "length":
            raise ValueError(
                f"{ranks.function}: the slice of rank 0 has length {values[0]} and that of rank {differing} has length "
                f"{values[differing]}, expected slices of equal length"
            )
        # Larger numbers are checksums of texts, made by number_of().
        shown = f": {values[0]} and {values[differing]}" if max(values) < 1 << 20 else ""
        raise ValueError(f"{ranks.function}: rank 0 and rank {differing} differ in the {name}{shown}")


# ---------------------------------------------------------------- tensors


def packed(tensors: list[Tensor]) -> Tensor:
    """The bytes of tensors, one after the other."""
    return torch.cat([x.contiguous().view(-1).view(torch.uint8) for x in tensors])


def unpacked(rows: Tensor, like: list[Tensor]) -> list[list[Tensor]]:
    """The tensors of each rank, made of their bytes [size, bytes]. They have the shapes and dtypes of `like`, which are those of
    this rank."""
    sizes = [x.numel() * x.element_size() for x in like]
    return [
        [part.clone().view(x.dtype).view(x.shape) for part, x in zip(row.split(sizes), like, strict=True)] for row in rows
    ]
