#!/usr/bin/env python3
"""Counts the instructions of the main loop of CUDA kernels in compiled code, by kind.

    nvcc -std=c++17 -arch=sm_90 -cubin … attn/linear/cuda/bfloat16.cu -o bfloat16.cubin
    cuobjdump -sass bfloat16.cubin > bfloat16.sass
    python3 attn/cuda/count_instructions.py bfloat16.sass --kernel forward

The main loop of a kernel is the loop with the most tensor products (HMMA). A warp's instructions for one iteration are counted on
the longest path through it that does not enter an inner loop: inner loops are the paths for values that are not finite. `static`
counts all instructions of the loop. Instructions whose predicate is false count too, since they take an issue slot.
"""

import argparse
import collections
import dataclasses
import re
import sys

INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][A-Z0-9_.]*)([^;]*);")
FUNCTION = re.compile(r"Function : (\S+)")
# Instructions that end a path and instructions after which control may go on elsewhere.
ENDS = {"EXIT", "RET", "BRX", "JMX", "KILL"}


@dataclasses.dataclass
class Instruction:
    address: int
    predicate: str | None
    name: str
    operands: str

    @property
    def opcode(self):
        return self.name.split(".")[0]

    @property
    def target(self):
        """The address to which the instruction may jump, or None."""
        if self.opcode not in ("BRA", "JMP"):
            return None
        match = re.search(r"0x([0-9a-f]+)\s*$", self.operands.strip())
        return int(match.group(1), 16) if match else None


def read_functions(lines):
    """Yields (name, instructions) for each function in the output of `cuobjdump -sass`."""
    name, instructions = None, []
    for line in lines:
        if match := FUNCTION.search(line):
            if name:
                yield name, instructions
            name, instructions = match.group(1), []
        elif match := INSTRUCTION.match(line):
            instructions.append(Instruction(int(match.group(1), 16), match.group(2), match.group(3), match.group(4)))
    if name:
        yield name, instructions


class Blocks:
    """The basic blocks of a function and the edges between them."""

    def __init__(self, instructions):
        at = {instruction.address: i for i, instruction in enumerate(instructions)}
        begins = {0}
        for i, instruction in enumerate(instructions):
            if instruction.target in at:
                begins.add(at[instruction.target])
            if (instruction.target is not None or instruction.opcode in ENDS) and i + 1 < len(instructions):
                begins.add(i + 1)
        begins = sorted(begins)
        number = {begin: b for b, begin in enumerate(begins)}
        self.blocks = [instructions[b:e] for b, e in zip(begins, begins[1:] + [len(instructions)])]
        self.after = []
        for b, block in enumerate(self.blocks):
            last, after = block[-1], []
            if last.target in at:
                after.append(number[at[last.target]])
            # "BRA.DIV UR" jumps only where the lanes of a warp diverge, and returns.
            conditional = last.predicate is not None or re.search(r"\bU?P\d", last.operands) or "DIV" in last.name
            ends = last.opcode in ENDS or last.target is not None
            if (not ends or conditional) and b + 1 < len(self.blocks):
                after.append(b + 1)
            self.after.append(after)

    def components(self, nodes):
        """The strongly connected components of the graph of these blocks that contain a cycle."""
        nodes, index, low, stack, on_stack, found = set(nodes), {}, {}, [], set(), []
        sys.setrecursionlimit(100000)

        def visit(v):
            index[v] = low[v] = len(index)
            stack.append(v), on_stack.add(v)
            for w in self.after[v]:
                if w not in nodes:
                    continue
                if w not in index:
                    visit(w)
                    low[v] = min(low[v], low[w])
                elif w in on_stack:
                    low[v] = min(low[v], index[w])
            if low[v] == index[v]:
                component = set()
                while True:
                    w = stack.pop()
                    on_stack.discard(w)
                    component.add(w)
                    if w == v:
                        break
                if len(component) > 1 or v in self.after[v]:
                    found.append(component)

        for v in sorted(nodes):
            if v not in index:
                visit(v)
        return found


def count(instructions):
    """(kinds on the longest path through the main loop, all instructions of the loop), or None if no loop has tensor products."""
    graph = Blocks(instructions)
    products = [sum(i.opcode == "HMMA" for i in block) for block in graph.blocks]
    loops = [c for c in graph.components(range(len(graph.blocks))) if sum(products[b] for b in c) > 0]
    if not loops:
        return None
    loop = max(loops, key=lambda c: sum(products[b] for b in c))
    # The loop begins at the block that is entered from outside.
    entered = {w for v in range(len(graph.blocks)) if v not in loop for w in graph.after[v] if w in loop}
    head = min(entered)
    inner = set().union(*graph.components(loop - {head}))
    walked, longest = {}, {}

    def visit(v):
        """The longest way from v back to the head; None if there is none."""
        if v in longest:
            return longest[v]
        longest[v] = None
        best = None
        for w in graph.after[v]:
            if w == head:
                way = (len(graph.blocks[v]), None)
            elif w in loop and w not in inner:
                rest = visit(w)
                way = None if rest is None else (len(graph.blocks[v]) + rest[0], w)
            else:
                way = None
            if way and (best is None or way[0] > best[0]):
                best = way
        longest[v] = best
        return best

    if visit(head) is None:
        return None
    kinds, v = collections.Counter(), head
    while v is not None:
        kinds.update(i.opcode for i in graph.blocks[v])
        v = longest[v][1]
    return kinds, sum(len(graph.blocks[b]) for b in loop)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sass", help="the output of cuobjdump -sass")
    parser.add_argument("--kernel", default="", help="count only kernels whose mangled name contains this")
    parser.add_argument("--kinds", action="store_true", help="also print the number of instructions of each kind")
    arguments = parser.parse_args()
    with open(arguments.sass, encoding="utf-8") as file:
        for name, instructions in read_functions(file):
            if arguments.kernel not in name:
                continue
            counted = count(instructions)
            if counted is None:
                print(f"{name}: no loop with tensor products")
                continue
            kinds, static = counted
            print(f"{name}: {sum(kinds.values())} instructions on the longest path, {static} static, {kinds['HMMA']} tensor products")
            if arguments.kinds:
                for kind, number in kinds.most_common():
                    print(f"  {kind:10} {number}")


if __name__ == "__main__":
    main()
