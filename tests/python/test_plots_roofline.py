"""Tests of the roofline figure of the CPU kernels, on made-up records and ceilings."""

import importlib
import json
import math
from itertools import combinations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import same_color
from test_plots import (
    MAGIC,
    PLOTS,
    clear_labels,
    drawn,
    labels,
    measured,
    missing,
    refusal,
    run,
    style,
    texts,
    write,
)  # fmt: skip

ceilings, roofline = (
    importlib.import_module(f"attnplots.{name}") for name in ("ceilings", "roofline")
)

SCRIPT = PLOTS / "cpu-kernels.py"
FOUND = {
    "read_gb_s": 29.0, "copy_gb_s": 45.0, "fma_float32_gflop_s": 456.0,
    "fma_float64_gflop_s": 228.0, "fma_instruction_set": "avx512", "array_bytes": 2**29,
    "threads": 2, "gpu": {"unavailable": "no driver"},
}  # fmt: skip
ROOF = ceilings.Ceilings(29.0, 45.0, 456.0, 228.0, 2)
LENGTHS = (512, 2048, 8192, 65536)
# By method: GFLOP/s of the causal forward pass in float32 at the longest length, and the
# implementation.
METHODS = {
    "linear": (240, "kernel/avx512"), "linear:kernel=avx2": (130, "kernel/avx2"),
    "linear-elu0.1": (236, "kernel/avx512"), "linear-chunked": (20, "aten/chunked"),
    "linear-einsum": (27, "aten/einsum"), "lsh-1": (150, "kernel/avx512"),
    "lsh-4": (165, "kernel/avx512"), "lsh-composed": (12, "aten/sorted chunks"),
    "sdpa": (30, "sdpa/flash_attention"),
}  # fmt: skip
# The methods that run kernels of this project.
OWN = [method for method in METHODS if METHODS[method][1].startswith("kernel/")]
FIRST = ("forward", True, "float32")
# Protocol, causal and dtype of each panel, in the order of the figure.
SETTINGS = [
    (protocol, causal, dtype)
    for dtype in ("float32", "bfloat16")
    for causal in (True, False)
    for protocol in ("forward", "forward_backward")
]
TITLES = [
    f"{letter}   {protocol} · {causal} · {dtype}"
    for letter, (dtype, causal, protocol) in zip(
        "abcdefgh",
        (
            (dtype, causal, protocol)
            for dtype in ("float32", "bfloat16")
            for causal in ("causal", "not causal")
            for protocol in ("Forward", "Forward + backward")
        ),
        strict=True,
    )
]


def cost(method, n, protocol, causal, dtype):
    """The arithmetic operations and the minimum bytes of a call with 8 heads of dimension 64."""
    backward = protocol == "forward_backward"
    element = {"float64": 8, "float32": 4, "bfloat16": 2}[dtype]
    token = 4 * 64 * 64
    if method == "linear-chunked" and causal:
        token += 2 * 128 * 129
    if method.startswith("lsh"):
        token = (4 * 128 * 64 + 130 * math.sqrt(n) / 8) * (4 if method == "lsh-4" else 1)
    if method == "sdpa":
        token = 4 * 64 * n / (2 if causal else 1)
    token_bytes = 64 * element * (11 if backward else 4)
    return 8 * n * token * (3.5 if backward else 1), 8 * n * token_bytes


def attained(method, n, protocol, causal, dtype):
    """The rate of a case in GFLOP/s."""
    rate = METHODS[method][0] * (n / LENGTHS[-1]) ** (0.05 if method == "sdpa" else 0.1)
    rate *= 0.85 if protocol == "forward_backward" else 1
    return rate * (1 if causal else 1.15) * (0.9 if dtype == "bfloat16" else 1)


def why_not_measured(method, n, protocol, causal):
    """The kind of failure and the outcome of a case without a time; None for a measured case."""
    if method == "linear-einsum" and causal:
        return "unsupported", "skipped"
    if (n, protocol) == (65536, "forward_backward"):
        if method == "sdpa":
            return "predicted_timeout", "skipped"
        if method == "lsh-composed":
            return "timeout", "failed"
    return None


