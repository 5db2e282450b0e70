#!/usr/bin/env python3
"""Counts what nvcc makes of the CUDA kernels: registers, local memory, instructions.

    attn/cuda/model/compiled.py           compares the compiled kernels with budgets.csv
    attn/cuda/model/compiled.py --renew   writes budgets.csv from the compiled kernels

It needs nvcc and cuobjdump, but no GPU. tests/python/operators/test_cuda_model.py runs the comparison.
"""

import argparse
import csv
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "attn/cuda"))
import count_instructions  # noqa: E402

BUDGETS = Path(__file__).with_name("budgets.csv")
ARCHITECTURE = "sm_90"
# float16 is compiled from the same templates as TF32, which differ little from float32.
SOURCES = (
    "attn/linear/cuda/bfloat16.cu",
    "attn/linear/cuda/float32.cu",
    "attn/lsh/cuda/bfloat16.cu",
    "attn/lsh/cuda/float32.cu",
)
DIMENSIONS = (64, 128)  # tile dimensions that are held to budgets


class Missing(Exception):
    """A program that is needed is not installed, or not in the release that the budgets are for."""


@dataclass
class Code:
    """A compiled kernel. The counts of its main loop (see main_loop()) are 0 for kernels without products on the tensor
    cores."""

    registers: int  # of a thread
    local_bytes: int  # of a thread, on its stack and in local memory
    spills: int  # instructions that access local memory
    instructions: int
    loop_instructions: int  # in the main loop
    path_instructions: int  # on the longest path through the main loop
    path_divergent: int  # places on this path at which the lanes of a warp may part (BSSY)
    path_shared: int  # loads from and stores to shared memory on this path
    path_tensor: int  # products of the tensor cores on this path


LIMITS = [field.name for field in fields(Code)]


def find_program(name):
    folders = [os.environ.get("CUDA_HOME", "") + "/bin", "/usr/local/cuda/bin"]
    # The package triton, which torch requires, has the programs that read compiled kernels.
    folders.append(sysconfig.get_path("purelib") + "/triton/backends/nvidia/bin")
    found = shutil.which(name) or next((p for f in folders if (p := shutil.which(f"{f}/{name}"))), None)
    if not found:
        raise Missing(f"{name} is not installed: it is neither on PATH nor in {', '.join(folders[1:])}")
    return found


def nvcc_release():
    text = subprocess.check_output([find_program("nvcc"), "--version"], encoding="utf-8")
    return re.search(r"release ([\d.]+)", text)[1]


def torch_include():
    folder = Path(sysconfig.get_path("purelib")) / "torch/include"
    if not folder.is_dir():
        raise Missing(f"the headers of LibTorch are not in {folder}")
    return folder


def short_name(demangled):
    """"void attn::cuda::forward<attn::cuda::TileShape<…> >(attn::cuda::LinearParams)" without namespaces
    and parameters."""
    name = re.sub(r"\b(attn::cuda::|attn::|void )|\(anonymous namespace\)::", "", demangled)
    depth = 0
    for i, c in enumerate(name):
        depth += {"<": 1, ">": -1}.get(c, 0)
        if c == "(" and depth == 0:
            return name[:i].replace("> >", ">>")
    return name


def main_loop(instructions):
    """(kinds of the instructions on the longest path through the main loop, number of all its instructions).

    The main loop is the one with the most products on the tensor cores; a function without products has none. The path enters no
    loop inside it if at least half of the products are outside of these, as count_instructions.py counts: such loops are for rare
    values. Otherwise loops inside it count once, with all of their instructions, and those without products are avoided where there
    is another way. Of a branch, the path takes the longer side."""
    loop = count_instructions.MainLoop(instructions)
    if not loop.blocks:
        return Counter(), 0
    path = loop.longest_path(avoided=loop.inner)
    if path is None or 2 * loop.products_of(path) < loop.products_of(loop.blocks):
        rare = [inner for inner in loop.inner if not loop.products_of(inner)]
        path = loop.longest_path(avoided=rare) or loop.longest_path(avoided=[]) or []
    return loop.kinds_of(path), loop.instructions_of(loop.blocks)


