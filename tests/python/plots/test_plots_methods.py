"""Tests of the figures of all methods and of decoding, on made-up records."""

import importlib
import math
import zlib

import numpy as np
import pytest
from test_plots import (
    MAGIC,
    clear_labels,
    curves,
    drawn,
    figure_of,
    measured,
    missing,
    refusal,
    run,
    style,
    texts,
    ticks,
    values,
    write,
    scaling,
    sheet,
)

decode, names_of_methods, records = (
    importlib.import_module(f"attnplots.{name}") for name in ("figures.decode", "records.methods", "records.records")
)

FAST = "lsh:rounds=4,profile=fast-transformers"
# By method: time (ms) at N = 512 and the power of N that it grows with, memory (bytes) likewise,
# both per sequence; the approximation error.
METHODS = {
    "softmax": (12.6, 2, 2**24, 2, None), "sdpa": (4.3, 2, 2**20, 1, None),
    "linear": (5.6, 1, 2**22, 1, None), "linear-einsum": (2.6, 1, 2**22, 1, None),
    "linear-cumsum": (40, 1, 2**28, 1, None), "linear-recurrent": (55, 1, 2**21, 1, None),
    "linear-elu0.1": (5.7, 1, 2**22, 1, None), "efficient": (3, 1, 2**22, 1, None),
    "taylor": (90, 1, 2**27, 1, 0.08), "polynomial-2": (80, 1, 2**27, 1, 0.35),
    "favor": (18, 1, 2**24, 1, 0.25), "rff": (16, 1, 2**24, 1, 0.45),
    "linformer": (4, 1, 2**23, 1, 0.9), "lsh-1": (20, 1, 2**25, 1, 0.55),
    "lsh-4": (80, 1, 2**27, 1, 0.3), "lsh-8": (160, 1, 2**28, 1, 0.2),
    FAST: (120, 1, 3 * 2**26, 1, 0.33),
}  # fmt: skip
# Methods that are either causal alone or not causal alone, and which.
ONE_WAY = {"linear-cumsum": True, "linear-recurrent": True, "efficient": False, "linformer": False}
# Time and memory of a decoding step at the position P = 16 likewise. They are constant, grow with
# the cache, or grow because the method computes the whole prefix again.
DECODING = {
    "softmax": (0.02, 2, 2**14, 1.6), "stateful-softmax": (0.02, 0.7, 2**16, 1),
    "stateful-softmax-concat": (0.021, 0.9, 2**17, 1), "lsh-1": (0.08, 0.6, 92_000, 1),
    "lsh-4": (0.2, 0.6, 2**17, 1), "linear": (0.03, 0, 133_000, 0),
    "linear-elu0.1": (0.031, 0, 133_000, 0), "taylor": (0.5, 0, 9e6, 0),
    "polynomial-2": (0.45, 0, 8.5e6, 0), "favor": (0.06, 0, 5e5, 0), "rff": (0.055, 0, 5e5, 0),
}  # fmt: skip


def why_not_measured(method, n, protocol):
    """The kind of failure and the outcome of a case without a time; None for a measured case."""
    if protocol == "forward_backward":
        if method == "softmax" and n > 8192 or method == "linear-cumsum" and n > 4096:
            return "predicted_oom", "skipped"
        if method == FAST and n > 8192:
            return "timeout", "failed"
    return ("invalid", "failed") if (method, n) == ("taylor", 2048) else None


def methods(protocols=("forward", "forward_backward"), names=METHODS):
    return [
        one_method(name, n, protocol, causal)
        for protocol in protocols
        for causal in (False, True)
        for name in names
        for n in (2**k for k in range(9, 15))
    ]


def one_method(name, n, protocol, causal):
    ms, power, memory, memory_power, error = METHODS[name]
    more = {"protocol": protocol, "causal": causal, "inputs": "normal"}
    if ONE_WAY.get(name, causal) != causal:
        return missing(name, n, "unsupported", "skipped", **more)
    if stop := why_not_measured(name, n, protocol):
        return missing(name, n, *stop, **more)
    ms *= (2.7 if protocol == "forward_backward" else 1) * (1.3 if causal else 1)
    ms *= 1 + 0.1 * math.sin(zlib.crc32(f"{name}{n}{protocol}{causal}".encode()))
    if error is not None:
        error *= (n / 512) ** 0.12
    size = memory * (n / 512) ** memory_power
    return measured(name, n, ms * (n / 512) ** power, size, quality_row_error_median=error, **more)


def decoding():
    rows = []
    for name, (ms, power, memory, memory_power) in DECODING.items():
        for n in (2**k for k in range(4, 17)):
            more = {"protocol": "decode", "causal": True}
            if name == "softmax" and n > 8192:
                rows.append(missing(name, n, "predicted_oom", "skipped", **more))
                continue
            size = int(memory * (n / 16) ** memory_power)
            time = ms * (1 + (n / 256) ** power if power else 1)
            rows.append(measured(name, n, time, size, state_bytes=size, **more))
    return rows


