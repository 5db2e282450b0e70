"""Tests of what a function in Python may be: its options, what it returns, what kind of object it is, and what it imports."""

import json
import os
import re
import subprocess
import sys
import textwrap

import pytest
from conftest import ROOT, small, strict_json, write_sweep
from python_functions import answers, measure, pytestmark, refusal, request, write  # noqa: F401

from attnbench import _source_check as source_check


@pytest.fixture
def attnbench(forking):
    return forking


@pytest.fixture(scope="module")
def records(build, tmp_path_factory):
    """A function that measures functions of files, given by names, in one worker and returns their records by name."""
    folder = tmp_path_factory.mktemp("functions")

    def run(files, methods, command="measure", **options):
        for name, source in files.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(textwrap.dedent(source))
        requests = [request(f"{folder}/{method}", **options) for method in methods]
        return dict(zip(methods, answers(build, command, requests), strict=True))

    return run


def outcomes(found):
    return {method: (record["outcome"], record.get("reason") or "") for method, record in found.items()}


# ---------------------------------------------------------------- options that are None by default

OPEN = """
    def f(q, k, v, *, expected="None", window=None):
        assert f"{window!r}".strip("'") == expected and type(window).__name__ in ("NoneType", "int", "float", "bool", "str")
        return v * 1
"""


def test_an_option_that_is_none_by_default_takes_what_the_text_looks_like(records):
    texts = {
        "": "None", "none": "None", "64": "64", "-3": "-3", "0.5": "0.5", "1e3": "1000.0", "true": "True", "false": "False",
        "left": "left", "1_0": "1_0",
    }  # fmt: skip
    methods = [f"open.py:f:expected={value}" + (f",window={text}" if text else "") for text, value in texts.items()]
    found = records({"open.py": OPEN}, methods)
    assert outcomes(found) == {method: ("measured", "") for method in methods}


CHOSEN = """
    import attnbench

    @attnbench.method(options={"mode": {"choices": ["a", "b"]}, "size": {"min": 1}})
    def f(q, k, v, *, mode=None, size=None, shape=(1, 2)):
        assert shape == (1, 2)
        return v * 1
"""


def test_the_limits_of_an_option_that_is_none_by_default_hold_for_what_is_given(records):
    wrong = {
        "chosen.py:f:mode=c": "mode = 'c', expected one of none, a, b",
        "chosen.py:f:size=0": "size = 0, expected a number from 1 to",
        "chosen.py:f:shape=3": "shape = '3', but the parameter 'shape' has the default (1, 2) and cannot be given as text",
    }
    right = ["chosen.py:f", "chosen.py:f:mode=none", "chosen.py:f:mode=a", "chosen.py:f:size=2,mode=b"]
    found = records({"chosen.py": CHOSEN}, [*wrong, *right], "plan")
    for method, reason in wrong.items():
        assert found[method]["failure_kind"] == "usage"
        assert reason in found[method]["reason"]
    assert [found[method].get("outcome") for method in right] == [None] * len(right)


def test_a_reference_and_a_state_get_options_that_are_none(records):
    source = """
        import attnbench

        class State:
            def __init__(self, problem, *, window):
                assert window is None

            def step(self, q, k, v):
                return v * 1

        def reference(q, k, v, *, window, rows):
            assert window is None
            return v[:, :, rows] * 1

        @attnbench.method(reference=reference, decode=State)
        def f(q, k, v, *, causal, window=None):
            return v * 1
    """
    found = records({"none.py": source}, ["none.py:f"], causal=True, protocol="decode")
    assert outcomes(found) == {"none.py:f": ("measured", "")}


def test_the_source_check_knows_the_options_of_the_import(write):
    for default in ("None", "(1, 2)", "TWO", "2 * TWO"):
        for name in ("rows", "window"):
            path = write(f"TWO = (2,)\n\ndef f(q, k, v, *, {name}={default}):\n    return v\n")
            said = source_check.mistake_in(str(path), "f")
            assert (said is None) == (name == "window"), default
            assert said is None or "the option name 'rows' is taken" in said


