"""Tests of methods in Python: functions of a file that `attnbench` measures like its own methods."""

import re
import textwrap

import pytest
from conftest import ROOT, small, strict_json
from python_functions import SOFTMAX, answers, attnbench, measure, pytestmark, request, write  # noqa: F401


EXAMPLE = ROOT / "examples" / "sliding_window.py"


def test_a_plain_function_is_measured_and_marked_as_unverified(write, measure, attnbench):
    path = write(SOFTMAX)
    record = measure(f"{path}:attention")
    assert (record["outcome"], record["unverified"]) == ("measured", True)
    assert (record["max_rel_error"], record["rows_checked"]) == (None, None)
    assert record["implementation"] == "python/attention"
    assert len(record["method_digest"]) == 16
    assert re.fullmatch(r"3\.\d+\.\d+, torch .*", record["python"])
    assert record["call_overhead_us"] > 0
    text = attnbench("measure", f"{path}:attention", *small()).stdout
    assert "unverified, without a reference" in text
    text = attnbench("measure", f"{path}:attention", *small(), "--verbose").stdout
    assert re.search(r"unverified +true", text)


@pytest.mark.parametrize("protocol", ["forward", "forward_backward"])
@pytest.mark.parametrize("causal", [[], ["--causal"]])
def test_like_gives_a_function_a_reference(write, measure, protocol, causal):
    path = write(SOFTMAX)
    record = measure(f"{path}:attention", "--like=softmax", *causal, protocol=protocol)
    assert (record["outcome"], record["unverified"]) == ("measured", None)
    assert 0 < record["max_rel_error"] < 1e-5
    assert record["nondeterminism"] == 0
    assert record["method"] == f"{path}:attention:like=softmax"


def test_the_example_with_a_reference_and_a_decoding_state_is_verified(attnbench):
    result = attnbench("verify", f"{EXAMPLE}:sliding_window:window=16", "--quick", "--format=json")
    rows = strict_json(result.stdout)
    causal = [row for row in rows if row["causal"] and row["key_lengths"] == "full"]
    assert [row["verdict"] for row in causal] == ["agrees"]
    assert causal[0]["decoding_error"] < 1e-5 and causal[0]["gradient_error"] < 1e-5


def test_the_example_decodes_in_measurements(measure):
    record = measure(f"{EXAMPLE}:sliding_window:window=16", "--causal", protocol="decode")
    assert record["outcome"] == "measured", record["reason"]
    assert record["state_bytes"] == 2 * 2 * 16 * 16 * 4
    forward = measure(f"{EXAMPLE}:sliding_window:window=16", "--causal")
    assert 0 < forward["quality_row_error_median"] < 10, "it names softmax as what it approximates"


def test_options_come_from_the_signature(write, measure):
    path = write("""
        def scaled(q, k, v, *, causal, factor=2.0, times=1, name="a", flag=False):
            assert (factor, times, name, flag) == (3.5, 4, "b", True)
            return v * factor
    """)
    options = "factor=3.5,times=4,name=b,flag=true"
    assert measure(f"{path}:scaled:{options}")["outcome"] == "measured"


def test_a_file_beside_the_method_can_be_imported(write, measure):
    write("def twice(x):\n    return x * 2\n", "helper.py")
    path = write("import helper\n\ndef f(q, k, v):\n    return helper.twice(v)\n")
    assert measure(f"{path}:f")["outcome"] == "measured"


def test_what_a_function_prints_does_not_mix_with_the_record(write, measure):
    path = write("import os\nprint('loaded')\n\ndef f(q, k, v):\n    print('called')\n    os.write(1, b'{')\n    return v * 1\n")
    assert measure(f"{path}:f")["outcome"] == "measured"


def test_setup_is_recorded_and_may_replace_the_function(write, measure):
    path = write("""
        import attnbench

        def prepare(function, problem):
            assert problem["query_len"] in (64, 48) and problem["protocol"] == "forward"
            return lambda q, k, v: v * 3

        def triple(q, k, v, *, rows):
            return (v * 3)[:, :, rows]

        @attnbench.method(setup=prepare, reference=triple)
        def f(q, k, v):
            raise AssertionError("setup returned another function")
    """)
    record = measure(f"{path}:f", query_len=48)
    assert record["setup_s"] >= 0 and record["max_rel_error"] < 1e-6


def test_setup_comes_before_calls_whose_instructions_are_counted(write, build):
    path = write("""
        import attnbench

        prepared = []

        @attnbench.method(setup=lambda function, problem: prepared.append(problem))
        def f(q, k, v):
            assert prepared
            return v * 1
    """)
    (record,) = answers(build, "count", [request(f"{path}:f")])
    assert record["outcome"] == "measured", record["reason"]


def test_an_own_backward_is_used(write, measure):
    path = write("""
        import attnbench

        def gradients(grad, q, k, v, output, *, causal):
            return q * 0, k * 0, grad * 2

        @attnbench.method(backward=gradients, reference=lambda q, k, v, *, rows: (v * 2)[:, :, rows])
        def f(q, k, v, *, causal):
            return (v * 2).detach()
    """)
    assert measure(f"{path}:f", protocol="forward_backward")["outcome"] == "measured"


def test_an_autograd_function_is_differentiated(write, measure):
    path = write("""
        import torch

        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, v):
                return v * 2

            @staticmethod
            def backward(ctx, grad):
                return grad * 2

        def f(q, k, v):
            return Double.apply(v)
    """)
    assert measure(f"{path}:f", protocol="forward_backward")["outcome"] == "measured"


