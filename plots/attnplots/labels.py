"""Places labels so that they overlap neither each other nor the lines.

Coordinates and sizes are in points (1/72 inch); the origin is the figure's lower left corner.
"""

import math
from dataclasses import dataclass

import numpy as np

# A label that is farther than this from its tip, the point it names, gets a leader: a thin line
# between the two.
LEADER = 14.0


@dataclass(frozen=True)
class Box:
    """A rectangle given by its left, bottom, right and top edge."""

    x0: float
    y0: float
    x1: float
    y1: float

    def overlap(self, other: "Box") -> float:
        """The area that both cover."""
        wide = min(self.x1, other.x1) - max(self.x0, other.x0)
        high = min(self.y1, other.y1) - max(self.y0, other.y0)
        return max(wide, 0.0) * max(high, 0.0)

    def grown(self, by: float) -> "Box":
        """The box with a margin around it."""
        return Box(self.x0 - by, self.y0 - by, self.x1 + by, self.y1 + by)

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """The point of the box that is nearest to (x, y)."""
        return min(max(x, self.x0), self.x1), min(max(y, self.y0), self.y1)

    def holds(self, points: np.ndarray) -> int:
        """The number of points inside the box; `points` has shape (k, 2)."""
        x, y = points[:, 0], points[:, 1]
        inside = (x > self.x0) & (x < self.x1) & (y > self.y0) & (y < self.y1)
        return int(inside.sum())


def spread(wanted: list[float], heights: list[float], low: float, high: float) -> list[float]:
    """Centres of labels in a column without overlaps, as near as possible to the wanted centres.

    The labels are given from the bottom up, and keep that order. They do not overlap if a centre
    minus the heights of the labels below it never decreases along the column. The best such centres
    are an isotonic regression: a least squares fit in which neighbours that would overlap share
    their mean.
    """
    below = np.cumsum([0.0, *heights])
    shifts = [float(b) + h / 2 for b, h in zip(below, heights, strict=False)]
    pools: list[tuple[float, int]] = []
    for want, shift in zip(wanted, shifts, strict=True):
        mean, count = want - shift, 1
        while pools and pools[-1][0] >= mean:
            other, many = pools.pop()
            mean, count = (mean * count + other * many) / (count + many), count + many
        pools.append((mean, count))
    levels = [mean for mean, count in pools for _ in range(count)]
    top = max(high - float(below[-1]), low)
    return [min(max(v, low), top) + shift for v, shift in zip(levels, shifts, strict=True)]


def place(
    tip: tuple[float, float],
    sizes: list[tuple[float, float]],
    ink: np.ndarray,
    taken: list[Box],
    frame: Box,
) -> tuple[int, Box]:
    """The index of the size that fits best near `tip`, and its box.

    The box avoids `ink`, points on the lines of the panel with shape (k, 2), and the `taken` boxes,
    and stays inside `frame`.
    """
    x, y = tip
    choices: list[tuple[float, int, Box]] = []
    for which, (wide, high) in enumerate(sizes):
        shifts = [8.0, 14.0, 22.0, 30.0]
        lefts = [x + s for s in shifts] + [x - wide - s for s in shifts] + [x - wide / 2]
        for left in lefts:
            left = min(max(left, frame.x0 + 4), frame.x1 - wide)
            for rise in np.arange(-150.0, 150.1, 3.0):
                box = Box(left, y + rise - high / 2, left + wide, y + rise + high / 2)
                away = math.dist(box.nearest(x, y), tip)
                if away < 5:
                    continue
                cost = 12 * which + away + 0.15 * abs(rise)
                cost += 12 * box.grown(2.0).holds(ink)
                cost += 20 * sum(box.grown(1.0).overlap(other) for other in taken)
                cost += 20 * (wide * high - box.overlap(frame))
                choices.append((cost, which, box))
    choices.sort(key=lambda choice: choice[0])
    best, best_cost = choices[0], math.inf
    for choice in choices:
        cost, _, box = choice
        if cost >= best_cost:
            break  # The choices are sorted by cost, to which a leader can only add.
        edge = box.nearest(x, y)
        if math.dist(edge, tip) > LEADER:
            leader = np.linspace(tip, edge, 40)[8:]
            crossed = np.abs(leader[:, None] - ink).max(axis=2).min(axis=1) < 1.5
            cost += 3 * int(crossed.sum()) + 3 * sum(other.holds(leader) for other in taken)
        if cost < best_cost:
            best, best_cost = choice, cost
    return best[1], best[2]


def free_place(
    size: tuple[float, float], ink: np.ndarray, taken: list[Box], frame: Box
) -> Box | None:
    """A box of this size as near as possible to a corner of the frame; None if nothing is free.

    The corners are the upper left and the lower right, because curves rise to the upper right.
    """
    choices: list[tuple[float, Box]] = []
    for x in np.arange(frame.x0 + 10, frame.x1 - size[0] - 6, 4.0):
        for y in np.arange(frame.y0 + 8, frame.y1 - size[1] - 4, 4.0):
            box = Box(x, y, x + size[0], y + size[1])
            upper_left = math.hypot(x - frame.x0, frame.y1 - box.y1)
            lower_right = math.hypot(frame.x1 - box.x1, y - frame.y0)
            choices.append((min(upper_left, lower_right), box))
    for _, box in sorted(choices, key=lambda choice: choice[0]):
        if not box.grown(6).holds(ink) and not any(box.grown(4).overlap(t) for t in taken):
            return box
    return None