# ---------------------------------------------------------------- lengths that depend on options

MULTIPLES = """
    import attnbench

    def cut(v, size):
        return v.unflatten(2, (-1, size)).flatten(2, 3) * 1

    @attnbench.method(multiple_of="block")
    def named(q, k, v, *, block=16):
        return cut(v, block)

    @attnbench.method(multiple_of=lambda block, **_: 2 * block)
    def computed(q, k, v, *, block=16, other="x"):
        return cut(v, 2 * block)
"""


def test_the_lengths_that_a_method_takes_can_depend_on_its_options(records):
    needed = {
        "multiples.py:named": 16, "multiples.py:named:block=24": 24,
        "multiples.py:computed": 32, "multiples.py:computed:block=24": 48,
    }  # fmt: skip
    for length in (48, 96):
        found = records({"multiples.py": MULTIPLES}, needed, query_len=length, key_len=length)
        for method, multiple in needed.items():
            if length % multiple == 0:
                assert outcomes(found)[method] == ("measured", "")
            else:
                assert (found[method]["outcome"], found[method]["failure_kind"]) == ("skipped", "unsupported")
                assert found[method]["reason"].endswith(f"{method} needs lengths that are multiples of {multiple}")


WRONG_MULTIPLES = {
    "'size'": ("", "multiple_of = 'size', expected the name of an option whose default is a whole number"),
    "'factor'": ("", "multiple_of = 'factor', expected the name of an option whose default is a whole number"),
    "'block'": ("block=0", "multiple_of is 0 by the option block, expected a whole number from 1 to 65536"),
    "lambda **_: 2.5": ("", "multiple_of is 2.5 by the function given as multiple_of, expected a whole number from 1"),
    "lambda wrong: 2": ("", "TypeError: <lambda>() "),
    "2.5": ("", "multiple_of = 2.5, expected a whole number from 1 to 65536, the name of an option or a function"),
    "True": ("", "multiple_of = True, expected a whole number"),
}


def test_wrong_multiples_are_refused(records):
    files, methods = {}, {}
    for i, (value, (options, reason)) in enumerate(WRONG_MULTIPLES.items()):
        files[f"wrong_{i}.py"] = (
            f"import attnbench\n\n@attnbench.method(multiple_of={value})\n"
            "def f(q, k, v, *, block=16, factor=2.0):\n    return v * 1\n"
        )
        methods[f"wrong_{i}.py:f" + (f":{options}" if options else "")] = reason
    found = records(files, methods, "plan")
    for method, reason in methods.items():
        assert found[method]["failure_kind"] == "usage"
        assert reason in found[method]["reason"]


def test_the_tutorials_method_skips_lengths_that_its_block_does_not_divide(attnbench, tmp_path):
    text = (ROOT / "docs/tutorial.md").read_text()
    (source,) = re.findall(r"```python\n(# pooled\.py\n.*?)```", text, re.DOTALL)
    (tmp_path / "pooled.py").write_text(source)
    command = ("measure", "pooled.py:pooled:block=32", "--heads=2", "--head-dim=16", "--threads=1", "--time-budget-s=0.02")
    record = strict_json(attnbench(*command, "--query-len=1040", "--format=json").stdout)
    assert (record["outcome"], record["failure_kind"]) == ("skipped", "unsupported")
    assert record["reason"] == "pooled.py:pooled:block=32 needs lengths that are multiples of 32"
    record = strict_json(attnbench(*command, "--query-len=1024", "--format=json").stdout)
    assert record["outcome"] == "measured"


# ---------------------------------------------------------------- what a function returns