def one_record(method, n, protocol, causal, dtype, **other):
    """The record of a case; `other` replaces columns of it."""
    more = {"protocol": protocol, "causal": causal, "dtype": dtype, "batch": 1, "threads": 2}
    if stop := why_not_measured(method, n, protocol, causal):
        return missing(method, n, *stop, **more | other)
    flops, min_bytes = cost(method, n, protocol, causal, dtype)
    time = flops / attained(method, n, protocol, causal, dtype) / 1e6
    more |= {"flops": flops, "min_bytes": min_bytes, "time_median_ms": time}
    more |= {"implementation": METHODS[method][1]}
    return measured(method, n, time, **more | other)


def kernels(settings=SETTINGS, methods=METHODS, lengths=LENGTHS):
    return [one_record(m, n, *setting) for setting in settings for m in methods for n in lengths]


def folder_of(path, rows, environment=None):
    """Writes a folder of these records, with the ceilings FOUND or another environment.json."""
    write(path, rows)
    found = {"sweep": "cpu-kernels", "ceilings": FOUND} if environment is None else environment
    text = found if isinstance(found, str) else json.dumps(found)
    (path / "environment.json").write_text(text)
    return path


def draw(rows, found=ROOF):
    return drawn(rows, lambda records: roofline.draw(records, found))


@pytest.fixture(scope="module")
def whole():
    return draw(kernels())


@pytest.fixture(scope="module")
def single():
    return draw(kernels([FIRST]))


def marks(axes):
    """The marks of a panel: x, y and size of each, and whether it is hollow."""
    return [
        (float(line.get_xdata()[0]), float(line.get_ydata()[0]), line.get_markersize(),
         same_color(line.get_markerfacecolor(), "white"))
        for line in axes.get_lines()
        if line.get_linestyle() == "None"
    ]  # fmt: skip


def names_in(figure, axes):
    """The labels inside a panel."""
    box = axes.get_window_extent()
    named = [text for text in figure.texts if text.get_gid() == "label"]
    return [text for text in named if box.contains(*text.get_window_extent().get_points()[0])]


def points(setting, methods=METHODS):
    """Method, length, intensity and rate of each measured case of a setting."""
    found = []
    for method in methods:
        for n in LENGTHS:
            protocol, causal, _ = setting
            if not why_not_measured(method, n, protocol, causal):
                flops, min_bytes = cost(method, n, *setting)
                found.append((method, n, flops / min_bytes, attained(method, n, *setting)))
    return found


def named_marks(axes, setting):
    """Yields each mark of a panel with the method whose rate is nearest to it."""
    known = points(setting)
    for x, y, size, opened in marks(axes):
        yield min(known, key=lambda point: abs(math.log(point[3] / y)))[0], x, y, size, opened


def shares(setting):
    """The texts about shares of the roof that the panel of a setting should show."""
    longest = {method: rate for method, _, _, rate in points(setting, OWN)}
    return sorted(f"{100 * rate / 456:.0f}% of roof" for rate in longest.values())


def test_every_method_has_its_own_colour_and_marker_with_enough_contrast():
    assert set(METHODS) <= set(style.KNOWN)
    everything = style.styles(style.KNOWN)
    assert len({look.colour for look in everything.values()}) == len(style.KNOWN)
    assert len({(look.marker, look.hollow) for look in everything.values()}) == len(style.KNOWN)
    for look in everything.values():
        assert 1.05 / (style.luminance(look.text_colour) + 0.05) >= 4.5


