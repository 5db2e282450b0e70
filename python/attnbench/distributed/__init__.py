"""Attention over sequences that are split over the ranks of a process group of torch.distributed.

The functions of attnbench.recurrent and `attnbench.sparse_attention` take such a group as `cp_group`.
Every rank calls them with its slice of the sequence, and all slices are equally long:

    torch.distributed.init_process_group("gloo")
    output, _ = chunk_gated_delta_rule(q, k, v, g, beta, cp_group=torch.distributed.group.WORLD)

Rank r of the group holds the r-th slice; with the causal mask of softmax attention it holds two pieces,
see `zigzag`. `cu_seqlens` is that of the whole sequence, so packed sequences may be cut anywhere.

Initial and final states are those of the whole sequence, or of all packed ones, and the same on every
rank. The loss is the sum of the losses of the ranks: the gradient of a tensor that every rank has, such as
an initial state, A_log or the weights of a layer, is the sum of the gradients that the ranks compute. All
ranks must call the same functions in the same order, and either all ranks call backward or none does.

If the shapes, dtypes or options of a rank differ from those of rank 0, the call raises ValueError on every
rank. If a rank has ended, or does not make the call, for example because its own arguments are invalid,
the call raises RuntimeError on the others, at the latest after the timeout of the group.
"""

from attnbench.distributed._exchange import Traffic as Traffic
from attnbench.distributed._exchange import count_traffic as count_traffic
from attnbench.distributed._recurrent import payload_bytes as payload_bytes
from attnbench.distributed._softmax import ring_payload_bytes as ring_payload_bytes
from attnbench.distributed._softmax import zigzag as zigzag