TUPLES = """
    import attnbench

    def reference(q, k, v, *, rows):
        return (v * 2)[:, :, rows]

    declare = attnbench.method(returns_tuple=True, reference=reference)

    @declare
    def pair(q, k, v):
        return v * 2, {"state": k}

    @declare
    def listed(q, k, v, *, factor=2):
        return [v * factor]

    @declare
    def tensor(q, k, v):
        return v * 2

    @declare
    def empty(q, k, v):
        return ()

    @attnbench.method(returns_tuple=True, reference=reference, setup=lambda function, problem: lambda q, k, v: (v * 2, None))
    def prepared(q, k, v):
        raise AssertionError

    @attnbench.method(returns_tuple=True, reference=reference,
                      backward=lambda grad, q, k, v, output: (q * 0, k * 0, grad * 2))
    def own(q, k, v):
        return (v * 2).detach(), None

    def undeclared(q, k, v):
        return [v * 2]
"""


@pytest.mark.parametrize("protocol", ["forward", "forward_backward"])
def test_the_first_element_of_a_tuple_is_the_output_where_that_is_declared(records, protocol):
    right = [f"tuples.py:{name}" for name in ("pair", "listed", "prepared", "own")]
    wrong = {
        "tuples.py:tensor": "tuples.py:tensor returned Tensor, expected a tuple or a list that begins with the output",
        "tuples.py:empty": "tuples.py:empty returned tuple, expected a tuple or a list that begins with the output",
        "tuples.py:undeclared": "tuples.py:undeclared returned list, expected a tensor; if its first element is the output, declare "
        "that with @attnbench.method(returns_tuple=True)",
    }  # fmt: skip
    found = records({"tuples.py": TUPLES}, [*right, *wrong], protocol=protocol)
    assert [outcomes(found)[method] for method in right] == [("measured", "")] * len(right)
    assert all(found[method]["max_rel_error"] < 1e-6 and found[method]["call_overhead_us"] > 0 for method in right)
    for method, reason in wrong.items():
        assert (found[method]["outcome"], found[method]["failure_kind"]) == ("failed", "error")
        assert reason in found[method]["reason"]


def test_returns_tuple_is_true_or_false(records):
    source = "import attnbench\n\n@attnbench.method(returns_tuple=1)\ndef f(q, k, v):\n    return v\n"
    reason = records({"one.py": source}, ["one.py:f"], "plan")["one.py:f"]["reason"]
    assert "returns_tuple is 1, expected True or False" in reason


# ---------------------------------------------------------------- what kind of object a method is

OBJECTS = """
    import functools

    import attnbench
    import torch

    class Attention(torch.nn.Module):
        '''Scales the values by a parameter.'''

        def __init__(self):
            super().__init__()
            self.factor = torch.nn.Parameter(torch.tensor(2.0))

        def forward(self, q, k, v, *, causal, shift=0.0):
            return v * self.factor + shift

    module = Attention()
    called = Attention()
    called.register_forward_hook(lambda module, arguments, output: output * 3)

    class Declared(Attention):
        @attnbench.method(reference=lambda q, k, v, *, rows: (v * 2)[:, :, rows], exact="", label="declared")
        def forward(self, q, k, v):
            return v * self.factor

    declared = Declared()

    class Model:
        def attend(self, q, k, v, *, times=1):
            return v * times

    model = Model()
    bound = model.attend

    class Callable:
        def __call__(self, q, k, v):
            return v * 1

    instance = Callable()

    @attnbench.method(reference=lambda q, k, v, *, rows, times: (v * times)[:, :, rows])
    def scaled(q, k, v, *, times=1, flag):
        '''Scales the values.'''
        assert flag == 7
        return v * times

    scaled_alone = scaled
    part = functools.partial(scaled, times=3, flag=7)
    whole = torch.nn.Linear(3, 3)
    sequence = torch.nn.Sequential()

    def anything(*args, **kwargs):
        return args[2]
"""


