"""Tests of plots/rivals.py, which draws other packages as multiples of this project's methods."""

import importlib

from test_plots import figure_of, run, texts, write
from test_plots_certainty import with_ratio

rivals = importlib.import_module("attnplots.figures.rivals")
records = importlib.import_module("attnplots.records.records")
SCRIPT = "rivals"
FAST = "rivals/fast-transformers.py:linear"


def cases():
    """The records of a package with and without the causal mask, of a composition, and of the baseline itself."""
    rows = []
    for n in (1024, 4096):
        for protocol in ("forward", "forward_backward"):
            common = {"baseline": "linear", "protocol": protocol}
            for causal, ratio in ((True, 9.0), (False, 3.0)):
                more = {"ratio_ci_low": ratio - 0.2, "ratio_ci_high": ratio + 0.2, "causal": causal}
                rows.append(with_ratio(FAST, n, ratio, **common, **more))
                rows.append(with_ratio("linear", n, 1.0, **common, **more | {"ratio_ci_low": 0.9, "ratio_ci_high": 1.1}))
            rows.append(with_ratio("rivals/reformer-pytorch.py:lsh", n, 4.0, unverified=True, **common))
    return rows


def test_each_package_is_named_with_its_mask_and_what_it_is_compared_with(tmp_path):
    write(tmp_path, cases())
    shown = texts(figure_of(rivals.describe(records.load(tmp_path))))
    # The key above the panels names each mask once.
    assert [name for name in shown if "fast-transformers" in name] == [
        "fast-transformers (causal, vs linear)", "fast-transformers (vs linear)",
    ]  # fmt: skip
    assert "linear" not in shown, "the baseline itself is not drawn"
    assert {"Forward", "Forward + backward"} <= set(shown)
    assert "Ringed: unverified" in " ".join(shown)


def test_the_script_draws_the_records_that_the_project_ships(tmp_path):
    done = run(SCRIPT, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.suffix for path in tmp_path.rglob("rivals.*")} == {".pdf", ".svg", ".png"}