def test_each_setting_has_a_panel_in_a_fixed_order(whole):
    assert len(whole.axes) == 8
    assert [text for text in texts(whole) if text in TITLES] == TITLES
    places = [axes.get_position() for axes in whole.axes]
    assert [place.x0 < 0.5 for place in places] == [True, False] * 4
    assert all(a.y0 == b.y0 for a, b in zip(places[::2], places[1::2], strict=True))
    assert all(a.y0 > b.y1 for a, b in zip(places[::2], places[2::2], strict=False))
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in whole.axes}) == 1
    shuffled = draw(list(reversed(kernels([*SETTINGS[4:], *SETTINGS[:2]], ["linear"]))))
    said = [text for text in texts(shuffled) if " · " in text and "Forward" in text]
    assert [text[4:] for text in said] == [TITLES[k][4:] for k in (0, 1, 4, 5, 6, 7)]


def test_marks_are_at_their_rate_and_near_their_intensity(whole):
    note = next(text for text in texts(whole) if "set apart" in text)
    max_factor = float(note.split("factor of ")[1].split(" at most")[0])
    assert 1 < max_factor < 1.5
    for axes, setting in zip(whole.axes, SETTINGS, strict=True):
        wanted = sorted((rate, intensity) for _, _, intensity, rate in points(setting))
        shown = sorted((y, x) for x, y, _, _ in marks(axes))
        assert [y for y, _ in shown] == pytest.approx([rate for rate, _ in wanted])
        factors = [x / intensity for (_, x), (_, intensity) in zip(shown, wanted, strict=True)]
        assert max(max(factors), 1 / min(factors)) <= max_factor * 1.05
        # The marks of the first method are not shifted.
        unshifted = [x for method, x, *_ in named_marks(axes, setting) if method == "linear"]
        assert unshifted == pytest.approx([points(setting)[0][2]] * 4)


def test_no_mark_hides_one_of_another_method(whole):
    for axes, setting in zip(whole.axes, SETTINGS, strict=True):
        shown = [
            (method, axes.transData.transform((x, y)), size / 2)
            for method, x, y, size, _ in named_marks(axes, setting)
        ]
        for (a, here, r), (b, there, s) in combinations(shown, 2):
            assert a == b or math.dist(here, there) > r + s, (a, b)


def test_the_roof_has_the_measured_ceilings_and_names_them(whole, single):
    for figure, panels in ((whole, 8), (single, 1)):
        shown = texts(figure)
        for said in ("456 GFLOP/s · float32 multiply-add", "copy 45 GB/s", "read 29 GB/s"):
            assert shown.count(said) == panels, said
        for axes in figure.axes:
            roof = [line for line in axes.get_lines() if line.get_color() == roofline.ROOF]
            thick, thin = sorted(roof, key=lambda line: -line.get_linewidth())
            assert thick.get_linewidth() > 2 * thin.get_linewidth()
            for line, bandwidth in ((thick, 45.0), (thin, 29.0)):
                left, ridge, right = zip(*line.get_data(), strict=True)
                assert left == pytest.approx((axes.get_xlim()[0], bandwidth * axes.get_xlim()[0]))
                assert ridge == pytest.approx((456 / bandwidth, 456))
                assert right == pytest.approx((axes.get_xlim()[1], 456))
            assert left[1] > axes.get_ylim()[0] and axes.get_ylim()[1] > 456


def test_the_roof_follows_other_ceilings(single):
    figure = draw(kernels([FIRST]), ceilings.Ceilings(51.5, 20.25, 99.0, 50.0, 1))
    shown = texts(figure)
    assert {"99 GFLOP/s · float32 multiply-add", "copy 20.2 GB/s", "read 51.5 GB/s"} <= set(shown)
    # The name of the upper slope is above it, that of the lower slope below it.
    sides = (("read 51.5 GB/s", 51.5, True), ("copy 20.2 GB/s", 20.25, False))
    for said, bandwidth, above in sides:
        place = next(text.get_position() for text in figure.texts if text.get_text() == said)
        x, y = figure.axes[0].transData.inverted().transform(72 * np.array(place))
        assert (y > bandwidth * x) == above, said
    assert any("measured on 1 thread:" in text for text in shown)
    assert any("measured on 2 threads:" in text for text in texts(single))


