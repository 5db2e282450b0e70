"""Tests of the structure of the project: which folders may include from which, which libraries the
driver links, and what files and headers contain."""

import ast
import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

TOP_FOLDERS = ("attn", "baselines", "experiments", "harness", "tests")
SUFFIXES = (".h", ".cpp", ".cu", ".cuh")

# By module, which is a folder of the sources: the modules that it may include from besides itself.
DRIVER = {
    "harness/machine": set(),
    "harness/statistics": set(),
    "harness/schema": {"harness/machine"},
    "harness/text": {"harness/schema", "harness/statistics"},
    "harness/files": {"harness/schema", "harness/text"},
    "harness/process": {"harness/schema", "harness/text", "harness/files"},
    "harness/records": {"harness/schema", "harness/text", "harness/files", "harness/process"},
    "harness/analysis": {"harness/schema", "harness/statistics", "harness/text", "harness/process"},
    "harness/exports": {"harness/schema", "harness/statistics", "harness/text", "harness/files", "harness/records"},
    "harness/foreign": {"harness/schema", "harness/statistics", "harness/text", "harness/files"},
    "harness/sweep": {
        "harness/machine", "harness/schema", "harness/statistics", "harness/text", "harness/files", "harness/process",
        "harness/records",
    },
    "harness/verification": {"harness/schema", "harness/process", "harness/sweep"},
    "harness/experiments": {
        "harness/schema", "harness/statistics", "harness/text", "harness/files", "harness/process", "harness/records",
        "harness/sweep",
    },
    "harness/gate": {
        "harness/schema", "harness/statistics", "harness/text", "harness/files", "harness/process", "harness/records",
        "harness/sweep", "harness/foreign", "harness/machine",
    },
    "harness/history": {
        "harness/schema", "harness/statistics", "harness/text", "harness/files", "harness/process", "harness/exports", "harness/gate",
    },
    "harness/cli": {
        "harness/machine", "harness/schema", "harness/statistics", "harness/text", "harness/files", "harness/process",
        "harness/records", "harness/analysis", "harness/exports", "harness/foreign", "harness/sweep", "harness/verification",
        "harness/experiments", "harness/gate", "harness/history",
    },
}  # fmt: skip
# "attn" stands for the interface: the files in attn that are in none of the folders below. Kernels
# of every method share attn/cpu and attn/cuda.
ATTN = {
    "attn": set(),
    "attn/cpu": {"attn"},
    "attn/cuda": {"attn"},
    "attn/convolution": {"attn", "attn/cpu"},
    "attn/linear": {"attn", "attn/cpu", "attn/cuda"},
    "attn/lsh": {"attn", "attn/cpu", "attn/cuda"},
    "attn/recurrent": {"attn", "attn/cpu", "attn/cuda"},
    "attn/sparse": {"attn", "attn/cpu"},
}
# Headers of attn without LibTorch, about the texts of methods, may be included by the driver.
FREE_HEADERS = {"attn/method_name.h", "attn/former_options.h"}
ALLOWED = {module: others | {module} for module, others in (DRIVER | ATTN).items()} | {
    # Some methods derive from LinearMethod, and some decode with the cache of attn/sparse.
    "baselines": {"attn", "attn/linear", "attn/sparse", "baselines"},
    # attnbench_micro times single kernels of linear and recurrent attention.
    "harness/worker": {
        "harness/worker", "harness/machine", "harness/schema", "harness/statistics", "attn", "attn/cpu", "attn/linear", "attn/recurrent",
    },
    # The timing of decoders compares them with the ceilings that the worker measures.
    "experiments": {
        "experiments", "harness/schema", "harness/statistics", "harness/worker", "attn", "attn/cpu",
    },
    "tests": {"baselines", "experiments", "harness/worker", "tests"} | set(DRIVER) | set(ATTN),
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.MULTILINE)


