"""Tests that the functions of attnbench.recurrent have the names, order and defaults of the arguments
of the packages in whose places they stand. Where these packages are installed, their sources are
read, but not imported, because they need Triton. PYTHONPATH may name a folder with unpacked wheels;
setup.sh has one for fla-core."""

import ast
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest
from conftest import ROOT

# By package: the files that define the functions, as patterns, and how to install it.
PACKAGES = {
    "fla": ("fla-core", ["ops/*/chunk.py", "ops/*/fused_recurrent.py"]),
    "mamba_ssm": ("mamba-ssm", ["ops/triton/ssd_combined.py", "ops/triton/selective_state_update.py"]),
    "causal_conv1d": ("causal-conv1d", ["causal_conv1d_interface.py"]),
}
# The models whose functions for CPUs ours replace, by the decorator that says which they are.
MODELS = ["qwen3_next", "mamba2", "kimi_linear"]
DECORATOR = "use_kernel_func_from_hub_with_fallback"


def functions(path):
    return [node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)]


MINE = {
    node.name: node
    for path in [ROOT / "python/attnbench/convolution.py", *(ROOT / "python/attnbench/recurrent").glob("*.py")]
    for node in functions(path)
    if not node.name.startswith("_") and path.name != "_rule.py"
}


def package_folder(name):
    # Without an origin it is any folder of this name.
    spec = PathFinder.find_spec(name, [*sys.path, str(Path(sys.prefix) / "fla")])
    return Path(spec.origin).parent if spec and spec.origin else None


def arguments(node, also_by_keyword=False):
    """The arguments that may be given by position and their defaults; "required" where there is none."""
    found, defaults = [x.arg for x in node.args.args], list(node.args.defaults)
    values = ["required"] * (len(found) - len(defaults)) + [value_of(x) for x in defaults]
    pairs = list(zip(found, values, strict=True))
    if also_by_keyword:
        pairs += [(x.arg, value_of(y)) for x, y in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]
    return pairs


def value_of(node):
    """The value of a default; infinity is written in two ways."""
    return eval(ast.unparse(node).replace("math.inf", "float('inf')"), {"__builtins__": {"float": float}})


def sources_of(package):
    """By name: the definitions of our functions in a package that is installed."""
    folder = package_folder(package)
    if folder is None:
        return {}
    files = [path for pattern in PACKAGES[package][1] for path in sorted(folder.glob(pattern))]
    return {node.name: node for path in files for node in functions(path) if node.name in MINE}


@pytest.mark.parametrize("package", PACKAGES)
def test_arguments_are_those_of_the_package(package):
    if package_folder(package) is None:
        pytest.skip(f"{PACKAGES[package][0]} is not installed")
    theirs = sources_of(package)
    assert theirs, f"{package} defines none of our functions where they were looked for"
    different = [
        f"{name}:\n  ours   {arguments(MINE[name])}\n  theirs {arguments(node)}"
        for name, node in theirs.items()
        if arguments(MINE[name]) != arguments(node)
    ]
    assert not different, "\n".join(different)


def test_every_function_is_one_of_a_package():
    installed = [package for package in PACKAGES if package_folder(package)]
    if len(installed) < len(PACKAGES):
        missing = [PACKAGES[package][0] for package in PACKAGES if package not in installed]
        pytest.skip(f"not installed: {', '.join(missing)}")
    assert set(MINE) == {name for package in PACKAGES for name in sources_of(package)}


def test_functions_take_what_models_of_transformers_give_by_keyword():
    """Names of tensors differ there, and models give these by position. Arguments that have defaults
    have the same ones here, except chunk_size, which our functions accept and ignore."""
    folder = package_folder("transformers")
    if folder is None:
        pytest.skip("transformers is not installed")
    compared = set()
    for model in MODELS:
        for node in functions(folder / "models" / model / f"modeling_{model}.py"):
            names = [
                decorator.args[0].value
                for decorator in node.decorator_list
                if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == DECORATOR
            ]
            for name in [name for name in names if name in MINE]:
                mine = dict(arguments(MINE[name], also_by_keyword=True))
                theirs = [pair for pair in arguments(node) if pair[1] != "required" and pair[0] != "chunk_size"]
                assert theirs and [(x, mine.get(x, "missing")) for x, _ in theirs] == theirs, (model, name)
                compared.add(name)
    assert {"chunk_gated_delta_rule", "causal_conv1d_fn", "causal_conv1d_update", "selective_state_update"} <= compared
