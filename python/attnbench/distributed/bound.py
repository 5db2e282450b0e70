"""The upper bound of the efficiency of weak scaling that follows from the number of operations.

In weak scaling each rank has as many positions as one process. One process computes the forward pass F and the backward
pass B. With several ranks, a rank in the middle also computes the state at the end of its slice, E, and the gradient of the
state at its beginning, D:

    bound = F / (E + F)    or with the backward pass    (F + B) / (E + F + D + B)

F, B, E and D are numbers of multiply-adds for one position and one head; K and V are the head dimensions, and C = 16 is the
number of positions in a chunk of the kernels, which use a triangle of the products within a chunk. Without the delta rule,
with or without decay,

    F = 2KV + C(K + V)/2    B = 5KV + C(3K + 2V)/2    E = D = KV

With the delta rule the values of a chunk also depend on each other. The end of a slice costs two products with the state
instead of the three of F, and the gradient of its beginning a forward pass with K columns of values and one product:

    F = 3KV + C(2K + 2V)/2    B = 8KV + C(5K + 4V)/2    E = 2KV + C(K + V)/2    D = 3KK + C(2K + 2K)/2 + KV

This is E for two ranks; with more, E has V + K columns instead of V, because the transition has K.

The bound leaves out messages and the work on gathered states, which does not grow with the length. Softmax attention has no
bound of this kind, since the work of a rank grows with the number of ranks.
"""

CHUNK = 16


def counts(transition: str, dim: int, value_dim: int, ranks: int) -> dict[str, float]:
    """F, B, E and D by name: multiply-adds for one position and one head. E and D are 0 for one rank.

    Args:
        transition: the `transition` of an `Operator`, except "ring".
        dim, value_dim: K and V.
        ranks: the number of ranks.
    """
    product = dim * value_dim
    if transition == "matrix":
        forward = 3 * product + CHUNK * (2 * dim + 2 * value_dim) / 2
        backward = 8 * product + CHUNK * (5 * dim + 4 * value_dim) / 2
        columns = value_dim if ranks == 2 else value_dim + dim
        end = 2 * dim * columns + CHUNK * (dim + columns) / 2
        gradient = 3 * dim * dim + CHUNK * 4 * dim / 2 + product
    else:
        forward = 2 * product + CHUNK * (dim + value_dim) / 2
        backward = 5 * product + CHUNK * (3 * dim + 2 * value_dim) / 2
        end = gradient = float(product)
    if ranks == 1:
        end = gradient = 0.0
    return {"F": forward, "B": backward, "E": end, "D": gradient}


def weak_scaling_bound(transition: str, dim: int, value_dim: int, ranks: int, *, backward: bool) -> float:
    """The bound, at most 1: the largest efficiency that the operation counts allow. `counts` describes the arguments."""
    n = counts(transition, dim, value_dim, ranks)
    whole, more = (n["F"] + n["B"], n["E"] + n["D"]) if backward else (n["F"], n["E"])
    return whole / (whole + more)


def formula_text(transition: str, dim: int, value_dim: int, ranks: int, *, backward: bool) -> str:
    """The formula of the bound as text, with its value and the values of F, B, E and D."""
    n = counts(transition, dim, value_dim, ranks)
    names = ("E", "F", "D", "B") if backward else ("E", "F")
    whole = "(F + B)" if backward else "F"
    values = ", ".join(f"{name} = {n[name]:,.0f}" for name in names)
    bound = weak_scaling_bound(transition, dim, value_dim, ranks, backward=backward)
    return f"{whole} / ({' + '.join(names)}) = {bound:.2f} with {values}"