def module_of(path):
    """attn/lsh/cpu/x.h is in the module attn/lsh, attn/mask.h in attn, harness/text/x.h in
    harness/text."""
    parts = Path(path).parts
    second = "/".join(parts[:2])
    return second if parts[0] == "harness" or second in ATTN else parts[0]


def sources():
    found = [
        path.relative_to(ROOT)
        for folder in TOP_FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in SUFFIXES
    ]
    assert len(found) > 40, "the sources were not found"
    return found


def wrong_includes(path, text):
    """Messages about the wrong includes of the source `path`, which contains `text`."""
    wrong = []
    for bracket, target in INCLUDE.findall(text):
        first = target.split("/")[0]
        if first not in TOP_FOLDERS:
            if ".." in Path(target).parts:
                wrong.append(f"{path} includes {target} by a relative path")
            continue
        if bracket == "<":
            wrong.append(f"{path} includes <{target}>, a header of the project, in angle brackets")
        if module_of(target) not in ALLOWED[module_of(path)] and target not in FREE_HEADERS:
            modules = f"{module_of(path)} may not include from {module_of(target)}"
            wrong.append(f"{path} includes {target}: {modules}")
        elif not (ROOT / target).is_file():
            wrong.append(f"{path} includes {target}, which does not exist")
    return wrong


def test_modules_include_only_from_modules_that_they_may():
    wrong = [w for path in sources() for w in wrong_includes(path, (ROOT / path).read_text())]
    assert not wrong, "\n".join(wrong)


def includes_of_kernels(path, text):
    """The includes of kernels in a file of an operator, such as attn/lsh/method.cpp. Kernels include
    the interface of their operator and register themselves with it, so it includes none of them."""
    if len(path.parts) != 3 or path.parts[0] != "attn" or path.parts[1] in ("cpu", "cuda"):
        return []
    kernels = tuple(f"attn/{path.parts[1]}/{folder}/" for folder in ("cpu", "cuda"))
    return [target for _, target in INCLUDE.findall(text) if target.startswith((*kernels, "attn/cpu/", "attn/cuda/"))]


def test_operators_do_not_include_their_kernels():
    found = {path: includes_of_kernels(path, (ROOT / path).read_text()) for path in sources()}
    assert not {path: targets for path, targets in found.items() if targets}
    line = '#include "attn/lsh/cpu/kernels.h"'
    assert includes_of_kernels(Path("attn/lsh/method.cpp"), line) == ["attn/lsh/cpu/kernels.h"]
    assert includes_of_kernels(Path("attn/lsh/cpu/heads.cpp"), line) == []


@pytest.mark.parametrize(
    ("path", "line", "allowed"),
    [
        ("attn/mask.cpp", '#include "attn/method.h"', True),
        ("attn/mask.cpp", '#include "attn/cpu/rows.h"', False),
        ("attn/mask.cpp", '#include "attn/linear/feature_map.h"', False),
        ("attn/mask.cpp", '#include "baselines/softmax.h"', False),
        ("attn/mask.cpp", "#include <harness/schema/case.h>", False),
        ("attn/mask.cpp", '#include "../harness/schema/case.h"', False),
        ("attn/mask.cpp", "#include <ATen/ATen.h>", True),
        ("attn/cpu/x.h", '#include "attn/element_type.h"', True),
        ("attn/cpu/x.h", '#include "attn/linear/cpu/kernels.h"', False),
        ("attn/cpu/x.h", '#include "attn/cuda/device.h"', False),
        ("attn/cuda/x.cu", '  #  include "harness/schema/case.h"', False),
        ("attn/cuda/x.cu", '#include "attn/lsh/cuda/params.h"', False),
        ("attn/linear/cpu/x.h", '#include "attn/cpu/rows.h"', True),
        ("attn/linear/cuda/x.cu", '#include "attn/cuda/device.h"', True),
        ("attn/linear/x.cpp", '#include "attn/lsh/definition.h"', False),
        ("attn/lsh/cpu/x.h", '#include "attn/linear/cpu/kernels.h"', False),
        ("baselines/sdpa.cpp", '#include "attn/linear/method.h"', True),
        ("baselines/sdpa.cpp", '#include "attn/lsh/lsh_attention.h"', False),
        ("baselines/sdpa.cpp", '#include "attn/registry.h"', True),
        ("baselines/sdpa.cpp", '#include "harness/worker/measure.h"', False),
        ("harness/schema/case.cpp", '#include "harness/machine/machine.h"', True),
        ("harness/schema/case.cpp", '#include "harness/text/csv.h"', False),
        ("harness/text/csv.cpp", '#include "harness/files/csv_file.h"', False),
        ("harness/worker/main.cpp", '#include "harness/schema/record.h"', True),
        ("harness/worker/main.cpp", '#include "harness/text/csv.h"', False),
        ("harness/cli/main.cpp", '#include "attn/problem.h"', False),
        ("harness/cli/main.cpp", '#include "harness/worker/measure.h"', False),
        ("tests/harness/schema/case_test.cpp", '#include "harness/text/csv.h"', True),
    ],
)
def test_the_check_of_includes_finds_wrong_ones(path, line, allowed):
    assert (wrong_includes(Path(path), line) == []) == allowed