def test_the_label_of_the_arithmetic_rate_covers_no_mark():
    rows = kernels([FIRST], ["linear", "sdpa"])
    for row in rows[4:]:
        row["time_median_ms"] = row["flops"] / 500e6
    figure = draw(rows)
    said = next(text for text in figure.texts if "multiply-add" in text.get_text())
    box, axes = said.get_window_extent(), figure.axes[0]
    assert len([1 for _, y, _, _ in marks(axes) if y == pytest.approx(500)]) == 4
    for x, y, _, _ in marks(axes):
        assert not box.contains(*axes.transData.transform((x, y)))


def test_kernels_are_labelled_with_their_share_of_the_roof(whole, single):
    for axes, setting in zip(whole.axes, SETTINGS, strict=True):
        said = [text.get_text() for text in names_in(whole, axes)]
        assert sorted(text for text in said if "%" in text) == shares(setting)
    assert shares(FIRST) == [f"{share}% of roof" for share in (29, 33, 36, 52, 53)]
    named = names_in(single, single.axes[0])
    for method, share in (("linear", "53% of roof"), ("lsh-1", "33% of roof")):
        (u, v), = (text.get_position() for text in named if text.get_text() == share)
        names = [text for text in named if text.get_text() == method]
        places = [text.get_position() for text in names]
        # The name is right above the share.
        assert any(x == u and 0 < y - v < 12 / 72 for x, y in places)
        assert all(text.get_weight() == "bold" for text in names)


def test_shares_are_relative_to_the_bandwidth_where_it_is_the_lower_limit():
    # At 4 operations per byte, 45 GB/s allow 180 GFLOP/s.
    flops, min_bytes, ms = 4e9, 1e9, 4e9 / 90 / 1e6
    low = {"flops": flops, "min_bytes": min_bytes, "time_median_ms": ms}
    assert "50% of roof" in texts(draw([one_record("linear", 512, *FIRST, **low)]))
    slow = low | {"time_median_ms": 4e9 / 1e6}
    assert "below 1% of roof" in texts(draw([one_record("linear", 512, *FIRST, **slow)]))


def test_a_share_at_another_than_the_longest_length_names_the_length():
    rows = kernels([FIRST], ["linear", "lsh-1"])
    late = next(r for r in rows if (r["method"], r["query_len"]) == ("linear", 65536))
    rows.remove(late)
    rows.append(missing("linear", 65536, "timeout", causal=True, batch=1, threads=2))
    share = 100 * attained("linear", 8192, *FIRST) / 456
    shown = texts(draw(rows))
    assert f"{share:.0f}% of roof at 8k" in shown and "33% of roof" in shown
    assert any("linear at N = 64k: over the time limit" in text for text in shown)


def test_kernels_have_filled_marks_and_bold_names_and_baselines_hollow_marks(whole):
    for axes, setting in zip(whole.axes, SETTINGS, strict=True):
        for method, _, _, _, opened in named_marks(axes, setting):
            assert opened == (method not in OWN), method
        weights = {text.get_text(): text.get_weight() for text in names_in(whole, axes)}
        for method in ("linear", "linear-elu0.1", "lsh-1", "lsh-4"):
            assert weights[method] == "bold"
        for method in ("linear-chunked", "lsh-composed", "sdpa"):
            assert weights[method] == "normal"


def test_a_kernel_method_that_ran_another_implementation_is_a_baseline():
    rows = [one_record("linear", n, *FIRST, implementation="aten/chunked") for n in LENGTHS]
    figure = draw([*rows, *kernels([FIRST], ["lsh-1"])])
    opened = {y: opened for _, y, _, opened in marks(figure.axes[0])}
    assert sum(opened.values()) == 4 and opened[max(opened)]
    assert [text for text in texts(figure) if "%" in text and "roof" in text] == ["33% of roof"]


