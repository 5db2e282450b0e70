"""Tests of methods in Python that compute something wrong, fail, or are refused before they are measured."""

import re
import textwrap
from pathlib import Path

import pytest
from python_functions import SOFTMAX, answers, attnbench, measure, pytestmark, refusal, request, write  # noqa: F401

from attnbench import _source_check as source_check


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
    "input changed at last": """
        seen = {}

        def f(q, k, v, *, causal):
            output = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            # The memory of an earlier call has other numbers. A constant added to all keys does not change the output.
            if seen.setdefault(k.data_ptr(), float(k[0, 0, 0, 0])) != float(k[0, 0, 0, 0]):
                k.add_(1)
            return output
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
    "input changed at last": "changed its input k in place",
    "random": "",
    "NaN": "NaN or infinity",
}
CASES = [(mistake, decorated) for mistake in MISTAKES for decorated in (False, True)]


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


# Those of REFUSED of which the source alone shows the mistake.
DECIDED = {"no such function", "no function", "one parameter", "no default", "syntax", "option rows"}


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