def sheets(rows, describe=scaling.describe_kinds):
    """The sheets that `draw` makes of records, by their names."""
    with sheet.context():
        drawn_sheets = figure_of(describe(records.Records(rows)))
        for figure in drawn_sheets.values():
            figure.draw_without_rendering()
    return drawn_sheets


def test_every_method_has_its_own_colour_and_marker():
    names = {*METHODS, *DECODING}
    assert names <= set(style.KNOWN)
    looks = style.styles(names)
    assert len({look.colour for look in looks.values()}) == len(names)
    assert len({(look.marker, look.hollow) for look in looks.values()}) == len(names)
    hues = {style.family(name) for name in names}
    assert hues == {"softmax", "sdpa", "linear", "kernel", "lsh", "efficient", "linformer"}


def test_methods_with_options_have_short_names():
    for method, text in (
        (FAST, "lsh-4 (fast-transformers)"),
        ("lsh:rounds=2", "lsh-2"),
        ("lsh:rounds=4,chunk=32", "lsh-4 (chunk=32)"),
        ("favor:features=64,seed=1", "favor (features=64, seed=1)"),
        ("linear-elu0.1", "linear-elu0.1"),
        ("rivals/fast-transformers.py:linear", "fast-transformers.py:linear"),
        ("kernels/mine.py:attention:window=64", "mine.py:attention (window=64)"),
        ("odd: not=,options", "odd: not=,options"),
    ):
        assert curves.method_text(method) == text


def test_methods_in_python_are_named_by_their_labels_as_far_as_names_stay_different(tmp_path, monkeypatch):
    for known in ("_labels", "_names"):
        monkeypatch.setattr(names_of_methods, known, {})
    wanted = {
        "x/mine.py:one:like=softmax": ("", "mine.py:one"),
        "x/mine.py:two:like=softmax": ("my method", "my method"),
        "x/mine.py:two:window=3,as=short": ("short", "short"),
        "x/mine.py:three:window=1": ("equal", "mine.py:three (window=1)"),
        "x/mine.py:three:window=2,like=softmax": ("equal", "mine.py:three (window=2)"),
        "x/mine.py:four": ("", "mine.py:four"),
        "x/mine.py:four:like=linear": ("", "mine.py:four (like=linear)"),
        "x/same.py:f": ("", "x/same.py:f"),
        "y/same.py:f": ("", "y/same.py:f"),
        "z/mine.py:five:as=linear": ("linear", "mine.py:five"),
        "linear": ("", "linear"),
    }
    rows = [measured(method) | {"method_label": label or None} for method, (label, _) in wanted.items()]
    assert curves.method_text("x/mine.py:two:window=3,as=short") == "short", "before its record is read"
    assert curves.method_text("x/mine.py:one:like=softmax") == "mine.py:one"
    records.load(write(tmp_path / "set", rows))
    assert {method: curves.method_text(method) for method in wanted} == {method: name for method, (_, name) in wanted.items()}
    external = measured("x/mine.py:two:like=softmax") | {"method_label": "my method", "external_source": "elsewhere"}
    records.load(write(tmp_path / "other", [external]))
    assert curves.method_text("x/mine.py:two:like=softmax (external)") == "my method (external)"
    assert names_of_methods.case_text("x/mine.py:two:like=softmax forward N=4") == "my method forward N=4"


def test_each_setting_has_a_sheet_with_a_row_of_panels_for_each_kind_of_method():
    found = sheets(methods())
    assert list(found) == [
        "forward-not-causal", "forward-causal", "forward-backward-not-causal",
        "forward-backward-causal",
    ]  # fmt: skip
    for name, figure in found.items():
        assert len(figure.axes) == 2 * len(scaling.KINDS)
        assert min(axes.get_position().width for axes in figure.axes) * 6.75 > 1.4, "inches"
        said = clear_labels(figure)
        causal = "not-causal" not in name
        for method in METHODS:
            if method in (FAST, "lsh-4"):
                continue  # the label of FAST has several lines
            wanted = 2 if ONE_WAY.get(method, causal) == causal else 0
            if method in scaling.REFERENCES:
                wanted *= 3
            assert said.count(method) == wanted, (name, method)
        headings = [text for text in texts(figure) if "attention" in text and ":" in text]
        assert headings[0].endswith(": linear attention")


def test_what_is_not_drawn_takes_one_sentence():
    figure = sheets(methods())["forward-backward-causal"]
    shown = " ".join(texts(figure))
    assert shown.count("Without a point:") == 1 and "no curve: efficient, linformer." in shown
    assert "12 not supported" in shown


def test_sdpa_and_linear_are_in_every_row_for_comparison():
    figure = sheets(methods(("forward",)))["forward-causal"]
    looks = style.styles(METHODS)
    for axes in figure.axes:
        colours = [line.get_color() for line in axes.get_lines()]
        assert all(looks[method].colour in colours for method in scaling.REFERENCES)


