"""Places labels so that they overlap neither each other nor the lines.

Coordinates and sizes are in points (1/72 inch); the origin is the figure's lower left corner.
"""

import math
from dataclasses import dataclass

import numpy as np

# A label that is farther than this from its tip, the point it names, gets a leader: a thin line
# between the two.
LEADER = 14.0
# A label nearer than this to a point that it does not name could be read as naming that point.
RIVAL = 12.0
# How many places `arrange` considers for each label, from how many starts, and in how many rounds.
PLACES = 300
STARTS = 30
ROUNDS = 20
# The cost of a leader that crosses a label, another leader, or a point that it does not name.
CROSSED = 80


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


@dataclass(frozen=True)
class Wish:
    """A label to be placed: the tip it names, its possible sizes, and points it does not name."""

    tip: tuple[float, float]
    sizes: list[tuple[float, float]]
    rivals: np.ndarray


def arrange(
    wishes: list[Wish], ink: np.ndarray, taken: list[Box], frame: Box
) -> list[tuple[int, Box]]:
    """Places all labels together; returns for each wish the index of the best size, and its box.

    Unlike with `place`, boxes and leaders also avoid other leaders. From each of STARTS random
    starts, one label after another moves to its best place given the others, until none moves or
    ROUNDS are over. The start that ends with the lowest total cost counts.
    """
    pools = [_Pool(wish, ink, taken, frame) for wish in wishes]
    pairs = {(i, k): a.against(b) for k, b in enumerate(pools) for i, a in enumerate(pools[:k])}
    pairs |= {(k, i): cost.T for (i, k), cost in pairs.items()}
    draws = np.random.default_rng(0)
    best, lowest = [0] * len(pools), math.inf
    for _ in range(STARTS):
        chosen = [int(draws.integers(len(pool.cost))) for pool in pools]
        for _ in range(ROUNDS):
            before = list(chosen)
            for i, pool in enumerate(pools):
                others = sum(pairs[i, k][:, at] for k, at in enumerate(chosen) if k != i)
                chosen[i] = int(np.argmin(pool.cost + others))
            if chosen == before:
                break
        total = sum(float(pool.cost[at]) for pool, at in zip(pools, chosen, strict=True))
        total += sum(float(pairs[i, k][chosen[i], chosen[k]]) for i, k in pairs if i < k)
        if total < lowest:
            best, lowest = chosen, total
    return [
        (int(pool.which[at]), Box(*map(float, pool.boxes[at])))
        for pool, at in zip(pools, best, strict=True)
    ]


class _Pool:
    """The best places for one label, and the cost of each if there were no other label."""

    def __init__(self, wish: Wish, ink: np.ndarray, taken: list[Box], frame: Box) -> None:
        x, y = wish.tip
        shifts = (8.0, 14.0, 22.0, 30.0, 44.0)
        rises = np.arange(-150.0, 150.1, 5.0)
        boxes, which = [], []
        for k, (wide, high) in enumerate(wish.sizes):
            lefts = [x + s for s in shifts] + [x - wide - s for s in shifts] + [x - wide / 2]
            for left in lefts:
                left = min(max(left, frame.x0 + 4), frame.x1 - wide)
                boxes += [(left, y + r - high / 2, left + wide, y + r + high / 2) for r in rises]
                which += [k] * len(rises)
        places = np.array(boxes)
        edges = np.clip(wish.tip, places[:, :2], places[:, 2:])
        away = np.hypot(*(edges - wish.tip).T)
        has_leader = away > LEADER
        cost = 12 * np.array(which) + away + 6 * has_leader + 1e6 * (away < 5)
        cost += 12 * _holds(_grown(places, (2, 2)), ink).sum(axis=1)
        area = np.prod(places[:, 2:] - places[:, :2], axis=1)
        cost += 20 * (area - _shared(places, _edges(frame)))
        for other in taken:
            cost += 20 * _shared(_grown(places, (1, 1)), _edges(other))
        if len(wish.rivals):
            nearest = _distance(places, wish.rivals).min(axis=1)
            cost += 2 * np.maximum(RIVAL - nearest, 0.0)
            cost += 2 * CROSSED * (~has_leader & (nearest < away + 2))
        # It is enough to choose from the PLACES cheapest places.
        best = np.argsort(cost, kind="stable")[:PLACES]
        self.cost, self.has_leader = cost[best], has_leader[best]
        self.boxes, self.which = places[best], np.array(which)[best]
        starts = wish.tip + 5 * (edges - wish.tip)[best] / np.maximum(away[best, None], 5)
        steps = np.linspace(0.0, 1.0, 16)[:, None]
        self.leaders = starts[:, None] + steps * (edges[best] - starts)[:, None]
        if len(wish.rivals):
            gaps = self.leaders[:, :, None] - wish.rivals
            passed = np.hypot(gaps[..., 0], gaps[..., 1]).min(axis=1) < 5
            self.cost += CROSSED * self.has_leader * passed.sum(axis=1)

    def against(self, other: "_Pool") -> np.ndarray:
        """What a place of this label (row) and one of the other (column) cost each other."""
        # Labels side by side would be read as one line, so boxes keep a wide gap between them.
        cost = 20 * _shared(_grown(self.boxes, (8, 1))[:, None], other.boxes)
        cost += CROSSED * self._crosses(other) + CROSSED * other._crosses(self).T
        a, b = self.leaders[:, None, 0], self.leaders[:, None, -1]
        c, d = other.leaders[None, :, 0], other.leaders[None, :, -1]
        meet = (_turn(a, b, c) * _turn(a, b, d) < 0) & (_turn(c, d, a) * _turn(c, d, b) < 0)
        return cost + CROSSED * (meet & self.has_leader[:, None] & other.has_leader)

    def _crosses(self, other: "_Pool") -> np.ndarray:
        """Whether leaders of this label (rows) cross boxes of the other (columns)."""
        inside = _holds(_grown(other.boxes, (1.5, 1.5)), self.leaders.reshape(-1, 2))
        crossed = inside.reshape(len(other.boxes), *self.leaders.shape[:2]).any(axis=2)
        return crossed.T & self.has_leader[:, None]


def _edges(box: Box) -> np.ndarray:
    return np.array([box.x0, box.y0, box.x1, box.y1])


def _grown(boxes: np.ndarray, by: tuple[float, float]) -> np.ndarray:
    return boxes + np.array([-by[0], -by[1], *by])


def _shared(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The areas that boxes share with others; the last axis holds left, bottom, right and top."""
    upper = np.minimum(boxes[..., 2:], others[..., 2:])
    lower = np.maximum(boxes[..., :2], others[..., :2])
    return np.prod(np.maximum(upper - lower, 0.0), axis=-1)


def _holds(boxes: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Whether boxes (rows) contain points (columns)."""
    x0, y0, x1, y1 = boxes.T[:, :, None]
    x, y = points.T
    return (x > x0) & (x < x1) & (y > y0) & (y < y1)


def _distance(boxes: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The distances of points (columns) from boxes (rows)."""
    low, high = boxes[:, None, :2] - points, points - boxes[:, None, 2:]
    return np.hypot(*np.maximum(np.maximum(low, high), 0.0).transpose(2, 0, 1))


def _turn(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """A sign that says on which side of the line from a to b the point c is."""
    ab, ac = b - a, c - a
    return np.sign(ab[..., 0] * ac[..., 1] - ab[..., 1] * ac[..., 0])