def test_a_module_a_bound_method_and_a_partial_object_are_methods(records):
    right = [
        "objects.py:module", "objects.py:module:shift=1.5", "objects.py:called", "objects.py:declared", "objects.py:model.attend:times=3",
        "objects.py:bound", "objects.py:instance", "objects.py:part", "objects.py:part:times=2",
    ]  # fmt: skip
    found = records({"objects.py": OBJECTS}, right)
    assert outcomes(found) == {method: ("measured", "") for method in right}
    verified = {method for method in right if not found[method]["unverified"]}
    assert verified == {"objects.py:declared", "objects.py:part", "objects.py:part:times=2"}, "their declarations count"
    assert found["objects.py:declared"]["method_label"] == "declared"
    found = records({"objects.py": OBJECTS}, ["objects.py:module"], protocol="forward_backward", causal=True)
    assert found["objects.py:module"]["outcome"] == "measured"


def test_the_instance_of_a_module_is_called_not_its_forward(records):
    source = OBJECTS + """
    @attnbench.method(reference=lambda q, k, v, *, rows: (v * 6)[:, :, rows])
    def six(q, k, v):
        return called(q, k, v, causal=False)

    setattr(called, "__attnbench_method__", six.__attnbench_method__)
    """
    record = records({"six.py": source}, ["six.py:called"])["six.py:called"]
    assert (record["outcome"], record["unverified"]) == ("measured", None), record["reason"]


def test_other_objects_are_refused_with_what_to_write_instead(records):
    wrong = {
        "objects.py:whole": r"its parameters are \(input: torch.Tensor\) -> torch.Tensor, expected \(q, k, v, ",
        "objects.py:sequence": r"its parameters are \(input\), expected \(q, k, v, ",
        "objects.py:anything": r"its parameters are \(\*args, \*\*kwargs\), expected \(q, k, v, ",
        "objects.py:scaled_alone": r"the parameter 'flag' has no default value",
        "objects.py:Model": r"'Model' is a class, expected a function",
    }
    found = records({"objects.py": OBJECTS}, wrong, "plan")
    for method, reason in wrong.items():
        assert found[method]["failure_kind"] == "usage"
        assert re.search(reason, found[method]["reason"]), found[method]["reason"]
    assert found["objects.py:whole"]["reason"].endswith(
        "; a function that calls it with its own arguments can stand for it, such as\n"
        "    def attention(q, k, v, *, causal):\n"
        "        output = whole(...)\n"
        "        return output"
    )


# ---------------------------------------------------------------- references that are given some heads


# Prints what Bound.reference returns for some heads of random inputs, or its error, for each function that is named.
REFERENCE_PROBE = """
import json, sys
import torch
from attnbench._bridge import Method, MethodError

inputs = [torch.randn(1, 8, 16, 4, dtype=torch.float64) for _ in range(3)]
no_masks = {"causal": False, "key_lengths": None, "pattern": "all", "cu_seqlens": None}
for name in sys.argv[2:]:
    method = Method(sys.argv[1], name)
    bound = method.bind(json.dumps({"as": "", "like": ""} | {name: 2 for name in method.signature.defaults}))
    all_rows = json.loads(method.description())["reference_computes_all_rows"]
    rows, heads = torch.arange(16), torch.tensor([5, 6])
    try:
        whole = bound.reference(*inputs, no_masks, rows)
        part = bound.reference(*(x[:, 5:7] for x in inputs), no_masks, rows, heads, 8)
        answer = "equal" if torch.equal(whole[:, 5:7], part) else "different"
        bound.reference(*(x[:, 5:7] for x in inputs), no_masks | {"key_lengths": torch.tensor([9])}, rows, heads, 8)
    except MethodError as error:
        answer = str(error)
    print("=", json.dumps([answer, all_rows]), file=sys.__stdout__)
"""
REFERENCES = """
    import attnbench
    import torch

    def plain(q, k, v, *, rows):
        return (v * 2)[:, :, rows]

    def sloped(q, k, v, *, rows, heads, num_heads):
        return (v * (heads / num_heads).view(1, -1, 1, 1))[:, :, rows]

    def guesses(q, k, v, **more):
        return (v * torch.arange(v.shape[1]).view(1, -1, 1, 1))[:, :, more["rows"]]

    def mixes(q, k, v):
        return v + v.mean(1, keepdim=True)

    def long_only(q, k, v, *, causal):
        assert v.shape[2] == 16
        return v * 2

    def of_option(q, k, v, *, heads):
        assert heads == 2
        return v * 2

    def random(q, k, v):
        return v * 2

    for reference in (plain, sloped, guesses, mixes, long_only):
        def f(q, k, v, *, causal):
            return v
        globals()["with_" + reference.__name__] = attnbench.method(reference=reference)(f)

    @attnbench.method(reference=of_option)
    def with_of_option(q, k, v, *, heads=2):
        return v

    def without(q, k, v):
        return v
"""