def test_unknown_methods_and_kinds_without_a_record_are_drawn():
    (figure,) = sheets([measured("window", n, n, n) for n in (512, 1024)]).values()
    assert len(figure.axes) == 2 and clear_labels(figure).count("window") == 2
    rows = [measured("linear"), missing("favor", 512, "unsupported", "skipped")]
    (figure,) = sheets(rows).values()
    assert texts(figure).count("favor") == 0 and len(figure.axes) == 4
    assert "no curve: favor." in " ".join(texts(figure))


def test_settings_that_differ_in_any_axis_have_sheets_and_titles_of_their_own():
    rows = [measured("linear", n, dtype=t) for t in ("float32", "bfloat16") for n in (512, 1024)]
    found = sheets(rows)
    assert sorted(found) == ["forward-bfloat16", "forward-float32"]
    assert "Forward · bfloat16: linear attention" in texts(found["forward-bfloat16"])


def test_decoding_is_drawn_against_the_position():
    rows = [r for r in decoding() if r["method"] != "softmax" and not r["method"].startswith("lsh")]
    figure = drawn(rows, decode.describe)
    said = clear_labels(figure)
    left_out = ("softmax", "stateful-softmax-concat")
    assert all(said.count(m) == 2 for m in DECODING if m not in left_out and not m.startswith("lsh"))
    shown = texts(figure)
    assert {"Decoding", "Time per token (ms)", "∝ P", "∝ P²"} <= set(shown)
    assert shown.count("Position P (tokens before)") == 2
    linear = next(line for line in figure.axes[0].get_lines() if set(line.get_ydata()) == {0.03})
    assert len(linear.get_xdata()) == 13


def test_methods_that_compute_the_prefix_again_do_not_squeeze_the_others():
    slow = {"implementation": "aten/recomputed-prefix", "time_per_sample_ms": 1e5}
    rows = [
        r | slow if r["method"] == "softmax" and r["outcome"] == "measured" else r for r in decoding()
    ]
    rows += [r | {"method": "stateful-sdpa"} for r in rows if r["method"] == "stateful-softmax"]
    figure = drawn(rows, decode.describe)
    assert len(figure.axes) == 4
    state, again = figure.axes[0], figure.axes[2]
    assert max(values(again)) > 100 * state.get_ylim()[1], "the axes are not shared"
    fastest = min(v for r in rows if r["method"] == "linear" for v in [r["time_per_sample_ms"]])
    assert state.get_ylim()[0] > fastest / 10
    shown = " ".join(texts(figure))
    assert decode.WITH_STATE in shown and decode.WITHOUT_STATE in shown
    assert clear_labels(figure).count("stateful-sdpa") == 2


@pytest.mark.parametrize("width", ["column", "page"])
def test_all_text_has_at_least_seven_points(width):
    with sheet.context(width):
        figures = list(figure_of(scaling.describe_kinds(records.Records(methods()))).values())
        figures.append(figure_of(decode.describe(records.Records(decoding()))))
        for figure in figures:
            figure.draw_without_rendering()
            shown = [t for t in figure.findobj() if hasattr(t, "get_fontsize") and t.get_text()]
            assert min(text.get_fontsize() for text in shown) >= 7
            clear_labels(figure)


def test_narrow_panels_have_readable_ticks():
    assert ticks.times((8, 1100), between=(3,))[1] == ["10", "30", "100", "300", "1,000"]
    assert ticks.lengths((512, 16384), max_count=4)[1] == ["512", "2k", "8k"]
    low, high = ticks.around([1.0, 100.0, np.nan])
    assert low < 1 and high > 100


def test_drawing_several_figures_twice_gives_the_same_bytes(tmp_path):
    folder = write(tmp_path / "set", methods(("forward",), ("softmax", "linear", "favor")))
    for out in ("one", "two"):
        assert run("methods", folder, "--out", tmp_path / out).returncode == 0
    for stem in ("methods-forward-causal", "methods-forward-not-causal"):
        for kind in MAGIC:
            one, two = (tmp_path / out / f"{stem}.{kind}" for out in ("one", "two"))
            assert one.read_bytes() == two.read_bytes(), (stem, kind)


@pytest.mark.parametrize("name", ["methods", "decode"])
def test_records_that_cannot_be_drawn_are_an_error_of_one_line(name, tmp_path):
    rows = [missing(m, 512, "oom") for m in ("linformer", "favor")]
    folder = write(tmp_path / "set", rows)
    assert "at least one measured" in refusal(name, folder)
    folder = write(tmp_path / "bad", [measured(max_rel_error="large")])
    assert "records.jsonl:1: " in (said := refusal(name, folder))
    assert "max_rel_error" in said
    assert not list(tmp_path.glob("*/*.png"))
