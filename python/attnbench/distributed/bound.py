"""How much of one process's speed a rank can keep, by counted operations.

Each rank has as many positions as one process (weak scaling). One process computes the forward pass F and the backward
pass B. Of several ranks those in the middle compute the end of their slice, E, and the beginning's gradient, D, as well:

    bound = F / (E + F)    or with the backward pass    (F + B) / (E + F + D + B)

F, B, E and D are multiply-adds of a position and head; K and V are the head dimensions and C = 16 the positions of a
chunk of the kernels, of which a triangle is used. Without decay, and with any decay,

    F = 2KV + C(K + V)/2    B = 5KV + C(3K + 2V)/2    E = D = KV

By the delta rule the positions of a chunk correct each other. The end of a slice costs two products with the state instead of
three, and the beginning's gradient a forward pass of K columns and one product:

    F = 3KV + C(2K + 2V)/2    B = 8KV + C(5K + 4V)/2    E = 2KV + C(K + V)/2    D = 3KK + C(2K + 2K)/2 + KV

at two ranks; with more, E has V + K columns instead of V, K of them for the transition.

Folds of states, which do not grow with the length, and messages are left out. Softmax attention has no bound of this
kind: the work of a rank grows with the number of ranks.
"""

CHUNK = 16


def counts(transition: str, dim: int, value_dim: int, ranks: int) -> dict[str, float]:
    """F, B, E and D by name: multiply-adds of a position and head.

    Args:
        transition: that of an `Operator`, but not "ring".
        dim, value_dim: K and V.
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
    """The largest share of the speed of one process."""
    n = counts(transition, dim, value_dim, ranks)
    whole, more = (n["F"] + n["B"], n["E"] + n["D"]) if backward else (n["F"], n["E"])
    return whole / (whole + more)


def formula_text(transition: str, dim: int, value_dim: int, ranks: int, *, backward: bool) -> str:
    """The bound as a text with its numbers."""
    n = counts(transition, dim, value_dim, ranks)
    names = ("E", "F", "D", "B") if backward else ("E", "F")
    whole = "(F + B)" if backward else "F"
    values = ", ".join(f"{name} = {n[name]:,.0f}" for name in names)
    bound = weak_scaling_bound(transition, dim, value_dim, ranks, backward=backward)
    return f"{whole} / ({' + '.join(names)}) = {bound:.2f} with {values}"
