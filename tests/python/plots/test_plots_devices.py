"""Tests of the figures of latency and of the speed of images, with a GPU and without one."""

import importlib
import json

import pytest
from test_plots import MAGIC, clear_labels, files, measured, missing, records, refusal, run, sheet, texts
from matplotlib.colors import same_color  # isort: skip

image_speed, decode = (importlib.import_module(f"attnplots.{name}") for name in ("figures.experiments.image_speed", "figures.decode"))

LENGTHS = (16, 256, 4096)


def tokens(device="cpu", graph=False, ms=1.0, methods=("linear", "stateful-softmax")):
    more = {"protocol": "decode", "causal": True, "device": device, "graph": graph, "batch": 1}
    if device == "cuda":
        more["gpu"] = "Some GPU"
    return [measured(m, n, ms * k, **more) for k, m in enumerate(methods, 1) for n in LENGTHS]


def absent(graph=False, device="cuda"):
    more = {"protocol": "decode", "device": device, "graph": graph}
    return [missing(m, n, "unsupported", "skipped", **more) for m in ("linear", "stateful-softmax") for n in LENGTHS]


def drawn(rows, describe=decode.describe_devices):
    with sheet.context():
        figure = files.draw(describe(records.Records(rows)))
        figure.draw_without_rendering()
    return figure


def test_each_method_has_a_panel_with_a_curve_for_each_device():
    figure = drawn(tokens() + absent(True, "cpu") + tokens("cuda", ms=0.1) + tokens("cuda", True, 0.05))
    assert {"linear", "stateful-softmax"} <= set(texts(figure))
    assert len(figure.axes) == 2
    said = clear_labels(figure)
    for name in ("CPU", "GPU", "GPU, CUDA graph"):
        assert said.count(name) == 2, name
    looks = [decode.DEVICES[name] for name in decode.DEVICES]
    assert len({(look.marker, look.dash) for look in looks}) == 3, "they can be told apart in grey"
    assert any("Some GPU" in text for text in texts(figure))
    assert "Without a point" not in " ".join(texts(figure)), "graphs exist on the GPU alone"


def test_the_figure_of_latency_works_with_the_cpu_alone_and_says_so():
    figure = drawn(tokens() + absent() + absent(True))
    assert set(clear_labels(figure)) == {"CPU"}
    assert "Nothing was measured on cuda, where all 12 cases could not run." in " ".join(texts(figure))


def test_other_axes_have_panels_of_their_own():
    rows = tokens() + [r | {"dtype": "bfloat16"} for r in tokens()]
    assert {"linear · bfloat16", "linear · float32"} <= set(texts(drawn(rows)))


def image(method, device="cpu", batch=1, seconds=2.0, process=1, **other):
    line = {
        "dataset": "mnist", "method": method, "device": device, "batch": batch, "threads": 2,
        "outcome": "measured", "s_per_image": seconds, "images_per_s": batch / seconds,
        "process": process, "schema_version": 6, "finished_at": "2026-11-23T10:00:00Z",
    }  # fmt: skip
    return line | other


def folder_of(path, lines):
    path.mkdir(parents=True, exist_ok=True)
    (path / "generations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    environment = {"environment": {"cpu_model": "Some(R) CPU", "torch_version": "2.11.0", "revision": "0123456789ab"}}
    (path / "environment.json").write_text(json.dumps(environment))
    return path


def points(axes, gid):
    """The values and the markers of the points that were measured or published."""
    return sorted(
        (float(line.get_xdata()[0]), line.get_marker())
        for line in axes.get_lines() if line.get_gid() == gid
    )  # fmt: skip


def figure_of(folder):
    with sheet.context():
        figure = files.draw(image_speed.describe(image_speed.load(folder)))
        figure.draw_without_rendering()
    return figure


def test_images_are_beside_published_values_on_both_devices(tmp_path):
    lines = [image("linear", seconds=s, process=k) for k, s in enumerate((1.0, 3.0, 2.0))]
    lines += [image("linear", batch=8, seconds=4.0), image("linear", "cuda", seconds=0.5)]
    lines += [image("softmax", seconds=9.0, extrapolated=True)]
    figure = figure_of(folder_of(tmp_path, lines))
    time, rate = figure.axes
    assert points(time, "ours") == [(0.5, "s"), (2.0, "o"), (9.0, "o")]
    assert points(rate, "ours") == [(pytest.approx(1 / 9), "o"), (2.0, "o"), (2.0, "s")]
    published = points(time, "published")
    assert (5.5, "o") in published and (7.3, "s") in published and len(published) == 10
    assert (142.8, "s") in points(rate, "published")
    open_marks = [line for line in time.get_lines() if line.get_gid() == "published"]
    assert all(same_color(line.get_markerfacecolor(), "white") for line in open_marks)
    shown = " ".join(texts(figure))
    assert "arXiv 2006.16236, Table 5" in shown and "Nothing was measured on a GPU" not in shown
    assert "1 of 4 times is extrapolated" in shown
    assert "Some · torch 2.11.0 · 0123456789ab · 2026-11-23" in shown
    ranges = [s for part in time.collections for s in part.get_segments()]
    assert any([p[0] for p in s] == [1.0, 3.0] for s in ranges), "the range of the processes"


def test_images_of_the_cpu_alone_are_drawn_and_the_note_says_so(tmp_path):
    skipped = {"dataset": "mnist", "method": "linear", "device": "cuda", "batch": 1, "outcome": "skipped"}
    figure = figure_of(folder_of(tmp_path, [image("linear"), skipped]))
    assert "Nothing was measured on a GPU." in " ".join(texts(figure))


@pytest.mark.parametrize("width", ["column", "page"])
def test_the_script_draws_a_folder_of_generations(tmp_path, width):
    folder = folder_of(tmp_path / "set", [image("linear")])
    result = run("image-speed", folder, "--width", width)
    assert result.returncode == 0, result.stderr
    for kind, magic in MAGIC.items():
        assert (folder / f"image-speed.{kind}").read_bytes().startswith(magic)
    skipped = image("linear", outcome="skipped")
    assert "expected at least one measured line" in refusal("image-speed", folder_of(tmp_path / "no", [skipped]))
