"""Tests of attnbench.accelerate() where flash-linear-attention (fla) is installed: its functions and the
models of transformers, which then call it, run on CPUs. fla is in a folder of its own (setup.sh), so
that transformers does not find it in other tests; each test is a process that looks there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(sys.prefix) / "fla"

pytest.importorskip("transformers", reason="transformers is not installed")
pytestmark = pytest.mark.skipif(not (FOLDER / "fla").is_dir(), reason=f"fla-core is not installed in {FOLDER}")

BEGINNING = """
import torch, attnbench
torch.set_num_threads(1)
torch.manual_seed(0)
q, k, v = (torch.randn(1, 10, 2, 16) for _ in range(3))
g, beta = -torch.rand(1, 10, 2), torch.rand(1, 10, 2)

def error_of(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception as error:
        return error
    raise AssertionError("no error")
"""


def run(code, folder=FOLDER):
    paths = os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BEGINNING + code], env=os.environ | {"PYTHONPATH": paths}, capture_output=True,
        encoding="utf-8", check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended


def test_functions_and_models_run_on_cpus(build):  # noqa: ARG001
    ended = run("""
from fla.ops.gated_delta_rule import chunk_gated_delta_rule
from fla.ops.kda import chunk_kda
from fla.ops.simple_gla import fused_recurrent_simple_gla
from attnbench import recurrent
from attnbench.models.configurations import CONFIGURATIONS
import fla.backends

before = {name: dict(r._backends) for name, r in fla.backends._operation_registries.items()}
assert "active drivers" in str(error_of(chunk_gated_delta_rule, q, k, v, g, beta))
features = g[..., None].expand(1, 10, 2, 16).contiguous()
with attnbench.accelerate():
    for theirs, args in (
        (chunk_gated_delta_rule, (q, k, v, g, beta)), (chunk_kda, (q, k, v, features, beta)),
        (fused_recurrent_simple_gla, (q, k, v, g)),
    ):
        ours = getattr(recurrent, theirs.__name__)
        torch.testing.assert_close(theirs(*args)[0], ours(*args)[0])
    # What has no place for backends, or ours cannot take, ends as without ours.
    assert "active drivers" in str(error_of(fused_recurrent_simple_gla, q, k, v, g, reverse=True))
    report = attnbench.accelerate.report()
    assert report.served == {f"fla {n}": 1 for n in ("chunk_gated_delta_rule", "chunk_kda", "fused_recurrent_simple_gla")}, report
    assert report.passed_on == {"fla fused_recurrent_simple_gla": {"the argument reverse": 1}}, report

    # transformers has chosen fla for its models.
    for name in ("qwen3.5", "kimi-linear"):
        model = CONFIGURATIONS[name].tiny().build()
        inputs = torch.randint(2, 128, (1, 30))
        loss = model(inputs, labels=inputs).loss
        loss.backward()
        packed = model(inputs, position_ids=torch.arange(15).repeat(2)[None], cu_seq_lens_q=torch.tensor([0, 15, 30]), use_cache=False)
        torch.testing.assert_close(packed.logits[:, 15:], model(inputs[:, 15:]).logits, rtol=1e-4, atol=1e-5)
        generated = model.eval().generate(inputs[:, :5], max_new_tokens=4, min_new_tokens=4)
        assert generated.shape == (1, 9)
    assert {"chunk_gated_delta_rule", "fused_recurrent_gated_delta_rule", "chunk_kda"} <= set(attnbench.accelerate.report().served)

    from transformers.models.qwen3_5.modeling_qwen3_5 import torch_chunk_gated_delta_rule
    error = error_of(torch_chunk_gated_delta_rule, q, k, v, g=g, beta=beta, cp_context=4)
    assert "attnbench passed this call on" in error.__notes__[0] and "the argument cp_context" in error.__notes__[0]
    assert "of the package fla" in error.__notes__[0]
assert before == {name: dict(r._backends) for name, r in fla.backends._operation_registries.items() if name in before}
assert "active drivers" in str(error_of(chunk_gated_delta_rule, q, k, v, g, beta))
assert "active drivers" in str(error_of(torch_chunk_gated_delta_rule, q, k, v, g=g, beta=beta))
""")
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("attnbench: ")]
    assert "chunk_gated_delta_rule, chunk_kda, fused_recurrent_simple_gla of fla-core 0.6.0" in line


def test_an_fla_that_cannot_be_imported_is_named(build, tmp_path):  # noqa: ARG001
    for name in ("fla", "fla_core-0.6.0.dist-info"):  # without einops, which it needs
        (tmp_path / name).symlink_to(FOLDER / name)
    (tmp_path / "einops.py").write_text("raise ModuleNotFoundError(\"No module named 'einops'\", name='einops')\n")  # where it is installed
    ended = run("attnbench.accelerate()", tmp_path)
    assert "nothing of fla-core 0.6.0, which cannot be imported here (ModuleNotFoundError: No module named 'einops')" in ended.stderr