def test_a_sweep_finds_the_file_beside_itself_and_marks_what_is_unverified(write, attnbench, tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "mine.py").write_text(textwrap.dedent(SOFTMAX))
    sweep = write(
        """
        [axes]
        method = ["linear", "kernels/mine.py:attention", "kernels/mine.py:attention:like=softmax"]
        query_len = 32
        heads = 2
        head_dim = 16
        threads = 1
        [timing]
        time_budget_s = 0.02
        warmup_s = 0
        """,
        "mine.toml",
    )
    out = tmp_path / "out"
    result = attnbench("sweep", sweep, "--out", out, "--format=markdown", cwd="/")
    lines = [line for line in result.stdout.splitlines() if "mine.py" in line]
    assert len(lines) == 2
    assert [("unverified" in line) for line in lines] == [":like=" not in line for line in lines]
    records = [strict_json(line) for line in (out / "records.jsonl").read_text().splitlines()]
    assert {r["method"] for r in records} == {
        "linear", "kernels/mine.py:attention", "kernels/mine.py:attention:like=softmax",
    }  # fmt: skip


def test_files_that_attnbench_ships_are_found_from_any_folder_after_those_of_the_user(write, attnbench, tmp_path):
    plan = ("sweep", "quickstart", "--dry-run", "--methods=rivals/flex-attention.py:softmax", "--set=protocol=forward", "--quiet")
    assert "flex-attention.py:softmax" in attnbench(*plan).stdout
    (tmp_path / "rivals").mkdir()
    write("def other(q, k, v):\n    return v\n", "rivals/flex-attention.py")
    assert "has no function 'softmax'; its functions: other" in attnbench(*plan, code=2).stderr


def test_a_changed_file_is_another_build(write, attnbench, tmp_path):
    path = write(SOFTMAX)
    sweep = write(
        """
        [axes]
        method = "mine.py:attention"
        query_len = 32
        threads = 1
        [timing]
        time_budget_s = 0.02
        """,
        "one.toml",
    )
    command = ["sweep", sweep, "--out", tmp_path / "out", "--quiet"]
    attnbench(*command)
    path.write_text(path.read_text() + "\n# faster\n")
    refused = attnbench(*command, code=5).stderr
    assert re.search(r"method_digest of mine.py:attention: \w+ there, \w+ here", refused)
    attnbench(*command, "--resume=all")


def test_a_package_that_is_missing_skips_the_case_with_the_command_that_installs_it(write, measure):
    path = write("""
        import attnbench

        @attnbench.method(exact="softmax", requires={"no_such_package": "pip install no-such-package==1.2"})
        def f(q, k, v):
            import no_such_package
    """)
    record = measure(f"{path}:f")
    assert (record["outcome"], record["failure_kind"]) == ("skipped", "unsupported")
    assert record["reason"] == "the Python package no_such_package is not installed; pip install no-such-package==1.2"


def test_a_submodule_of_a_missing_package_is_missing(write, measure):
    path = write("""
        import attnbench

        @attnbench.method(requires={"no_such_package.layers": "pip install no-such-package"})
        def f(q, k, v):
            return v * 1
    """)
    assert "no_such_package.layers is not installed" in measure(f"{path}:f")["reason"]


def test_a_function_gets_the_keywords_of_its_signature_whatever_is_declared(write, measure):
    path = write(SOFTMAX + """
    import attnbench

    @attnbench.method(exact="softmax", causal=True, full=False)
    def always(q, k, v):
        return attention(q, k, v, causal=True)

    @attnbench.method(exact="softmax", causal=False)
    def never(q, k, v, *, causal):
        assert causal is False
        return attention(q, k, v, causal=False)
    """)
    assert measure(f"{path}:always", "--causal")["outcome"] == "measured"
    assert "causal form only" in measure(f"{path}:always")["reason"]
    assert measure(f"{path}:never")["outcome"] == "measured"
    assert "has no causal form" in measure(f"{path}:never", "--causal")["reason"]


def test_a_state_with_slots_is_measured(write, measure):
    path = write("""
        import attnbench
        import torch

        class Mean:
            __slots__ = ("total", "count")

            def __init__(self, problem):
                self.total, self.count = torch.zeros(1, 2, 1, 16), 0

            def step(self, q, k, v):
                self.total, self.count = self.total + v, self.count + 1
                return self.total / self.count

        @attnbench.method(decode=Mean)
        def mean(q, k, v, *, causal):
            return v.cumsum(2) / torch.arange(1, v.shape[2] + 1).view(-1, 1)
    """)
    record = measure(f"{path}:mean", "--causal", protocol="decode")
    assert (record["outcome"], record["state_bytes"]) == ("measured", 2 * 16 * 4), record["reason"]


def test_lengths_can_have_to_be_multiples(write, measure):
    path = write("""
        import attnbench

        @attnbench.method(multiple_of=64)
        def blocks(q, k, v):
            assert q.shape[2] % 64 == 0 and k.shape[2] % 64 == 0
            return v * 1
    """)
    assert measure(f"{path}:blocks", query_len=640)["outcome"] == "measured"
    record = measure(f"{path}:blocks", query_len=600)
    assert (record["outcome"], record["failure_kind"]) == ("skipped", "unsupported")
    assert "needs lengths that are multiples of 64" in record["reason"]


def test_gradients_can_be_declared_for_some_devices_only(write, measure):
    path = write("""
        import attnbench

        @attnbench.method(gradients=["cuda"])
        def f(q, k, v):
            return v * 1
    """)
    record = measure(f"{path}:f", protocol="forward_backward")
    assert "has no gradients on cpu" in record["reason"]


def test_methods_of_this_program_load_no_python(attnbench):
    result = attnbench("measure", "linear", *small(), "--format=json")
    record = strict_json(result.stdout)
    assert (record["method_digest"], record["python"], record["call_overhead_us"]) == (None,) * 3