def test_headers_of_the_project_are_included_by_their_full_path():
    generated = {"attn_interface.h"}
    wrong = [
        f"{path} includes {target}"
        for path in sources()
        for bracket, target in INCLUDE.findall((ROOT / path).read_text())
        if bracket == '"' and target.split("/")[0] not in TOP_FOLDERS and target not in generated
    ]
    assert not wrong, "\n".join(wrong)


# ---------------------------------------------------------------- the plots import one way

# A module imports from its own folder and from those before it. "" are the modules that run what a name stands for.
PLOTS = ROOT / "plots/attnplots"
PLOT_FOLDERS = ("records", "figures", "marks", "published", "report", "")

# By package: the only folder that draws with it what figures describe.
DRAWING = {"matplotlib": "marks", "altair": "report", "vl_convert": "report"}


def wrong_imports(path, text):
    """Messages about the wrong imports of `path`, a module of the plots that contains `text`."""
    own = path.parts[0] if len(path.parts) > 1 else ""
    later = PLOT_FOLDERS[PLOT_FOLDERS.index(own) + 1 :]
    wrong = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            targets = [f"{node.module or ''}.{alias.name}" for alias in node.names]
            if node.level:
                wrong.append(f"{path} imports by a relative path")
        else:
            continue
        for target in targets:
            first, *others = target.split(".")
            if own != DRAWING.get(first, own):
                wrong.append(f"{path} imports {target}; only {DRAWING[first]} may draw with it")
            folder = others[0] if others and others[0] in PLOT_FOLDERS else ""
            if first == "attnplots" and folder in later:
                wrong.append(f"{path} imports {target}: {own} may not import from {folder or 'the commands'}")
    return wrong


def plot_modules():
    return sorted(path.relative_to(PLOTS) for path in PLOTS.rglob("*.py"))


def test_modules_of_the_plots_import_in_the_order_of_their_folders():
    wrong = [w for path in plot_modules() for w in wrong_imports(path, (PLOTS / path).read_text())]
    assert len(plot_modules()) > 40 and not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("path", "line", "allowed"),
    [
        ("records/rows.py", "from attnplots.records import schema", True),
        ("records/rows.py", "from attnplots.figures.ticks import sizes", False),
        ("records/rows.py", "from attnplots import figures", False),
        ("records/rows.py", "def f():\n    import attnplots.report.page", False),
        ("figures/chart.py", "from attnplots.marks import grid", False),
        ("figures/chart.py", "from matplotlib.ticker import MaxNLocator", False),
        ("figures/chart.py", "import matplotlib as mpl", False),
        ("figures/chart.py", "from . import style", False),
        ("figures/interactive.py", "import altair", False),
        ("report/vega.py", "import altair", True),
        ("report/page.py", "from matplotlib.figure import Figure", False),
        ("marks/grid.py", "from matplotlib.figure import Figure", True),
        ("marks/grid.py", "from attnplots.published.paper import NAMES", False),
        ("published/paper.py", "from attnplots.marks.files import save", True),
        ("published/paper.py", "from attnplots import entry", False),
        ("report/page.py", "from attnplots.published import claims", True),
        ("plot.py", "from attnplots import entry", True),
        ("plot.py", "from attnplots.report import page", True),
    ],
)
def test_the_check_of_imports_finds_wrong_ones(path, line, allowed):
    assert (wrong_imports(Path(path), line) == []) == allowed