def test_marks_grow_with_the_length(single):
    for method in ("linear", "lsh-1", "sdpa"):
        sizes = [
            (x if method == "sdpa" else y, size)
            for found, x, y, size, _ in named_marks(single.axes[0], FIRST)
            if found == method
        ]
        ordered = [size for _, size in sorted(sizes)]
        assert ordered == sorted(ordered) and len(set(ordered)) == 4
    shown = texts(single)
    assert {"N =", "512", "2k", "8k", "64k"} <= set(shown)
    assert {"CPU kernels of this project", "baselines of PyTorch operators"} <= set(shown)


def test_names_overlap_no_other_name_and_no_mark(whole):
    assert len(clear_labels(whole)) > 8 * 8
    renderer = FigureCanvasAgg(whole).get_renderer()
    for axes, setting in zip(whole.axes, SETTINGS, strict=True):
        named = names_in(whole, axes)
        said = " ".join(text.get_text() for text in named)
        for method in {method for method, *_ in points(setting)}:
            assert ("(kernel=avx2)" if "avx2" in method else method) in said, method
        centres = [axes.transData.transform((x, y)) for x, y, _, _ in marks(axes)]
        for text in named:
            box = text.get_window_extent(renderer)
            assert not any(box.contains(*centre) for centre in centres), text.get_text()
            x, y = axes.transData.inverted().transform(((box.x0 + box.x1) / 2, box.y0 + 4))
            assert y < ROOF.roof(x, "float32"), "the name is above the roof"


def test_names_are_nearest_to_their_own_mark_or_have_a_leader_to_it(whole):
    leaders = [72 * np.array(line.get_data()).T for line in whole.artists if line.get_alpha()]
    assert leaders
    for axes, setting in zip(whole.axes, SETTINGS, strict=True):
        places = {}
        for method, x, y, _, _ in named_marks(axes, setting):
            # The marks of a method are drawn from the longest length to the shortest.
            places.setdefault(method, []).append(axes.transData.transform((x, y)))
        colours = {look.text_colour: method for method, look in style.styles(METHODS).items()}
        named = names_in(whole, axes)
        heads = [(colours[t.get_color()], t) for t in named if t.get_color() in colours]
        assert {method for method, _ in heads} == set(places)
        for method, text in heads:
            # The box contains the name and the words below it.
            x, y = (72 * v for v in text.get_position())
            words = [t for t in named if t.get_color() not in colours]
            near = [t for t in words if 72 * t.get_position()[0] == pytest.approx(x)]
            boxes = [t.get_window_extent() for t in [text, *near]]
            boxes = [box for box in boxes if -26 < box.y0 - y < 3]
            low, high = min(box.y0 for box in boxes), max(box.y1 for box in boxes)
            box = labels.Box(min(b.x0 for b in boxes), low, max(b.x1 for b in boxes), high)
            tip = places[method][0]
            led = any(
                math.dist(start, tip) < 6 and math.dist(box.nearest(*stop), stop) < 8
                for start, stop in leaders
            )
            away = math.dist(box.nearest(*tip), tip)
            others = [p for name, pile in places.items() if name != method for p in pile]
            rivals = [math.dist(box.nearest(*place), place) for place in others]
            assert led or away < min(rivals), (setting, method)


def test_names_side_by_side_have_a_gap(whole):
    for axes in whole.axes:
        boxes = [(text.get_text(), text.get_window_extent()) for text in names_in(whole, axes)]
        for (a, one_box), (b, other) in combinations(boxes, 2):
            if min(one_box.y1, other.y1) - max(one_box.y0, other.y0) > 4:
                gap = max(one_box.x0, other.x0) - min(one_box.x1, other.x1)
                assert gap > 4, (a, b)


def test_notes_list_what_is_not_drawn_and_in_which_panels(whole, single):
    said = " ".join(texts(whole)).partition("Not drawn: ")[2]
    for part in (
        "linear-einsum: not supported (a, b, e, f)",
        "lsh-composed at N = 64k: over the time limit (b, d, f, h)",
        "sdpa at N = 64k: over the time limit (predicted) (b, d, f, h)",
    ):
        assert part in said
    assert "Not drawn: linear-einsum: not supported." in texts(single)
    rows = kernels([FIRST], ["linear", "sdpa"])
    rows[0] |= {"flops": None}
    rows[4] |= {"min_bytes": 0}
    rows.append(one_record("linear", 512, *FIRST, device="cuda"))
    shown = " ".join(texts(draw(rows)))
    assert "linear at N = 512: rate not recorded" in shown
    assert "sdpa at N = 512: rate is not above 0" in shown
    assert "Not drawn: cases on other devices" in shown
    assert "bfloat16 is drawn under the roof of float32." in texts(whole)
    assert not any("bfloat16" in text for text in texts(single))
    assert "other devices" not in " ".join(texts(whole))


