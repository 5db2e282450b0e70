"""Tests of attn/cuda/count_instructions.py, which counts the instructions of a kernel's main loop in compiled code."""

import importlib.util
import pathlib

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
SPEC = importlib.util.spec_from_file_location("count_instructions", REPOSITORY / "attn/cuda/count_instructions.py")
count_instructions = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(count_instructions)


def sass(*lines):
    """The output of cuobjdump for these instructions, 16 bytes each."""
    return ["\t\tFunction : kernel", *(f"        /*{16 * i:04x}*/  {line} ;  /* 0x0 */" for i, line in enumerate(lines))]


def counts(*lines):
    ((name, instructions),) = count_instructions.read_functions(sass(*lines))
    assert name == "kernel"
    return count_instructions.count(instructions)


def test_the_longest_path_enters_no_inner_loop():
    kinds, static = counts(
        "MOV R1, R2",
        "@!P0 BRA 0x50",  # 0x10, the loop begins; the shorter way skips three instructions
        "FADD R1, R1, R1",
        "FADD R1, R1, R1",
        "HMMA.16816.F32.BF16 R4, R4, R5, R6",
        "@!P1 BRA 0x80",  # 0x50, skips the inner loop
        "FMUL R1, R1, R1",
        "@P2 BRA 0x60",
        "IADD3 R1, R1, 0x1, RZ",  # 0x80
        "@P0 BRA 0x10",
        "EXIT",
    )
    assert dict(kinds) == {"BRA": 3, "FADD": 2, "HMMA": 1, "IADD3": 1}
    assert static == 9


def test_a_kernel_without_tensor_products_is_refused():
    with pytest.raises(ValueError, match="no loop with tensor products"):
        counts("MOV R1, R2", "FADD R1, R1, R1", "@P0 BRA 0x10", "EXIT")


def test_products_in_inner_loops_are_refused():
    with pytest.raises(ValueError, match="inner loop"):
        counts(
            "MOV R1, R2",
            "FADD R1, R1, R1",
            "HMMA.16816.F32.BF16 R4, R4, R5, R6",
            "@P1 BRA 0x20",
            "@P0 BRA 0x10",
            "EXIT",
        )