def test_references_get_the_heads_that_they_take_and_are_checked_otherwise(write):
    add = "mine.py:{}: the reference of a head depends on the other heads or on which head it is, but it is given some of them alone; "
    expected = {
        "with_plain": ("equal", False), "with_sloped": ("equal", False), "with_long_only": ("equal", True),
        "with_of_option": ("equal", True), "with_guesses": (add, False), "with_mixes": (add, True),
    }  # fmt: skip
    path = write(REFERENCES)
    done = subprocess.run(
        [sys.executable, "-c", REFERENCE_PROBE, path, *expected], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [json.loads(line.removeprefix("= ")) for line in done.stdout.splitlines() if line.startswith("= ")]
    assert len(found) == len(expected)
    for (name, (answer, all_rows)), (said, computes_all) in zip(expected.items(), found, strict=True):
        assert computes_all == all_rows, name
        if answer != add:
            assert said == answer, name
        else:
            assert add.format(name) in said and "add the parameters heads (int64 [h], " in said, name


# ---------------------------------------------------------------- modules of equal names


def test_files_in_two_folders_each_import_the_module_of_their_own(records):
    files = {}
    for number, folder in enumerate(("one", "two"), 1):
        files[f"{folder}/helper.py"] = f"FACTOR = {number}\n"
        files[f"{folder}/late.py"] = f"import helper\nFACTOR = {number}\n"
        files[f"{folder}/mine.py"] = f"""
            import attnbench
            import helper
            import json as shared

            def reference(q, k, v, *, rows):
                import late_too
                return (v * late_too.FACTOR)[:, :, rows]

            def prepare(function, problem):
                import late
                assert late.FACTOR == {number}

            @attnbench.method(reference=reference, setup=prepare, multiple_of=lambda: __import__("helper").FACTOR)
            def f(q, k, v):
                import late
                import json
                assert (late.FACTOR, late.helper.FACTOR, helper.FACTOR) == ({number},) * 3 and late.helper is helper
                assert json is shared
                return v * helper.FACTOR
        """
        files[f"{folder}/late_too.py"] = f"FACTOR = {number}\n"
        files[f"{folder}/other.py"] = "import helper\n\ndef f(q, k, v):\n    return v * helper.FACTOR\n"
    methods = ["one/mine.py:f", "two/mine.py:f", "one/other.py:f", "two/other.py:f"]
    planned = records(files, methods, "plan")
    assert [record.get("outcome") for record in planned.values()] == [None] * 4
    found = records(files, methods)
    assert outcomes(found) == {method: ("measured", "") for method in methods}
    again = records({}, methods[::-1], "verify")
    assert all(record["outcome"] == "measured" for record in again.values())


def test_a_function_that_is_compared_with_one_of_another_folder_keeps_its_own_modules(build, tmp_path):
    function = """
        import attnbench

        def check():
            import late
            assert late.FOLDER == "{0}"

        def reference(q, k, v, *, rows):
            check()
            return (v * 2)[:, :, rows]

        @attnbench.method({1})
        def f(q, k, v):
            check()
            return v * 2
    """
    for folder, declared in (("one", "reference=reference"), ("two", "")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(textwrap.dedent(function.format(folder, declared)))
        (tmp_path / folder / "late.py").write_text(f"FOLDER = {folder!r}\n")
    one, two = (f"{tmp_path}/{folder}/mine.py:f" for folder in ("one", "two"))
    # One process, so that the first method is registered when the second one is compared with it.
    found = answers(build, "measure", [request(one), request(f"{two}:like={one}"), request(one)])
    for record in found:
        assert (record["outcome"], record["unverified"]) == ("measured", None), record["reason"]


def test_modules_of_other_places_are_shared_by_files_in_two_folders(build, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    for folder in ("packages", "one", "two"):
        (tmp_path / folder).mkdir()
    (tmp_path / "packages/shared.py").write_text("loads = []\n")
    (tmp_path / "packages/inside.py").write_text("import shared\n\ndef f(q, k, v):\n    return v * 1\n")
    source = "import shared\n\nshared.loads.append(__file__)\n\ndef f(q, k, v):\n    assert len(shared.loads) == 2\n    return v * 1\n"
    methods = [f"{tmp_path}/{name}.py:f" for name in ("one/mine", "packages/inside", "two/mine")]
    for folder in ("one", "two"):
        (tmp_path / folder / "mine.py").write_text(source)
    planned = answers(build, "plan", [request(method) for method in methods])
    assert [record.get("outcome") for record in planned] == [None] * 3
    # Measured in one process, in which both files are imported before the second function is called.
    found = answers(build, "measure", [request(methods[0]), request(methods[2])])
    assert "AssertionError" in found[0]["reason"]
    assert found[1]["outcome"] == "measured", found[1]["reason"]


def test_two_versions_of_a_method_are_in_one_sweep(attnbench, write, tmp_path):
    for number, folder in enumerate(("one", "two"), 1):
        (tmp_path / folder).mkdir()
        write(f"FACTOR = {number}\n", f"{folder}/helper.py")
        write(
            f"import helper\n\nassert helper.FACTOR == {number}\n\ndef f(q, k, v):\n    return v * helper.FACTOR\n", f"{folder}/mine.py"
        )
    sweep = write_sweep(tmp_path / "versions.toml", method=["one/mine.py:f", "two/mine.py:f"], query_len=32)
    attnbench("sweep", sweep, "--out", tmp_path / "out", "--quiet")
    found = [strict_json(line) for line in (tmp_path / "out/records.jsonl").read_text().splitlines()]
    assert [record["outcome"] for record in found] == ["measured"] * 2


# ---------------------------------------------------------------- messages


def test_a_message_with_a_lone_surrogate_arrives_with_its_traceback(records):
    source = """
        def f(q, k, v):
            raise ValueError("wrong \\udc80 byte")
    """
    record = records({"surrogate.py": source}, ["surrogate.py:f"])["surrogate.py:f"]
    assert (record["outcome"], record["failure_kind"]) == ("failed", "error")
    assert record["reason"].endswith("ValueError: wrong \\udc80 byte")
    assert 'surrogate.py", line 3, in f' in record["reason"]


def test_the_time_of_a_setup_is_in_the_answer_to_measure(write, attnbench):
    path = write("""
        import time

        import attnbench

        @attnbench.method(setup=lambda function, problem: time.sleep(0.2))
        def prepared(q, k, v):
            return v * 1

        def plain(q, k, v):
            return v * 1
    """)
    answer = attnbench("measure", f"{path}:prepared", *small()).stdout
    assert re.search(r"^ +setup +2\d\d(\.\d+)? ms before the first call$", answer, re.MULTILINE), answer
    answer = attnbench("measure", f"{path}:plain", *small()).stdout
    assert not re.search(r"^ +setup", answer, re.MULTILINE), answer