def test_every_module_of_the_plots_says_what_it_is_for():
    for path in plot_modules():
        assert ast.get_docstring(ast.parse((PLOTS / path).read_text())), path


# ---------------------------------------------------------------- folders can be taken in

# The most units in a folder of sources. x.h and x.cpp are one unit, and so is a module of Python.
MOST_UNITS = 15
SOURCE_FOLDERS = (*TOP_FOLDERS, "examples", "plots", "python", "rivals", "tools")
# By folder: the number of units that it may not exceed, and why it has more than others.
LARGER_FOLDERS = {
    "attn": (19, "These are the public headers, whose paths plug-ins include."),
    "attn/cpu": (18, "Each instruction set has a file, and the kernels of all methods share the rest."),
}  # fmt: skip


def units(paths):
    """The names of the units in each folder."""
    found = {}
    for path in paths:
        if path.suffix in (*SUFFIXES, ".py") and path.name != "__init__.py":
            found.setdefault(path.parent.as_posix(), set()).add(path.stem)
    return found


def test_no_folder_has_more_units_than_can_be_taken_in():
    found = units(p.relative_to(ROOT) for folder in SOURCE_FOLDERS for p in (ROOT / folder).rglob("*"))
    assert len(found) > 40
    for folder, names in found.items():
        most, _ = LARGER_FOLDERS.get(folder, (MOST_UNITS, ""))
        assert len(names) <= most, f"{folder} has {len(names)} units, expected at most {most}; divide it by what belongs together"
    for folder in LARGER_FOLDERS:
        assert len(found[folder]) > MOST_UNITS, f"{folder} is no larger than other folders, and needs no exception"


def test_units_are_counted_by_their_names():
    paths = [Path(name) for name in ("a/x.h", "a/x.cpp", "a/y.cu", "a/__init__.py", "a/z.py", "a/z.toml", "a/b/x.h")]
    assert units(paths) == {"a": {"x", "y", "z"}, "a/b": {"x"}}


# ---------------------------------------------------------------- the driver links no LibTorch


def loaded_libraries(program):
    """Names of the shared libraries that the loader loads for a program, directly or for others."""
    listing = subprocess.check_output(
        [program], env=os.environ | {"LD_TRACE_LOADED_OBJECTS": "1"}, encoding="utf-8"
    )
    return {line.split()[0].rpartition("/")[2] for line in listing.splitlines()}


def of_torch(names):
    """Those of the names that belong to LibTorch, CUDA or the kernels."""
    return {name for name in names if re.match(r"lib(torch|c10|attn|nv|cu)", name)}


def test_the_driver_loads_no_libtorch(build):
    assert not of_torch(loaded_libraries(build / "attnbench"))
    # The same check finds LibTorch in the worker.
    worker = of_torch(loaded_libraries(build / "attnbench-worker"))
    assert any(name.startswith("libtorch") for name in worker)
    assert any(name.startswith("libc10") for name in worker)


def test_the_file_of_the_driver_names_no_libtorch(build):
    def needed(program):
        try:
            text = subprocess.check_output(["readelf", "-d", build / program], encoding="utf-8")
        except FileNotFoundError:
            pytest.skip("readelf is not installed")
        return set(re.findall(r"\(NEEDED\).*\[(.+)\]", text))

    assert not of_torch(needed("attnbench"))
    assert of_torch(needed("attnbench-worker"))