def test_float64_has_its_own_arithmetic_ceiling():
    setting = ("forward", True, "float64")
    slow = {"time_median_ms": cost("linear", 8192, *setting)[0] / 57e6}
    figure = draw([one_record("linear", 8192, *setting, **slow)])
    assert {"228 GFLOP/s · float64 multiply-add", "25% of roof"} <= set(texts(figure))


def test_a_setting_without_measurements_has_an_empty_panel():
    rows = kernels([FIRST], ["linear", "linear-einsum"])
    rows += [missing("linear", n, "unsupported", "skipped", causal=False) for n in LENGTHS]
    figure = draw(rows)
    assert len(figure.axes) == 2 and texts(figure).count("nothing measured") == 1
    assert any("linear: not supported (b)" in text for text in texts(figure))


def test_all_text_has_at_least_seven_points(whole):
    shown = [text for text in whole.findobj() if hasattr(text, "get_fontsize")]
    assert min(text.get_fontsize() for text in shown if text.get_text()) >= 7
    assert whole.get_figwidth() * 72 == pytest.approx(720)


def test_arranged_labels_do_not_overlap_and_are_reproducible():
    frame, nothing = labels.Box(0, 0, 300, 200), np.empty((0, 2))
    same = [labels.Wish((150.0, 100.0), [(60, 12)], nothing)] * 4
    boxes = [box for _, box in labels.arrange(same, nothing, [], frame)]
    assert all(a.overlap(b) == 0 for a, b in combinations(boxes, 2))
    draws = np.random.default_rng(1)
    for _ in range(4):
        tips = [(float(x), float(y)) for x, y in draws.uniform((120, 80), (180, 120), (7, 2))]
        wishes = [
            labels.Wish(tip, [(60, 12)], np.array([t for t in tips if t != tip])) for tip in tips
        ]
        found = labels.arrange(wishes, nothing, [], frame)
        assert found == labels.arrange(wishes, nothing, [], frame)
        boxes = [box for _, box in found]
        assert all(a.overlap(b) == 0 for a, b in combinations(boxes, 2))
        assert all(frame.overlap(box) == pytest.approx(60 * 12) for box in boxes)


@pytest.mark.parametrize(
    ("tips", "wide", "near", "far"),
    [
        # The leader to the wide place passes between the second tip and the near place.
        (((140, 110), (160, 90)), (180, 66), (146, 134), (146, 10)),
        # The leader to the wide place passes through the near place.
        (((100, 100), (121, 80)), (140, 90), (108, 90), (108, 34)),
    ],
)
def test_labels_and_leaders_do_not_cross_leaders(tips, wide, near, far):
    """Only three places are free, and the first label fits into the wide one alone. The second
    label must take the far place, although the near one is better without the first leader."""
    frame, nothing = labels.Box(0, 0, 310, 200), np.empty((0, 2))
    free = [labels.Box(*wide, wide[0] + 84, wide[1] + 22)]
    free += [labels.Box(x, y, x + 26, y + 22) for x, y in (near, far)]
    every = np.stack(np.meshgrid(np.arange(0, 310, 4), np.arange(0, 200, 4)), axis=-1)
    every = every.reshape(-1, 2)
    blocked = every[[not any(box.holds(place[None]) for box in free) for place in every]]
    sizes = ((76, 12), (18, 12))
    wishes = [labels.Wish(tip, [size], nothing) for tip, size in zip(tips, sizes, strict=True)]
    alone = labels.arrange(wishes[1:], blocked, free[:1], frame)
    assert free[1].overlap(alone[0][1]) == 18 * 12, "the near place is the better one"
    found = [box for _, box in labels.arrange(wishes, blocked, [], frame)]
    assert free[0].overlap(found[0]) == 76 * 12 and free[2].overlap(found[1]) == 18 * 12


