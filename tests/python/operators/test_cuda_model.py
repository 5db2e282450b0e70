"""Tests of what is known of the CUDA kernels without a GPU: that the compiled code is within its budgets, and that the documents
have the predictions of the model of time."""

import sys
from dataclasses import replace

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "attn/cuda/model"))
import compiled
import predict


@pytest.fixture(scope="module")
def kernels():
    try:
        compiled.check_release()
        return compiled.compiled_kernels()
    except compiled.Missing as missing:
        pytest.skip(str(missing))


@pytest.mark.long
def test_compiled_kernels_are_within_their_budgets(kernels):
    messages = compiled.beyond(kernels, compiled.read_budgets()[1])
    assert not messages, "\n".join([*messages, "If that is intended: attn/cuda/model/compiled.py --renew"])


def test_no_kernel_spills_registers():
    _, budgets = compiled.read_budgets()
    assert len(budgets) > 10
    assert not [key for key, code in budgets.items() if code.spills or code.local_bytes]


def test_more_than_a_budget_is_found():
    key = ("x.cu", "forward<int>")
    code = compiled.Code(64, 0, 0, 5000, 4000, 1300, 0, 100, 64)
    assert compiled.beyond({key: code}, {key: code}) == []
    for name in compiled.LIMITS:
        more = replace(code, **{name: getattr(code, name) + 1})
        (message,) = compiled.beyond({key: more}, {key: code})
        assert message.startswith(f"forward<int> of x.cu: {name} is ")
        assert compiled.beyond({key: code}, {key: more}) == []
    assert compiled.beyond({key: code}, {}) == ["forward<int> of x.cu has no budget"]
    assert compiled.beyond({}, {key: code}) == ["forward<int> of x.cu has a budget, but does not exist"]


SASS = """
\t\tFunction : loop
        /*0000*/                   LDC R1, c[0x0][0x28] ;    /* 0x1 */
        /*0010*/                   BSSY B0, 0x50 ;           /* 0x1 */
        /*0020*/               @P1 BRA 0x40 ;                /* 0x1 */
        /*0030*/                   STL [R1], R2 ;            /* 0x1 */
        /*0040*/                   LDS.64 R4, [R2] ;         /* 0x1 */
        /*0050*/                   HMMA.16816.F32.BF16 R4, R4, R6, R4 ;  /* 0x1 */
        /*0060*/               @P0 BRA 0x10 ;                /* 0x1 */
        /*0070*/                   EXIT ;                    /* 0x1 */
        /*0080*/                   BRA 0x80;                 /* 0x1 */
        /*0090*/                   NOP ;                     /* 0x1 */
"""


def test_instructions_of_the_main_loop_are_counted():
    ((name, instructions),) = compiled.count_instructions.read_functions(SASS.splitlines())
    assert name == "loop"
    code = compiled.code_of(instructions, registers=40, local_bytes=8)
    assert code == compiled.Code(
        registers=40, local_bytes=8, spills=1, instructions=9, loop_instructions=6,
        path_instructions=6, path_divergent=1, path_shared=1, path_tensor=1,
    )  # fmt: skip


def test_names_of_kernels_are_short():
    shape = "TileShape<BFloat16, (Precision)0, 64>"
    full = "attn::cuda::TileShape<attn::cuda::BFloat16, (attn::cuda::Precision)0, 64>"
    assert compiled.short_name(f"void attn::cuda::forward<{full} >(attn::cuda::LinearParams)") == f"forward<{shape}>"
    assert compiled.short_name("attn::cuda::scan_states(float*, long, attn::cuda::Scan)") == "scan_states"


CALL = {"method": "linear", "dtype": "bfloat16", "protocol": "forward", "heads": 132, "length": 6400, "bytes": 3.35e9}
LAUNCH = {"kernel": "forward<X>", "blocks": 132, "threads": 128, "shared_bytes": 50000, "begins_early": False}
CODE = compiled.Code(64, 0, 0, 5000, 4000, 1755, 0, 100, 0)


def test_predictions_are_the_larger_of_memory_and_instructions():
    call = CALL | {"launches": [LAUNCH]}
    by_bytes = predict.predict(call, {})
    assert by_bytes["issue"] == 0
    assert by_bytes["best"] == pytest.approx(1e-3 + 2e-6)
    assert by_bytes["expected"] == pytest.approx(1e-3 / 0.9 + 2e-6)
    early = predict.predict(call | {"launches": [LAUNCH | {"begins_early": True}]}, {})
    assert early["best"] == pytest.approx(1e-3 + 1e-6)
    # A block for each multiprocessor: 100 chunks of 4 warps, so 100 µs of instructions at 4 a cycle.
    code = replace(CODE, path_tensor=1)
    few_bytes = predict.predict(call | {"bytes": 1}, {("attn/linear/cuda/bfloat16.cu", "forward<X>"): code})
    assert few_bytes["issue"] == pytest.approx(100e-6)
    assert few_bytes["expected"] == pytest.approx(200e-6 + 2e-6)
    assert few_bytes["waves"] == pytest.approx(1 / 4)


@pytest.mark.parametrize(
    ("registers", "threads", "shared_bytes", "blocks"), [(32, 128, 0, 16), (128, 128, 0, 4), (129, 128, 0, 3), (64, 128, 113 << 10, 2)]
)
def test_blocks_of_a_multiprocessor(registers, threads, shared_bytes, blocks):
    launch = {"threads": threads, "shared_bytes": shared_bytes}
    assert predict.blocks_per_multiprocessor(replace(CODE, registers=registers), launch) == blocks


def test_a_measurement_stands_beside_its_prediction():
    call = CALL | {"launches": [LAUNCH]}
    record = {
        "method": "linear", "dtype": "bfloat16", "protocol": "forward", "batch": 11, "heads": 12, "query_len": 6400,
        "key_len": 6400, "head_dim": 64, "value_dim": 64, "causal": True, "implementation": "kernel/cuda",
        "time_median_ms": 1.5,
    }  # fmt: skip
    assert predict.measured(call, [record]) == 1.5e-3
    assert "| 1.50 ms | 1.35 |" in predict.table([call], {}, [record])
    for name, other in (("dtype", "float32"), ("heads", 8), ("causal", False), ("implementation", "aten/composed")):
        assert predict.measured(call, [record | {name: other}]) is None
    assert "| not measured |" in predict.table([call], {}, [])


def test_the_document_has_the_current_predictions(build, monkeypatch):
    if not (build / "tests/cuda_launch_probe").exists():
        pytest.skip("cuda_launch_probe is not built: sanitizers cannot be combined with it")
    monkeypatch.setattr(predict, "BUILD", build)
    text = predict.DOCUMENT.read_text("utf-8")
    table, seconds = predict.current()
    assert predict.with_table(text, table) == text, "run attn/cuda/model/predict.py --renew"
    assert predict.PREDICTIONS.read_text("utf-8") == seconds, "run attn/cuda/model/predict.py --renew"