def code_of(instructions, registers, local_bytes):
    kinds, static = main_loop(instructions)
    spills = sum(i.opcode in ("LDL", "STL") for i in instructions)
    return Code(
        registers,
        local_bytes,
        spills,
        sum(i.opcode != "NOP" for i in instructions),
        static,
        sum(kinds.values()),
        kinds["BSSY"],
        kinds["LDS"] + kinds["STS"] + kinds["LDSM"] + kinds["STSM"],
        kinds["HMMA"],
    )


def inspect(cubin):
    """The Code of each kernel in a compiled file, by the kernel's name."""
    cuobjdump = find_program("cuobjdump")

    def output(*arguments):
        return subprocess.run(arguments, capture_output=True, text=True, check=True).stdout

    usage = {
        name: (int(registers), int(stack) + int(local))
        for name, registers, stack, local in re.findall(
            r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", output(cuobjdump, "-res-usage", cubin)
        )
    }
    functions = count_instructions.read_functions(output(cuobjdump, "-sass", cubin).splitlines())
    found = {}
    for mangled, instructions in functions:
        found[short_name(output("c++filt", mangled).strip())] = code_of(instructions, *usage[mangled])
    return found


def compile_and_inspect(source, folder):
    cubin = Path(folder) / (source.replace("/", "-") + ".cubin")
    command = [find_program("nvcc"), "-cubin", f"-arch={ARCHITECTURE}", "-O3", "-std=c++17", "-w"]
    command += [f"-I{ROOT}", f"-I{torch_include()}", "-o", str(cubin), str(ROOT / source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{source} does not compile:\n{done.stderr}")
    return inspect(cubin)


def is_held(kernel):
    """Whether the kernel is held to a budget: all but those for other tile dimensions."""
    dimension = re.search(r"TileShape<.*?, (\d+)>", kernel)
    return dimension is None or int(dimension[1]) in DIMENSIONS


def compiled_kernels(sources=SOURCES):
    """The Code of all kernels that are held to budgets, by (source, kernel)."""
    find_program("cuobjdump"), find_program("nvcc"), torch_include()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        inspected = list(pool.map(lambda source: compile_and_inspect(source, folder), sources))
    return {
        (source, kernel): code
        for source, kernels in zip(sources, inspected, strict=True)
        for kernel, code in sorted(kernels.items())
        if is_held(kernel)
    }


def read_budgets(path=BUDGETS):
    """The release of nvcc that the budgets are for, and the Code of each (source, kernel)."""
    first, *rows = path.read_text("utf-8").splitlines()
    release = re.search(r"nvcc ([\d.]+)", first)[1]
    return release, {
        (row["source"], row["kernel"]): Code(**{name: int(row[name]) for name in LIMITS}) for row in csv.DictReader(rows)
    }


def write_budgets(kernels, path=BUDGETS):
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(f"# What nvcc {nvcc_release()} makes of the kernels for {ARCHITECTURE}; written by compiled.py --renew\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["source", "kernel", *LIMITS])
        for (source, kernel), code in kernels.items():
            writer.writerow([source, kernel, *asdict(code).values()])


def beyond(kernels, budgets):
    """Messages about the kernels that need more than their budgets, and about those without one."""
    messages = [f"{kernel} of {source} has no budget" for source, kernel in kernels.keys() - budgets.keys()]
    messages += [f"{kernel} of {source} has a budget, but does not exist" for source, kernel in budgets.keys() - kernels.keys()]
    for key in kernels.keys() & budgets.keys():
        for name in LIMITS:
            used, budget = getattr(kernels[key], name), getattr(budgets[key], name)
            if used > budget:
                messages.append(f"{key[1]} of {key[0]}: {name} is {used}, more than the {budget} of its budget")
    return sorted(messages)


def check_release():
    release, _ = read_budgets()
    if nvcc_release() != release:
        raise Missing(f"budgets.csv is for nvcc {release}, and this is nvcc {nvcc_release()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--renew", action="store_true", help="write budgets.csv")
    arguments = parser.parse_args()
    try:
        if arguments.renew:
            return write_budgets(compiled_kernels())
        check_release()
        messages = beyond(compiled_kernels(), read_budgets()[1])
    except Missing as error:
        sys.exit(str(error))
    if messages:
        sys.exit("\n".join([*messages, "If that is intended: attn/cuda/model/compiled.py --renew"]))
    print("All kernels are within their budgets.")


if __name__ == "__main__":
    main()
