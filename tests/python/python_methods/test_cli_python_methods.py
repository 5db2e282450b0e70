"""Tests of methods in Python: functions of a file that `attnbench` measures like its own methods."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import ROOT, small, strict_json

from attnbench import _source_check as source_check

MODULE = ROOT / "build" / "libattnbench-python.so"
EXAMPLE = ROOT / "examples" / "sliding_window.py"

pytestmark = pytest.mark.skipif(
    not MODULE.is_file(), reason="the build has no module for methods in Python (python3-dev)"
)

SOFTMAX = """
    import torch

    def scores(q, k, causal):
        s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        if causal:
            s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -torch.inf)
        return s

    def attention(q, k, v, *, causal):
        return scores(q, k, causal).softmax(-1) @ v
"""


@pytest.fixture
def attnbench(forking):
    return forking


@pytest.fixture
def write(tmp_path):
    """Writes a Python file and returns its path."""

    def write_file(text, name="mine.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return write_file


@pytest.fixture
def measure(attnbench):
    """Measures a function and returns the record, whatever its outcome."""

    def run(method, *more, code=0, **options):
        result = attnbench("measure", method, *small(**options), *more, "--format=json", code=code)
        return strict_json(result.stdout)

    return run


def refusal(attnbench, method, *more):
    """The message with which a method is refused before anything is measured."""
    return attnbench("measure", method, *small(), *more, code=2).stderr


# ---------------------------------------------------------------- measuring


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


# ---------------------------------------------------------------- planted mistakes

# By name: the body of a function that makes a mistake which a careless comparison would miss.
MISTAKES = {
    "mask off by one": """
        def f(q, k, v, *, causal):
            s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
            if causal:
                s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(2), -torch.inf)
            return s.softmax(-1) @ v
    """,
    "scale is missing": """
        def f(q, k, v, *, causal):
            s = q @ k.transpose(-1, -2)
            if causal:
                s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -torch.inf)
            return s.softmax(-1) @ v
    """,
    "result is stored": """
        stored = {}

        def f(q, k, v, *, causal):
            if v.shape not in stored:
                stored[v.shape] = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return stored[v.shape].clone()
    """,
    "buffer is returned again": """
        stored = {}

        def f(q, k, v, *, causal):
            output = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return stored.setdefault(v.shape, torch.empty_like(v)).copy_(output)
    """,
    "result is kept for its inputs": """
        stored = {}

        def f(q, k, v, *, causal):
            if q.data_ptr() not in stored:
                stored[q.data_ptr()] = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return stored[q.data_ptr()]
    """,
    "result is kept and copied": """
        stored = {}

        def f(q, k, v, *, causal):
            if q.data_ptr() not in stored:
                stored[q.data_ptr()] = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return stored[q.data_ptr()].clone()
    """,
    "input in another order": """
        def f(q, k, v, *, causal):
            output = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            k.copy_(k.flip(2))
            return output
    """,
    "view of an input": """
        def f(q, k, v, *, causal):
            return v
    """,
    "input changed": """
        def f(q, k, v, *, causal):
            q *= 1.5
            return F.scaled_dot_product_attention(q / 1.5, k, v, is_causal=causal)
    """,
    "random": """
        def f(q, k, v, *, causal):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, dropout_p=0.5)
    """,
    "NaN": """
        def f(q, k, v, *, causal):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal) / (q[:, :, :1, :1] * 0)
    """,
}
REASONS = {
    "mask off by one": "disagrees with the float64 reference",
    "scale is missing": "disagrees with the float64 reference",
    "result is stored": "in a second call, with other inputs",
    "buffer is returned again": "two calls returned the same memory",
    "result is kept for its inputs": "returned the memory of an earlier result",
    "result is kept and copied": "with other numbers in the memory of the first inputs",
    "input in another order": "changed its input k in place",
    "view of an input": "view of the input v",
    "input changed": "changed its input q in place",
    "random": "",
    "NaN": "NaN or infinity",
}


CASES = [(mistake, decorated) for mistake in MISTAKES for decorated in (False, True)]


def request(method, **options):
    """A small case as the worker reads it."""
    few = {"query_len": 64, "heads": 2, "head_dim": 16, "threads": 1, "max_disturbance": 1e6}
    return few | {"warmup_s": 0.0, "time_budget_s": 0.02, "method": method} | options


def answers(build, command, requests):
    """The records with which one worker answers several cases, which takes less time than a worker
    for each."""
    worker = subprocess.run(
        [build / "attnbench-worker", command], input=json.dumps(requests), capture_output=True, text=True, check=False
    )
    assert worker.returncode == 0, worker.stderr
    lines = [strict_json(line) for line in worker.stdout.splitlines()]
    assert len(lines) == len(requests)
    return lines


@pytest.fixture(scope="module")
def mistakes(build, tmp_path_factory):
    """The records of all planted mistakes."""
    folder = tmp_path_factory.mktemp("mistakes")
    requests = []
    for i, (mistake, decorated) in enumerate(CASES):
        source = "import torch\nimport torch.nn.functional as F\n" + textwrap.dedent(MISTAKES[mistake])
        if decorated:
            source = source.replace("def f(", "@attnbench.method(exact='softmax')\ndef f(", 1)
            source = "import attnbench\n" + source
        path = folder / f"mistake_{i}.py"
        path.write_text(source)
        requests.append(request(f"{path}:f" + ("" if decorated else ":like=softmax"), causal=True))
    return dict(zip(CASES, answers(build, "measure", requests), strict=True))


@pytest.mark.parametrize(("mistake", "decorated"), CASES)
def test_mistakes_are_recorded_as_invalid(mistakes, mistake, decorated):
    record = mistakes[mistake, decorated]
    assert (record["outcome"], record["failure_kind"]) == ("failed", "invalid"), record["reason"]
    assert REASONS[mistake] in record["reason"]
    assert record["time_median_ms"] is None


# ---------------------------------------------------------------- failures


# By name: the file of a function f that fails, the kind of failure, and a part of the reason.
FAILURES = {
    "random without a reference": (
        "import torch\n\ndef f(q, k, v):\n    return v * torch.rand(1)\n",
        "invalid", "two calls with the same inputs differ",
    ),
    "exception": (
        "def helper(x):\n    raise ValueError('odd length')\n\ndef f(q, k, v):\n    return helper(v)\n",
        "error", "ValueError: odd length",
    ),
    "shape": (
        "def f(q, k, v):\n    return v[:, :, :5] * 1\n",
        "error", "returned float32 [1, 2, 5, 16] on cpu, expected float32 [1, 2, 64, 16]",
    ),
    "dtype": (
        "def f(q, k, v):\n    return v.double()\n",
        "error", "returned float64 [1, 2, 64, 16] on cpu, expected float32",
    ),
    "tuple": ("def f(q, k, v):\n    return v, None\n", "error", "returned tuple, expected a tensor"),
    "None": ("def f(q, k, v):\n    pass\n", "error", "returned NoneType, expected a tensor"),
    "wrong backward": (
        "import attnbench\n\n"
        "def triple(grad, q, k, v, output, *, causal):\n    return q * 0, k * 0, grad * 3\n\n"
        "@attnbench.method(backward=triple, reference=lambda q, k, v, *, rows: (v * 2)[:, :, rows])\n"
        "def f(q, k, v, *, causal):\n    return v * 2\n",
        "invalid", "gradient of v disagrees",
    ),
    "wrong reference": (
        "import attnbench\n\n@attnbench.method(reference=lambda q, k, v: v[:, :, :, :3])\n"
        "def f(q, k, v):\n    return v * 2\n",
        "error", "reference returned float64 [1, 2, 64, 3], expected float64 [1, 2, 64, 16]",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def failures(build, tmp_path_factory):
    """The records of all functions that fail, by the names of FAILURES."""
    folder = tmp_path_factory.mktemp("failures")
    requests = []
    for i, (name, (source, _, _)) in enumerate(FAILURES.items()):
        path = folder / f"failure_{i}.py"
        path.write_text(source)
        protocol = "forward_backward" if "backward" in name else "forward"
        requests.append(request(f"{path}:f", protocol=protocol))
    return dict(zip(FAILURES, answers(build, "measure", requests), strict=True))


@pytest.mark.parametrize("name", FAILURES)
def test_a_function_that_fails_is_a_failure_with_its_reason(failures, name):
    _, kind, reason = FAILURES[name]
    record = failures[name]
    assert (record["outcome"], record["failure_kind"]) == ("failed", kind), record["reason"]
    assert reason in record["reason"]


def test_the_traceback_of_an_exception_names_the_lines_of_the_file(failures):
    reason = failures["exception"]["reason"]
    assert re.search(r'File ".*failure_1.py", line 2, in helper', reason)
    assert "_bridge.py" not in reason


def test_a_crash_is_the_failure_of_its_case_alone(write, measure):
    path = write("import os\n\ndef f(q, k, v):\n    os.kill(os.getpid(), 11)\n")
    record = measure(f"{path}:f", code=1)
    assert record["failure_kind"] == "crashed"


def test_a_hang_ends_at_the_deadline(write, measure):
    path = write("import time\n\ndef f(q, k, v):\n    time.sleep(10000)\n")
    record = measure(f"{path}:f", code=1, deadline_s=15)
    assert record["failure_kind"] == "timeout"


def test_memory_beyond_the_limit_is_out_of_memory(write, measure):
    path = write("import torch\n\ndef f(q, k, v):\n    torch.empty(2**32)\n    return v * 1\n")
    record = measure(f"{path}:f", code=1, memory_limit_bytes="1 GiB")
    assert record["failure_kind"] == "oom", record["reason"]


# By name: a file, the name of its function, and a part of the message with which it is refused.
DECLARED = "import attnbench\n\n@attnbench.method({})\ndef f(q, k, v):\n    return v * 1\n"
REFUSED = {
    "no such function": ("def g(q, k, v):\n    return v\n", "f", "has no function 'f'; its functions: g"),
    "no function": ("f = 3\n", "f", "'f' is int, expected a function"),
    "one parameter": ("def f(x):\n    return x\n", "f", "its parameters are (x), expected (q, k, v, *, causal"),
    "no default": ("def f(q, k, v, w):\n    return v\n", "f", "the parameter 'w' has no default value"),
    "syntax": ("def f(q, k, v)\n    return v\n", "f", "SyntaxError"),
    "import": ("import no_such_package\n", "f", "No module named 'no_such_package'"),
    "error on import": ("1 / 0\n", "f", "ZeroDivisionError"),
    "exit on import": ("import sys\nsys.exit(3)\n", "f", "SystemExit"),
    "two references": (DECLARED.format("exact='softmax', reference=print"), "f", "exact and reference are both given"),
    "multiple": (DECLARED.format("multiple_of=0"), "f", "multiple_of = 0, expected a whole number from 1"),
    "order": (DECLARED.format("time_order='O(N^2)'"), "f", "time_order = 'O(N^2)', expected one of O(1)"),
    "dtypes": (DECLARED.format("dtypes='float32'"), "f", "expected a list of float32"),
    "option": (DECLARED.format("options={'w': {}}"), "f", "the declared option 'w' is no keyword parameter"),
    "min": (DECLARED.format("options={'w': {'min': '1'}}"), "f", "min of option w is '1', expected a whole number"),
    "choices": (DECLARED.format("options={'w': {'choices': 'ab'}}"), "f", "choices of option w are 'ab', expected a list"),
    "default": (
        "import attnbench\n\n@attnbench.method(options={'w': {'min': 4}})\ndef f(q, k, v, *, w=1):\n    return v * 1\n",
        "f", "w = 1 by default, expected a number from 4 to",
    ),
    "infinite default": ("def f(q, k, v, *, w=float('inf')):\n    return v\n", "f", "w = inf by default, expected a finite number"),
    "option rows": ("def f(q, k, v, *, rows=1):\n    return v\n", "f", "the option name 'rows' is taken"),
    "exact": (DECLARED.format("exact='sofmax'"), "f", "unknown method 'sofmax'"),
    "reference": (DECLARED.format("reference=3"), "f", "reference is 3, expected a function"),
    "unknown option": ("def f(q, k, v, *, a=1):\n    return v\n", "f:b=1", "unknown option 'b'; known: a, like"),
    "value of an option": ("def f(q, k, v, *, a=1):\n    return v\n", "f:a=x", "a = 'x', expected a whole number"),
}  # fmt: skip


# Those that name something that does not exist.
UNKNOWN = ("no such function", "exact", "unknown option")


@pytest.fixture(scope="module")
def refused(build, tmp_path_factory):
    """The records with which the worker plans the functions of REFUSED."""
    folder = tmp_path_factory.mktemp("refused")
    requests = []
    for i, (source, name, _) in enumerate(REFUSED.values()):
        path = folder / f"refused_{i}.py"
        path.write_text(source)
        requests.append(request(f"{path}:{name}"))
    return dict(zip(REFUSED, answers(build, "plan", requests), strict=True))


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_attention_function_is_refused_with_the_reason(refused, name):
    record = refused[name]
    kind = "unknown_method" if name in UNKNOWN else "usage"
    assert (record["outcome"], record["failure_kind"], record["failure_field"]) == ("failed", kind, "method")
    assert REFUSED[name][2] in record["reason"]


def test_the_driver_refuses_what_the_worker_refuses(write, attnbench):
    path = write("def g(q, k, v):\n    return v\n")
    assert "has no function 'f'; its functions: g" in refusal(attnbench, f"{path}:f")


def test_a_missing_file_and_a_missing_function_name_are_refused(attnbench, tmp_path):
    assert "nothing.py cannot be read: No such file" in refusal(attnbench, f"{tmp_path}/nothing.py:f")
    assert "names no function, expected mine.py:FUNCTION" in refusal(attnbench, "mine.py")


def test_like_must_name_a_method(write, attnbench):
    path = write(SOFTMAX)
    assert "unknown method 'sofmax'" in refusal(attnbench, f"{path}:attention", "--like=sofmax")


def test_an_interpreter_that_does_not_exist_is_refused(write, attnbench):
    path = write(SOFTMAX)
    environment = os.environ | {"ATTNBENCH_PYTHON": "/nowhere/python"}
    refused = attnbench("measure", f"{path}:attention", code=2, env=environment).stderr
    assert "/nowhere/python, which does not exist" in refused


def test_an_interpreter_without_torch_is_refused(write, attnbench, tmp_path):
    python = tmp_path / "bare-python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    environment = os.environ | {"ATTNBENCH_PYTHON": str(python), "PYTHONPATH": ""}
    refused = attnbench("measure", f"{write(SOFTMAX)}:attention", code=2, env=environment).stderr
    assert re.search(r"Python methods need torch for Python 3\.\d+, which .*bare-python does not have; pip install torch==2", refused)


def test_another_torch_is_refused(write, attnbench, tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").touch()
    (tmp_path / "torch-2.10.0.dist-info").mkdir()
    (tmp_path / "torch-2.10.0.dist-info/METADATA").write_text("Name: torch\nVersion: 2.10.0\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    refused = attnbench("measure", f"{write(SOFTMAX)}:attention", code=2, env=environment).stderr
    assert re.search(rf"the torch 2\.10\.0 of \S+ in {tmp_path}/torch/lib is not the LibTorch that attnbench uses, which is 2\.", refused)
    assert "set ATTNBENCH_PYTHON to the interpreter that attnbench was installed into" in refused


# By name: the files of the folder of a worker that has no module for Python methods, and the end of the message.
WITHOUT_MODULE = {
    "not built": ({"python-methods": ""}, ", because it has not been built; `make python` builds it"),
    "no headers": (
        {"python-methods": "the headers of Python (Debian: python3-dev) were missing"},
        ", because the headers of Python (Debian: python3-dev) were missing",
    ),
    "installed": ({}, "; install attnbench again from a build that has it"),
}


@pytest.mark.parametrize("name", WITHOUT_MODULE)
def test_a_worker_without_the_module_for_python_methods_says_why(write, build, attnbench, tmp_path, name):
    files, end = WITHOUT_MODULE[name]
    (tmp_path / "folder").mkdir()
    shutil.copy(build / "attnbench-worker", tmp_path / "folder")
    for file, text in files.items():
        (tmp_path / "folder" / file).write_text(text)
    other = attnbench.with_worker(tmp_path / "folder/attnbench-worker")
    refused = refusal(other, f"{write(SOFTMAX)}:attention")
    assert f"methods in Python need the file {tmp_path}/folder/libattnbench-python.so, which does not exist{end}" in refused


@pytest.fixture
def stand_in(build):
    """The path of a stand-in for a CUDA library that the system does not have."""
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    for path in sorted((build / "cuda-stand-ins").glob("*.so.*")):
        if f"{path.name} " not in known:
            return path
    pytest.skip("the system has every CUDA library that torch needs")


def test_cuda_libraries_that_are_missing_have_stand_ins(write, attnbench, after_quickstart, stand_in):
    """A Python with only what `make quickstart` installs can run methods, also compiled ones."""
    path = write(f"""
        import os
        import torch

        maps = open("/proc/self/maps").read()
        assert "cuda-stand-ins/{stand_in.name}" in maps and "cu13/lib/{stand_in.name}" not in maps
        assert not torch.cuda.is_available()

        def attention(q, k, v):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)
    """)
    environment = os.environ | after_quickstart
    record = strict_json(
        attnbench("measure", f"{path}:attention", "--like=softmax", *small(), "--format=json", env=environment).stdout
    )
    assert record["outcome"] == "measured", record["reason"]
    assert record["max_rel_error"] < 1e-5


def test_a_stand_in_that_is_called_ends_the_process_with_the_command_that_installs_the_library(
    write, attnbench, after_quickstart, stand_in
):
    symbols = subprocess.run(["nm", "-D", "--defined-only", stand_in], capture_output=True, text=True, check=True).stdout
    function = re.findall(r" T (\w+)", symbols)[0]
    path = write(f"""
        import ctypes

        def attention(q, k, v):
            ctypes.CDLL("{stand_in.name}").{function}()
    """)
    record = strict_json(
        attnbench("measure", f"{path}:attention", *small(), "--format=json", env=os.environ | after_quickstart, code=1).stdout
    )
    assert record["failure_kind"] == "crashed"
    assert f"{function} was called, a function of a CUDA library that is not installed; `make setup` installs" in record["reason"]


def test_a_damaged_library_of_torch_is_reported(write, attnbench, after_quickstart, tmp_path):
    (tmp_path / "libcufile.so.0").touch()
    environment = os.environ | after_quickstart
    environment["LD_LIBRARY_PATH"] = f"{tmp_path}:{after_quickstart['LD_LIBRARY_PATH']}"
    refused = attnbench("measure", f"{write(SOFTMAX)}:attention", *small(), code=2, env=environment).stderr
    assert "torch needs a library that cannot be loaded, although it is not called on a CPU: " in refused
    assert "libcufile.so.0: file too short; `make setup` installs torch with all of its libraries" in refused


@pytest.mark.parametrize("name", REFUSED)
def test_the_source_alone_leads_to_the_message_of_the_worker_or_to_none(refused, tmp_path, name):
    source, function, _ = REFUSED[name]
    reason = refused[name]["reason"]
    (file,) = re.findall(r"\S*refused_\d+\.py", reason)[:1] or [str(tmp_path / "mine.py")]
    Path(file).write_text(source)
    said = source_check.mistake_in(file, function.split(":")[0])
    if name in ("import", "error on import", "exit on import"):
        assert said == f"{file} has no function 'f'; its functions: none", "this is the second mistake of the file"
    elif name in DECIDED:
        assert said == reason
    else:
        assert said is None


# Those of REFUSED of which the source alone shows the mistake.
DECIDED = {"no such function", "no function", "one parameter", "no default", "syntax", "option rows"}

# Sources that are right, or in which only the import shows what the name f stands for.
UNDECIDED = {
    "right": "def f(q, k, v):\n    return v\n",
    "default of an expression": "W = 3\n\ndef f(q, k, v, *, w=2 * W):\n    return v\n",
    "another decorator": "import functools\n\n@functools.cache\ndef f(q):\n    return q\n",
    "bound twice": "def f(q):\n    return q\n\nif True:\n    f = print\n",
    "imported": "from math import sqrt as f\n",
    "star": "from math import *\n",
    "assigned by a function": "def make():\n    global f\n    f = print\n\nmake()\n",
    "dynamic": "globals()['f'] = print\n",
    "module attribute": "def __getattr__(name):\n    return print\n",
    "tuple": "f, g = print, print\n",
    "call": "def make():\n    return print\n\nf = make()\n",
    "unknown annotation": "import numpy as np\n\ndef f(q: np.ndarray):\n    return q\n",
}


@pytest.mark.parametrize("name", UNDECIDED)
def test_a_source_that_does_not_show_a_mistake_has_no_message(write, name):
    assert source_check.mistake_in(str(write(UNDECIDED[name])), "f") is None


def test_a_signature_is_shown_as_python_shows_it(write):
    path = write("""
        from torch import Tensor

        def f(q: Tensor, k: "text", /, *more: int, causal: bool = True, **rest) -> Tensor:
            return q

        if __name__ == "__main__":
            q = 3
    """)
    assert source_check.mistake_in(str(path), "f") == (
        f"{path}:f: its parameters are (q: torch.Tensor, k: 'text', /, *more: int, causal: bool = True, **rest) -> torch.Tensor, "
        "expected (q, k, v, *, causal, key_lengths=None, ...); a function that calls it with its own arguments can stand for it, "
        "such as\n    def attention(q, k, v, *, causal):\n        output = f(...)\n        return output"
    )


def test_methods_of_this_program_load_no_python(attnbench):
    result = attnbench("measure", "linear", *small(), "--format=json")
    record = strict_json(result.stdout)
    assert (record["method_digest"], record["python"], record["call_overhead_us"]) == (None,) * 3