def test_a_label_takes_the_form_that_fits_and_overlaps_nothing():
    frame, nothing = labels.Box(0, 0, 300, 200), np.empty((0, 2))
    taken = [labels.Box(0, 0, 300, 90), labels.Box(0, 110, 300, 200)]
    for sizes, wanted in (([(60, 30), (60, 12)], 1), ([(60, 12), (50, 12)], 0)):
        wish = labels.Wish((100.0, 100.0), sizes, nothing)
        ((which, box),) = labels.arrange([wish], nothing, taken, frame)
        assert which == wanted and not any(box.overlap(other) for other in taken)


def test_drawing_twice_gives_the_same_bytes(tmp_path):
    folder = folder_of(tmp_path / "set", kernels([FIRST]))
    for out in ("one", "two"):
        assert run(SCRIPT, folder, "--out", tmp_path / out).returncode == 0
    for kind, magic in MAGIC.items():
        first, second = (tmp_path / out / f"cpu-kernels.{kind}" for out in ("one", "two"))
        assert first.read_bytes().startswith(magic)
        assert first.read_bytes() == second.read_bytes(), kind
    other = folder_of(tmp_path / "set", kernels([FIRST]), {"ceilings": FOUND | {"read_gb_s": 30}})
    assert run(SCRIPT, other, "--out", tmp_path / "three").returncode == 0
    pictures = [(tmp_path / out / "cpu-kernels.png").read_bytes() for out in ("one", "three")]
    assert pictures[0] != pictures[1]


def test_every_folder_is_drawn_with_its_own_ceilings(tmp_path):
    slow = {"ceilings": FOUND | {"fma_float32_gflop_s": 300.0}}
    folders = [
        folder_of(tmp_path / "fast", kernels([FIRST], ["linear"])),
        folder_of(tmp_path / "slow", kernels([FIRST], ["linear"]), slow),
    ]
    result = run(SCRIPT, *folders, "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    fast, late = ((tmp_path / "out" / f.name / "cpu-kernels.svg").read_bytes() for f in folders)
    assert fast != late


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        (None, "expected a JSON object with `ceilings`"),
        ("{", "expected a JSON object with `ceilings`"),
        ("\xff", "expected a JSON object with `ceilings`"),
        ("[]", "expected an object in `ceilings`, found null"),
        ({"sweep": "cpu-kernels"}, "expected an object in `ceilings`, found null"),
        ({"ceilings": 456}, "expected an object in `ceilings`, found 456"),
        *(
            ({"ceilings": {**FOUND, name: value}}, f"positive {kind} in `ceilings.{name}`")
            for name, value, kind in (
                ("copy_gb_s", None, "number"), ("read_gb_s", 0, "number"),
                ("fma_float32_gflop_s", "456", "number"), ("copy_gb_s", float("nan"), "number"),
                ("fma_float64_gflop_s", float("inf"), "number"), ("read_gb_s", True, "number"),
                ("threads", 2.0, "integer"), ("threads", 0, "integer"),
            )
        ),
        ({"ceilings": {}}, "positive number in `ceilings.read_gb_s`, found null"),
    ],
)  # fmt: skip
def test_invalid_ceilings_are_an_error_of_one_line(environment, said, tmp_path):
    good = folder_of(tmp_path / "good", kernels([FIRST], ["linear"]))
    folder = folder_of(tmp_path / "set", kernels([FIRST], ["linear"]), environment or "")
    path = folder / "environment.json"
    if environment is None:
        path.unlink()
    elif environment == "\xff":
        path.write_bytes(b"\xff")
    error = refusal(SCRIPT, good, folder, "--out", tmp_path / "out")
    assert f"{path}: " in error and said in error
    assert not (tmp_path / "out").exists()


