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


class MainLoop:
    """The loop with the most products on the tensor cores.

    `blocks` are its basic blocks, none if no loop has products. `products` counts those of a block, and `inner` are the loops inside.
    """

    def __init__(self, instructions):
        self.graph = Blocks(instructions)
        self.products = [sum(i.opcode == "HMMA" for i in block) for block in self.graph.blocks]
        loops = self.graph.components(range(len(self.graph.blocks)))
        self.blocks = max(loops, key=self.products_of, default=set())
        if not self.products_of(self.blocks):
            self.blocks, self.inner = set(), []
            return
        # The loop begins at the block that is entered from outside.
        outside = (v for v in range(len(self.graph.blocks)) if v not in self.blocks)
        self.head = min({w for v in outside for w in self.graph.after[v] if w in self.blocks} or self.blocks)
        self.inner = [frozenset(c) for c in self.graph.components(self.blocks - {self.head})]

    def products_of(self, blocks):
        return sum(self.products[b] for b in blocks)

    def instructions_of(self, blocks):
        """How many instructions the blocks have."""
        return sum(len(self.graph.blocks[b]) for b in blocks)

    def kinds_of(self, blocks):
        return collections.Counter(i.opcode for b in blocks for i in self.graph.blocks[b])

    def longest_path(self, avoided):
        """The blocks of the longest path from the head back to it that enters no loop of `avoided`; None if there is none. Other loops
        inside count once, with all of their blocks."""
        node_of = {b: frozenset({b}) for b in self.blocks} | {b: c for c in self.inner for b in c}
        best = {}

        def visit(node):
            if node not in best:
                best[node] = None
                for w in (w for b in node for w in self.graph.after[b]):
                    if w == self.head:
                        rest = []
                    elif w in self.blocks and node_of[w] != node and node_of[w] not in avoided:
                        rest = visit(node_of[w])
                    else:
                        continue
                    if rest is not None:
                        way = [*node, *rest]
                        if best[node] is None or self.instructions_of(way) > self.instructions_of(best[node]):
                            best[node] = way
            return best[node]

        return visit(node_of[self.head])


def count(instructions):
    """(kinds on the longest path through the main loop, all instructions of the loop). Raises ValueError if there is no such path."""
    loop = MainLoop(instructions)
    if not loop.blocks:
        raise ValueError("no loop with tensor products")
    path = loop.longest_path(avoided=loop.inner)
    if path is None:
        raise ValueError("every path through the main loop enters an inner loop")
    if not loop.products_of(path):
        raise ValueError("the tensor products are in inner loops")
    return loop.kinds_of(path), loop.instructions_of(loop.blocks)


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
            try:
                kinds, static = count(instructions)
            except ValueError as error:
                print(f"{name}: {error}")
                continue
            print(f"{name}: {sum(kinds.values())} instructions on the longest path, {static} static, {kinds['HMMA']} tensor products")
            if arguments.kinds:
                for kind, number in kinds.most_common():
                    print(f"  {kind:10} {number}")


if __name__ == "__main__":
    main()
