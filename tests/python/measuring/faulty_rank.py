"""A rank of `python -m attnbench.distributed measure` with a fault: faulty_rank.py FAULT REQUEST.

Rank 1 has the fault; the others run as usual.
"""

import json
import os
import signal
import sys
import time

from attnbench.distributed import _exchange, operators, rank

fault, text = sys.argv[1:]
is_faulty = json.loads(text)["rank"] == 1


def kill_in_the_exchange():
    gather = _exchange.Ranks.all_gather
    calls = []

    def all_gather(self, what, x):
        calls.append(what)
        if what == "states" and len(calls) > 4:
            print("rank 1 is about to exchange states", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return gather(self, what, x)

    _exchange.Ranks.all_gather = all_gather


def hang_in_the_exchange():
    def all_gather(self, what, x):
        print("rank 1 hangs", file=sys.stderr, flush=True)
        time.sleep(3600)

    _exchange.Ranks.all_gather = all_gather


def come_late():
    time.sleep(3600)


def have_a_shorter_slice():
    inputs = operators.Operator.inputs

    def shorter(self, sizes, seed):
        found = inputs(self, sizes, seed)
        return found if seed == 1 and sizes.length > 128 else {name: x[:, :-2] for name, x in found.items()}

    operators.Operator.inputs = shorter


def disagree():
    linear = operators.OPERATORS["linear"].call

    def call(*, cp_group=None, **tensors):
        output = linear(cp_group=cp_group, **tensors)
        return output if cp_group is None else output * 1.001

    object.__setattr__(operators.OPERATORS["linear"], "call", call)


if is_faulty:
    globals()[fault]()
sys.argv[1:] = [text]
rank.main()
