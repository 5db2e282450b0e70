"""Tests of figures of files whose contents are made to do harm: hostile texts, and values of the wrong kind."""

import importlib
import json
from xml.etree import ElementTree

import pytest
from test_plots import LENGTHS, measured, refusal, run, write

schema = importlib.import_module("attnplots.records.schema")

# Control characters, a formula that does not parse, markup, an escape that reverses the text, and
# characters that the font of the figures lacks.
HOSTILE = "a\x1b[31m\x00\x07\r\nb $\\frac{$ <svg>&amp;\x9b\u202e\u2028 注意 😀 \ufffe"


FIGURE = "figure1"


def elements_of(path):
    """The elements of a figure; raises ParseError if it is not well-formed."""
    return list(ElementTree.parse(path).iter())


@pytest.mark.parametrize("script", ["figure1", "methods", "quickstart"])
def test_hostile_texts_give_a_figure_that_is_well_formed(tmp_path, script):
    rows = [
        measured(HOSTILE + suffix, n, n / 100, n * 1000, cpu_model=HOSTILE, revision=HOSTILE, implementation=HOSTILE)
        for suffix in ("", " two") for n in LENGTHS
    ]  # fmt: skip
    folder = write(tmp_path / "hostile", rows)
    done = run(script, folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "Matplotlib warns about nothing"
    drawn = [path for path in folder.iterdir() if path.suffix == ".svg"]
    assert drawn and all(elements_of(path) for path in drawn)


def test_errors_of_the_scripts_are_safe_to_print(tmp_path):
    folder = write(tmp_path / "bad", [measured() | {HOSTILE: 1}])
    done = run(FIGURE, folder)
    assert done.returncode == 2 and "has no column" in done.stderr
    assert not set("\x1b\x00\x07\x9b\u202e\u2028") & set(done.stderr)


def test_newer_records_are_refused(tmp_path):
    newer = write(tmp_path / "newer", [measured(schema_version=schema.current().version + 1)])
    assert "which this build understands" in refusal(FIGURE, newer)


def prediction(**changes):
    """The content of scaling.json, of one operator with these changes."""
    points = [{"ranks": 1, "seconds": 1.0, "efficiency": 1.0}, {"ranks": 2, "seconds": 0.5, "efficiency": 0.9}]
    sizes = {"heads": 1, "dim": 8, "dtype": "float32", "length": 64}
    operator = {"operator": "linear", "strong": points, "weak": points, "sizes": sizes} | changes
    network = {"latency_s": 1e-5, "bandwidth": 1e9}
    return {"network": network, "operators": [operator], "backward": True, "total_tokens": 4096}


def summary(tokens):
    """The content of models.json, of one model that took `tokens`."""
    times = {"speedup": {"estimate": 2.0, "low": 1.9, "high": 2.1}, "to_floor": None} | dict.fromkeys(
        ("transformers", "attnbench"), {"peak_extra_bytes": 1}
    )
    return {"models": [{"name": "small", "phases": {"step": times}}], "settings": {"tokens": tokens, "generated": 3}}


@pytest.mark.parametrize(
    ("script", "file", "good", "bad"),
    [
        ("ranks", "scaling.json", prediction(), prediction(strong=[])),
        ("ranks", "scaling.json", prediction(), prediction(weak=[{"ranks": "two", "efficiency": 1.0}])),
        ("models", "models.json", summary(2048), summary("many")),
    ],
)
def test_values_of_the_wrong_kind_are_refused(tmp_path, script, file, good, bad):
    (tmp_path / file).write_text(json.dumps(bad))
    assert f"{file}: not a " in refusal(script, tmp_path)
    (tmp_path / file).write_text(json.dumps(good))
    done = run(script, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