def test_invalid_records_are_an_error_of_one_line(tmp_path):
    nothing = [missing("linear", 512, "timeout"), measured("sdpa", flops=None)]
    error = refusal(SCRIPT, folder_of(tmp_path / "set", nothing))
    assert "records.jsonl: " in error and "`flops`" in error
    for name, value in (("flops", "many"), ("min_bytes", True), ("time_median_ms", [1]),
                        ("implementation", 3)):  # fmt: skip
        rows = kernels([FIRST], ["linear"])
        rows[1] |= {name: value}
        error = refusal(SCRIPT, folder_of(tmp_path / "set", rows))
        assert "records.jsonl:2: " in error and f"`{name}`" in error
    assert not list(tmp_path.glob("*/*.png"))


def test_other_figures_need_no_ceilings(tmp_path):
    folder = write(tmp_path / "set", kernels([FIRST], ["linear", "sdpa"]))
    assert run(PLOTS / "figure1.py", folder).returncode == 0


# ---------------------------------------------------------------- a GPU

GPU_SCRIPT = PLOTS / "gpu-grid.py"
GPU = {
    "name": "a GPU", "copy_gb_s": 3000.0, "fma_float32_gflop_s": 60e3, "matmul_float64_gflop_s": 60e3,
    "matmul_float32_gflop_s": 400e3, "matmul_float16_gflop_s": 700e3, "matmul_bfloat16_gflop_s": 750e3,
}  # fmt: skip


def gpu_records(dtypes=("float32", "bfloat16")):
    more = {"device": "cuda", "implementation": "kernel/cuda"}
    return [one_record("linear", n, "forward", True, dtype, **more) for dtype in dtypes for n in (4096, 16384)]


def gpu_folder(path, rows, gpu):
    return folder_of(path, rows, {"ceilings": FOUND | {"gpu": gpu}})


def test_kernels_of_a_gpu_are_drawn_under_its_own_ceilings(tmp_path):
    found = ceilings.load_gpu(gpu_folder(tmp_path / "gpu", gpu_records(), GPU))
    assert found.rate("bfloat16") == 750 and found.roof(10, "float32") == 30
    figure = draw(gpu_records() + kernels([FIRST]), found)
    shown = " ".join(texts(figure)).replace("\n", " ")
    assert len(figure.axes) == 2
    assert "400 TFLOP/s · float32 matrix product" in shown and "750 TFLOP/s · bfloat16 matrix product" in shown
    assert "CUDA kernels of this project" in shown and "copy 3 TB/s" in shown and "Attained TFLOP/s" in shown
    assert "cases on other devices" in shown and "under the roof of float32" not in shown
    shares_shown = [text for text in texts(figure) if "of roof" in text]
    expected = []
    for record in gpu_records():
        if record["query_len"] == 16384:
            rate = record["flops"] / record["time_median_ms"] / 1e9
            expected.append(100 * rate / found.roof(record["flops"] / record["min_bytes"], record["dtype"]))
    assert len(shares_shown) == 2 and all(share < 1 or f"{share:.0f}% of roof" in shown for share in expected)


def test_the_script_of_a_gpu_draws_a_folder_and_names_missing_ceilings(tmp_path):
    folder = gpu_folder(tmp_path / "gpu", gpu_records(), GPU)
    done = run(GPU_SCRIPT, folder, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/gpu-grid.svg").exists()
    for gpu, said in (
        ({"unavailable": "no driver"}, "expected the ceilings of a GPU in `ceilings.gpu`: no driver"),
        (None, "expected the ceilings of a GPU in `ceilings.gpu`: found null"),
        (GPU | {"matmul_bfloat16_gflop_s": 0}, "matmul_bfloat16_gflop_s"),
    ):
        wrong = gpu_folder(tmp_path / "wrong", gpu_records(), gpu)
        assert said in refusal(GPU_SCRIPT, wrong, "--out", tmp_path / "out")
