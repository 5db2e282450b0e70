"""Places labels so that they overlap neither each other nor the lines.

Coordinates and sizes are in points (1/72 inch); the origin is the figure's lower left corner.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# A label that is farther than this from its tip, the point it names, gets a leader: a thin line between the two.
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

    The labels are given from the bottom up, and keep that order. They do not overlap if a centre minus the heights of
    the labels below it never decreases along the column. The best such centres are an isotonic regression: a least
    squares fit in which neighbours that would overlap share their mean.
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


# How far to the side of a tip a label may begin, from its tip, and the steps in which labels are moved up and down.
SHIFTS = (8.0, 14.0, 22.0, 30.0, 42.0, 56.0)
RISES = np.arange(-150.0, 150.1, 3.0)
# Tips that are nearer to each other than this are at the same place for a reader.
SAME = 6.0
# Tips whose heights differ by less than this have no order that a reader sees.
LEVEL = 2.0
# Labels of tips that are at most so far apart across the panel have the order of the tips.
NEIGHBOURS = 48.0
# The cost of what misleads a reader, in points that a label may be moved instead.
CONFUSED, CROSSED = 60.0, 30.0
# How often all labels of a panel are placed again, each with the others where they are.
ROUNDS = 3

Place = tuple[float, float]


@dataclass(frozen=True)
class Placed:
    """A label that has its place: its tip, and the box of its text."""

    tip: Place
    box: Box

    @property
    def leader(self) -> tuple[Place, Place] | None:
        """The ends of the line between the label and its tip; None if they are so near that it has none."""
        edge = self.box.nearest(*self.tip)
        return (self.tip, edge) if math.dist(edge, self.tip) > LEADER else None


def place_all(
    tips: list[Place], sizes: list[Place], ink: np.ndarray, taken: list[Placed], frame: Box, margin: Box | None = None
) -> list[Box]:
    """A box of the width and height of each label near its tip.

    The labels are placed together: each one is nearer to its own tip than to another, or has a leader, and labels of
    neighbouring tips are in the order of the tips. `taken` are labels that have their places already.
    """
    order = sorted(range(len(tips)), key=lambda k: -tips[k][1])
    found: dict[int, Box] = {}
    for _ in range(ROUNDS):
        before = dict(found)
        for k in order:
            others = [*taken, *(Placed(tips[i], box) for i, box in found.items() if i != k)]
            away = [tip for i, tip in enumerate(tips) if i != k] + [label.tip for label in taken]
            found[k] = place(tips[k], sizes[k], ink, others, frame, margin, away)
        if found == before:
            break
    return [found[k] for k in range(len(tips))]


def place(
    tip: Place, size: Place, ink: np.ndarray, taken: list[Placed], frame: Box, margin: Box | None = None,
    others: Sequence[Place] = (),
) -> Box:  # fmt: skip
    """A box of this width and height near `tip`.

    It avoids `ink`, points on the lines of the panel with shape (k, 2), the labels that are `taken`, and the tips
    of `others`, to which it must not seem to belong. It stays inside `frame` or, beside it, inside `margin`.
    """
    (x, y), (wide, high) = tip, size
    leaders = [label.leader for label in taken if label.leader]
    choices: list[tuple[float, Box]] = []
    lefts = [x + s for s in SHIFTS] + [x - wide - s for s in SHIFTS] + [x - wide / 2]
    lefts = [min(max(left, frame.x0 + 4), frame.x1 - wide) for left in lefts]
    lefts += [margin.x0] if margin else []
    for left in dict.fromkeys(lefts):
        for rise in RISES:
            box = Box(left, y + rise - high / 2, left + wide, y + rise + high / 2)
            away = math.dist(box.nearest(x, y), tip)
            if away >= 5:
                choices.append((away + 0.15 * abs(rise), box))
    choices.sort(key=lambda choice: choice[0])
    best, best_cost = choices[0][1], math.inf
    for cost, box in choices:
        if cost >= best_cost:
            break  # The choices are sorted by the cost of their distance, to which all else can only add.
        cost += 20 * (wide * high - max(box.overlap(frame), box.overlap(margin) if margin else 0.0))
        cost += 20 * sum(box.grown(1.0).overlap(label.box) for label in taken)
        cost += _confusion(tip, box, taken, others)
        if cost < best_cost:
            cost += 12 * box.grown(2.0).holds(ink)
            cost += 20 * sum(_crosses(box.grown(1.0), leader) for leader in leaders)
        if cost < best_cost and (own := Placed(tip, box).leader):
            line = np.linspace(*own, 40)[8:]
            crossed = np.abs(line[:, None] - ink).max(axis=2).min(axis=1) < 1.5
            cost += 3 * int(crossed.sum()) + 10 * sum(label.box.holds(line) for label in taken)
            cost += CROSSED * sum(_meet(own, leader) for leader in leaders)
        if cost < best_cost:
            best, best_cost = box, cost
    return best


def _confusion(tip: Place, box: Box, taken: list[Placed], others: Sequence[Place]) -> float:
    """What it costs if a reader could take a label for that of another tip."""
    cost, away = 0.0, math.dist(box.nearest(*tip), tip)
    apart = [other for other in others if math.dist(other, tip) > SAME]
    nearest = min((math.dist(box.nearest(*other), other) for other in apart), default=math.inf)
    if nearest < (away + 2 if away <= LEADER else 8.0):
        cost += CONFUSED
    for label in taken:
        if is_misordered(Placed(tip, box), label):
            cost += CONFUSED
    return cost


def is_misordered(one: Placed, other: Placed) -> bool:
    """Whether two labels above each other have not the order of their tips, which are neighbours."""
    above = one.tip[1] - other.tip[1]
    if abs(above) < LEVEL or abs(one.tip[0] - other.tip[0]) > NEIGHBOURS:
        return False
    beside = one.box.x0 > other.box.x1 or other.box.x0 > one.box.x1
    middles = (one.box.y0 + one.box.y1) / 2 - (other.box.y0 + other.box.y1) / 2
    return not beside and above * middles < 0


def _crosses(box: Box, leader: tuple[Place, Place]) -> int:
    return min(box.holds(np.linspace(*leader, 40)), 3)


def _meet(one: tuple[Place, Place], other: tuple[Place, Place]) -> bool:
    """Whether two straight lines cross each other."""

    def side(line: tuple[Place, Place], point: Place) -> float:
        (x0, y0), (x1, y1) = line
        return (x1 - x0) * (point[1] - y0) - (y1 - y0) * (point[0] - x0)

    return side(one, other[0]) * side(one, other[1]) < 0 and side(other, one[0]) * side(other, one[1]) < 0


def free_place(size: tuple[float, float], ink: np.ndarray, taken: list[Box], frame: Box) -> Box | None:
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
