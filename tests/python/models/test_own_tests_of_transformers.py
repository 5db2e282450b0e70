"""Runs the tests that transformers has for all of its models with our operators. Of its tests, the source
distribution has those that models share; setup.sh unpacks it."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HANG_S

SOURCES = Path(sys.prefix) / "transformers-tests"

# Those that compute with a model. The others are about loading, saving and plans for several devices.
COMPUTING = (
    "equivalence", "gradient", "training", "determinism", "hidden_states", "feed_forward", "problem_types", "inputs_embeds",
    "loss", "mismatch",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.skipif(not SOURCES.is_dir(), reason=f"the source distribution of transformers is not in {SOURCES}")
@pytest.mark.skipif(not importlib.util.find_spec("parameterized"), reason="parameterized is not installed")
def test_tests_of_transformers_pass_with_our_operators(build, tmp_path):  # noqa: ARG001
    package = tmp_path / "tests"
    shutil.copytree(SOURCES, package)
    # The tests import these, which the distribution lacks.
    for folder, module, name in (("exporters", "test_export", "ExportTesterMixin"), ("generation", "test_utils", "GenerationTesterMixin")):
        (package / folder).mkdir()
        (package / folder / "__init__.py").touch()
        (package / folder / f"{module}.py").write_text(f"class {name}:\n    pass\n")
    (package / "__init__.py").touch()
    shutil.copy(Path(__file__).with_name("common_tests_of_transformers.py"), package / "test_ours.py")
    report = tmp_path / "report.jsonl"
    paths = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "--tb=short", "-k", " or ".join(COMPUTING),
         "tests/test_ours.py"],
        cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=HANG_S, check=False,
        env=os.environ | {"PYTHONPATH": paths, "ATTNBENCH_REPORT": str(report), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    served = {}
    for name, calls, passed_on in map(json.loads, report.read_text().splitlines()):
        assert not passed_on, (name, passed_on)
        served.setdefault(name, set()).update(calls)
    assert {"chunk_gated_delta_rule", "causal_conv1d_fn"} <= served["qwen3.5"] and "chunk_kda" in served["kimi-linear"]
    assert "mamba_chunk_scan_combined" in served["granite-4"] & served["nemotron-h"]
    assert "lightning attention of MiniMax" in served["minimax"]
