"""Tests of the figures of all methods, of their errors and of decoding, on made-up records."""

import importlib
import math
import zlib

import numpy as np
import pytest
from test_plots import (
    MAGIC,
    PLOTS,
    clear_labels,
    curves,
    drawn,
    measured,
    missing,
    refusal,
    run,
    style,
    texts,
    ticks,
    values,
    write,
)  # fmt: skip

decode, errors, families = (
    importlib.import_module(f"attnplots.{name}") for name in ("decode", "errors", "families")
)

FAST = "lsh:rounds=4,profile=fast-transformers"
# By method: time (ms) at N = 512 and the power of N that it grows with, memory (bytes) likewise,
# both per sample; the approximation error.
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
    return measured(name, n, ms * (n / 512) ** power, size, approximation_error=error, **more)


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


def footer(figure, start):
    """The text of the figure after `start`, without line breaks."""
    return " ".join(texts(figure)).partition(start)[2]


def marks(axes):
    """The coordinates of the marks of a panel."""
    lines = [line for line in axes.get_lines() if line.get_linestyle() == "None"]
    return {(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in lines}


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


@pytest.mark.parametrize("protocols", [("forward",), ("forward", "forward_backward")])
def test_every_method_is_named_and_no_names_overlap(protocols):
    rows = methods(protocols)
    figure = drawn(rows, families.draw)
    said = clear_labels(figure)
    settings = 2 * len(protocols)
    assert len(figure.axes) == settings * 2 * 3
    for method in METHODS:
        wanted = 2 * len(protocols) * (1 if method in ONE_WAY else 2)
        # The label of FAST has "lsh-4" and its profile on two lines.
        found = said.count("lsh-4") if method == "lsh-4" else said.count(method)
        if method == "lsh-4":
            found -= said.count("(fast-transformers)")
        if method == FAST:
            found = said.count("(fast-transformers)")
        if method in families.REFERENCES:
            wanted *= 3
        assert found == wanted, method
    left_out = footer(figure, "Not drawn (Forward · causal):")
    for method in ("efficient", "linformer"):
        assert f"{method}: not supported" in left_out
    assert "taylor at N = 2k: invalid" in left_out


def test_reference_methods_are_pale_in_panels_of_other_families():
    figure = drawn(methods(("forward",)), families.draw)
    looks = style.styles(METHODS)
    for axes, home in zip(figure.axes[:3], ("linear", None, "softmax"), strict=True):
        colours = [line.get_color() for line in axes.get_lines()]
        for method in families.REFERENCES:
            assert (looks[method].colour in colours) == (method == home)
            assert (style.faint(looks[method]).colour in colours) == (method != home)


def test_the_reason_of_an_end_mark_is_written_once_in_each_row_and_quantity():
    names = ("softmax", "sdpa", "linear", "favor")
    figure = drawn(methods(("forward_backward",), names), families.draw)
    # It is written for time and for memory, causal and not causal.
    assert texts(figure).count("out of memory") == 4
    crosses = [
        line for axes in figure.axes for line in axes.get_lines() if line.get_marker() == "x"
    ]
    assert len(crosses) == 3 * 4


def test_curves_that_end_early_have_leaders_to_names_beside_the_panel():
    rows = [measured("linear", n, n, n) for n in (512, 1024, 2048, 4096)]
    rows += [measured("linear-einsum", n, 30 * n, 30 * n) for n in (512, 1024)]
    figure = drawn(rows, families.draw)
    leaders = [line for line in figure.artists if line.get_alpha()]
    assert len(leaders) == 2
    edge = figure.axes[0].get_window_extent().x1
    names = [text for text in figure.texts if text.get_gid() == "label"]
    assert all(text.get_window_extent().x0 > edge for text in names)


def test_unknown_methods_and_families_without_a_measurement_are_drawn():
    figure = drawn([measured("window", n, n, n) for n in (512, 1024)], families.draw)
    assert len(figure.axes) == 2 and clear_labels(figure).count("window") == 2
    rows = [measured("linear"), missing("favor", 512, "unsupported", "skipped")]
    shown = texts(drawn(rows, families.draw))
    assert shown.count("nothing measured") == 2
    assert any("favor: not supported" in text for text in shown)


def test_errors_are_drawn_as_marks_at_time_and_error():
    figure = drawn(methods(), errors.draw)
    clear_labels(figure)
    assert len(figure.axes) == 2 * 3, "the forward pass alone is drawn, at three lengths"
    shown = [text for text in texts(figure) if text.startswith("N = ")]
    assert shown == ["N = 1k", "N = 4k", "N = 16k"] * 2
    for i, axes in enumerate(figure.axes):
        n, causal = errors.LENGTHS[i % 3], i >= 3
        kept = (one_method(m, n, "forward", causal) for m in METHODS)
        wanted = {
            (r["time_per_sample_ms"], r["approximation_error"])
            for r in kept
            if r["outcome"] == "measured" and r["approximation_error"]
        }
        assert marks(axes) == wanted
        lines = {line.get_xdata()[0] for line in axes.get_lines() if len(line.get_xdata()) == 2}
        exact = (one_method(m, n, "forward", causal) for m in errors.EXACT)
        assert lines == {r["time_per_sample_ms"] for r in exact}


def test_errors_note_every_method_without_a_mark():
    rows = methods(("forward",))
    rows = [r for r in rows if (r["method"], r["query_len"]) != ("softmax", 16384)]
    for causal in (False, True):
        more = {"causal": causal, "inputs": "normal"}
        rows.append(missing("softmax", 16384, "predicted_oom", "skipped", **more))
    for name, error in (("rank", 0.0), ("odd", -0.5)):
        rows.append(measured(name, 1024, approximation_error=error, inputs="normal"))
    figure = drawn(rows, errors.draw)
    notes = footer(figure, "approximates no other:")
    for method, record in METHODS.items():
        exact = method in errors.EXACT
        named = f"{method}," in notes or f"{method}." in notes
        assert named == (record[-1] is None and not exact), method
    for said in (
        "softmax at N = 16k: out of memory (predicted)",
        "rank: approximation error is not above 0",
        "odd: approximation error is not above 0",
        "linformer: not supported",
        "exact methods (sdpa, softmax)",
    ):
        assert said in notes or said in " ".join(texts(figure)), said
    assert "error not recorded" not in notes
    assert not {"rank", "odd"} & set(clear_labels(figure))


def test_errors_are_drawn_without_any_error_and_at_other_lengths():
    rows = [measured("linear", n, n, approximation_error=None) for n in (64, 128, 256, 512)]
    figure = drawn(rows, errors.draw)
    assert len(figure.axes) == 3 and texts(figure).count("nothing measured") == 3
    assert [t for t in texts(figure) if t.startswith("N = ")] == ["N = 64", "N = 256", "N = 512"]
    rows += [measured("softmax", n, n) for n in (64, 128, 256, 512)]
    assert texts(drawn(rows, errors.draw)).count("no approximation measured") == 3
    rows = [measured("favor", 1024, protocol="forward_backward", approximation_error=0.5)]
    assert marks(drawn(rows, errors.draw).axes[0]) == {(1.0, 0.5)}


def test_names_of_lines_close_together_do_not_overlap():
    rows = [measured(m, 1024, ms) for m, ms in (("softmax", 5.0), ("sdpa", 5.1))]
    rows += [measured("favor", 1024, 900.0, approximation_error=0.5)]
    figure = drawn(rows, errors.draw)
    assert {"softmax", "sdpa"} <= set(clear_labels(figure))


def test_decoding_is_drawn_against_the_position():
    figure = drawn(decoding(), decode.draw)
    said = clear_labels(figure)
    assert all(said.count(method) == 2 for method in DECODING)
    shown = texts(figure)
    assert {"Decoding", "Time per token (ms)", "∝ P", "∝ P²"} <= set(shown)
    assert shown.count("Position P (tokens before)") == 2
    assert not any("N" in text.split() for text in shown)
    linear = next(line for line in figure.axes[0].get_lines() if set(line.get_ydata()) == {0.03})
    assert len(linear.get_xdata()) == 13
    crosses = [line for line in figure.axes[0].get_lines() if line.get_marker() == "x"]
    assert [list(line.get_xdata()) for line in crosses] == [[16384]]
    rows = [*decoding(), missing("favor", 2**17, "invalid", protocol="decode", causal=True)]
    assert footer(drawn(rows, decode.draw), "Not drawn:").startswith(" favor at P = 128k: invalid")


def test_all_text_has_at_least_seven_points():
    for rows, draw in ((methods(), families.draw), (methods(), errors.draw),
                       (decoding(), decode.draw)):  # fmt: skip
        figure = drawn(rows, draw)
        shown = [text for text in figure.findobj() if hasattr(text, "get_fontsize")]
        assert min(text.get_fontsize() for text in shown if text.get_text()) >= 7


def test_narrow_panels_have_readable_ticks():
    assert ticks.times((8, 1100), between=(3,))[1] == ["10", "30", "100", "300", "1,000"]
    assert ticks.lengths((512, 16384), max_count=4)[1] == ["512", "2k", "8k"]
    low, high = ticks.around([1.0, 100.0, np.nan])
    assert low < 1 and high > 100


def test_drawing_several_figures_twice_gives_the_same_bytes(tmp_path):
    folder = write(tmp_path / "set", methods(("forward",), ("softmax", "linear", "favor")))
    for out in ("one", "two"):
        assert run(PLOTS / "methods.py", folder, "--out", tmp_path / out).returncode == 0
    for stem in ("methods", "methods-error"):
        for kind in MAGIC:
            one, two = (tmp_path / out / f"{stem}.{kind}" for out in ("one", "two"))
            assert one.read_bytes() == two.read_bytes(), (stem, kind)


@pytest.mark.parametrize("name", ["methods", "decode"])
def test_records_that_cannot_be_drawn_are_an_error_of_one_line(name, tmp_path):
    rows = [missing(m, 512, "unsupported", "skipped") for m in ("linformer", "favor")]
    folder = write(tmp_path / "set", rows)
    assert "at least one measured" in refusal(PLOTS / f"{name}.py", folder)
    folder = write(tmp_path / "bad", [measured(approximation_error="large")])
    assert "records.jsonl:1: " in (said := refusal(PLOTS / f"{name}.py", folder))
    assert "`approximation_error`" in said
    assert not list(tmp_path.glob("*/*.png"))


def test_errors_are_taken_from_another_pass_if_the_forward_pass_has_no_time(tmp_path):
    rows = [missing("favor", 1024, "oom")]
    rows += [measured("favor", 1024, protocol="forward_backward", approximation_error=0.5)]
    result = run(PLOTS / "methods.py", write(tmp_path / "set", rows))
    assert result.returncode == 0, result.stderr
    assert not {1.0} - values(drawn(rows, families.draw).axes[2])