# ---------------------------------------------------------------- files


def tracked_files():
    try:
        names = subprocess.check_output(
            ["git", "ls-files", "-z"], cwd=ROOT, encoding="utf-8", stderr=subprocess.DEVNULL
        )
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]


# Beginnings of paths of one machine, put together here so that this file contains none.
MACHINE_PATH = re.compile(r"(?<![\w./~}-])/(?:" + "|".join(["work", "root", "home"]) + r")(?:/|\b)")


def test_no_file_contains_a_path_of_one_machine():
    wrong = []
    for path in tracked_files():
        data = path.read_bytes()
        if b"\0" in data[:8000]:
            continue
        for number, line in enumerate(data.decode("utf-8", errors="replace").splitlines(), 1):
            if MACHINE_PATH.search(line):
                wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("cd /" + "work/main", True),
        ('"/' + 'root/.venv"', True),
        ("=/" + "home/someone/x", True),
        ("see https://example.org/" + "work/x", False),
        ("results/" + "work/x", False),
        ("work/" + "root", False),
        ("a worker/" + "rooted thing", False),
    ],
)
def test_the_check_of_paths_finds_them(line, found):
    assert bool(MACHINE_PATH.search(line)) == found


def headers():
    return [p for p in sources() if p.suffix in (".h", ".cuh") and p.parts[0] != "tests"]


def beginning(path):
    return (ROOT / path).read_text().split("\n", 1)[0]


def test_sources_begin_with_a_comment_about_them():
    implementations = [p for p in sources() if p.suffix in (".cpp", ".cu")]
    assert len(headers()) > 20 and len(implementations) > 400
    for path in headers() + implementations:
        first = beginning(path)
        assert re.match(r"// \S", first), f"{path} begins with: {first}"
        assert len(first.split()) >= 4, f"{path} begins with fewer than 3 words: {first}"
        if path.suffix != ".h" and (ROOT / path.with_suffix(".h")).is_file():
            assert first != beginning(path.with_suffix(".h")), f"{path} begins as its header does"


def test_every_header_has_pragma_once():
    for path in headers():
        assert "#pragma once" in (ROOT / path).read_text().splitlines(), path


ASSIGNMENT = r"(?:\*?\w[\w:.]*(?:->[\w.]+)* *(?:[-+*/%&|^]|<<|>>)?=(?!=)|(?:\+\+|--)\w)"
JOINED = re.compile(rf"^\s*(?:(?:else )?(?:if|for|while) *)?{ASSIGNMENT}[^;]*, *{ASSIGNMENT}")


def joins_statements(line):
    """Whether a line of C++ joins assignments by commas, as in "a = 1, b = 2;"."""
    line = re.sub(r"//.*", "", re.sub(r'"(?:\\.|[^"\\])*"', '""', line))
    if not line.rstrip().endswith(";"):
        return False
    while line != (shorter := re.sub(r"\([^()\[\]{}]*\)|\[[^()\[\]{}]*\]|\{[^()\[\]{}]*\}", "", line)):
        line = shorter
    return bool(JOINED.match(line))


def test_no_statements_are_joined_by_commas():
    for path in sources():
        before = ""
        for number, line in enumerate((ROOT / path).read_text().splitlines(), start=1):
            continues = before.endswith((",", "("))
            assert continues or not joins_statements(line), f"{path}:{number} joins statements by commas: {line.strip()}"
            before = line.rstrip()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("  a = 1, b = 2;", True),
        ("  if (f(a, b)) a->size[0] = g(1, 2), b.c += 2;", True),
        ("  const int a = 1, b = 2;", False),
        ("  call({.a = 1, .b = 2});", False),
        ("  auto f = [a = 1, b = 2] { return a + b; };", False),
        ("  for (int i = 0, j = 1; i < j; ++i, --j) f(i, j);", False),
    ],
)
def test_the_check_of_joined_statements_finds_them(line, found):
    assert joins_statements(line) == found
