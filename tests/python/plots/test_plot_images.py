"""Tests of the figure `images`: the grids of images that it draws, and the arrays that it refuses."""

import importlib

import numpy as np
import pytest
from test_plots import MAGIC, figure_of, refusal, run, sheet, texts

images = importlib.import_module("attnplots.figures.experiments.images")
SCRIPT = "images"


def samples(count, side=8, colours=False):
    """Bytes that differ from image to image."""
    shape = (count, side, side, 3) if colours else (count, side, side)
    return np.random.default_rng(count).integers(0, 256, shape, np.uint8)


def completions(count, side=8):
    return np.stack([samples(count + k, side)[:count] for k in range(3)], axis=1)


def save(folder, **arrays):
    """Writes arrays by the names of their files, with "_" for "-"."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name.replace('_', '-')}.npy", array)
    return folder


def drawn(folder):
    with sheet.context():
        figure = figure_of(images.describe(images.load(folder), {}))
        figure.draw_without_rendering()
    return figure


def shown(figure):
    """The arrays of the images, from the top left to the bottom right."""
    placed = [axes for axes in figure.axes if axes.images]
    placed.sort(key=lambda axes: (-round(axes.get_position().y0, 6), axes.get_position().x0))
    return [np.asarray(axes.images[0].get_array()) for axes in placed]


def test_samples_fill_rows_of_sixteen_for_each_method(tmp_path):
    figure = drawn(save(tmp_path, samples_softmax=samples(20), samples_linear=samples(3)))
    found = shown(figure)
    assert len(found) == 23
    for image, expected in zip(found, [*samples(20), *samples(3)], strict=True):
        assert np.array_equal(image, expected)
    rows = [round(axes.get_position().y0, 6) for axes in figure.axes]
    assert [rows.count(y) for y in sorted(set(rows), reverse=True)] == [16, 4, 3]
    assert {"softmax", "linear", "Unconditional samples (8 × 8 pixels)"} <= set(texts(figure))


def test_at_most_four_rows_of_a_method_are_shown(tmp_path):
    assert len(shown(drawn(save(tmp_path, samples_linear=samples(100))))) == 32


def test_completions_are_rows_of_occluded_completed_and_original(tmp_path):
    array = completions(5)
    figure = drawn(save(tmp_path, completions_linear=array))
    for image, expected in zip(shown(figure), array.swapaxes(0, 1).reshape(15, 8, 8), strict=True):
        assert np.array_equal(image, expected)
    assert {"occluded", "completed", "original"} <= set(texts(figure))


def labelled(figure):
    """The names of methods, each with its place from the top."""
    names = [text for text in figure.texts if text.get_gid() == "label"]
    return {text.get_text(): figure.get_figheight() * 72 - 72 * text.get_position()[1] for text in names}


def test_completions_of_the_same_images_have_a_row_for_each_method_with_its_name(tmp_path):
    same = completions(3)
    other = same.copy()
    other[:, 1] = samples(3, 8)
    figure = drawn(save(tmp_path, completions_linear=same, completions_softmax=other))
    expected = [*same[:, 0], *other[:, 1], *same[:, 1], *same[:, 2]]
    assert all(np.array_equal(a, b) for a, b in zip(shown(figure), expected, strict=True)), "occluded, softmax, linear, original"
    assert [texts(figure).count(words) for words in ("occluded", "original", "completed", "softmax", "linear")] == [1, 1, 0, 1, 1]
    rows = sorted({round(72 * figure.get_figheight() * (1 - axes.get_position().y1), 1) for axes in figure.axes})
    names = labelled(figure)
    for name, top in zip(("softmax", "linear"), rows[1:3], strict=True):
        assert top < names[name] < top + 40, f"{name} is beside its row"


def test_completions_of_different_images_are_shown_with_their_originals(tmp_path):
    figure = drawn(save(tmp_path, completions_linear=completions(3), completions_softmax=completions(4)))
    assert len(shown(figure)) == 3 * 3 + 3 * 4
    assert [texts(figure).count(words) for words in ("occluded", "completed", "original")] == [2, 2, 2]


def test_a_line_joins_the_name_of_a_method_to_all_of_its_rows(tmp_path):
    figure = drawn(save(tmp_path, samples_softmax=samples(40), samples_linear=samples(3)))
    brackets = [72 * line.get_xydata() for line in figure.artists if line.get_gid() == "bracket"]
    assert len(brackets) == 2
    (low, high) = sorted(brackets[0][:, 1])
    height = 72 * figure.get_figheight()
    rows = sorted({axes.get_position().y0 * height for axes in figure.axes})
    assert low == pytest.approx(rows[1]) and high > rows[2], "from the last row of softmax to its first"
    figure = drawn(save(tmp_path / "long", **{"samples_lsh-4-of-a-long-name": samples(3)}))
    box = figure.bbox
    assert all(text.get_window_extent().x1 <= min(a.get_window_extent().x0 for a in figure.axes) and text.get_window_extent().x0 >= box.x0
               for text in figure.texts if text.get_gid() == "label")  # fmt: skip


def test_small_images_are_shown_large_and_with_their_pixels(tmp_path):
    figure = drawn(save(tmp_path, samples_linear=samples(2)))
    for axes in figure.axes:
        assert axes.images[0].get_interpolation() == "nearest"
        assert axes.images[0].get_clim() == (0, 255), "the brightness does not depend on the image"
        box = axes.get_window_extent()
        points = 72 / figure.dpi
        assert 40 <= box.width * points <= 60 and box.width == pytest.approx(box.height)


def test_colours_stay(tmp_path):
    array = samples(2, 32, colours=True)
    assert np.array_equal(shown(drawn(save(tmp_path, samples_linear=array)))[1], array[1])


def test_images_of_several_sizes_share_a_figure(tmp_path):
    figure = drawn(save(tmp_path, samples_linear=samples(2), samples_softmax=samples(2, 28)))
    assert "Unconditional samples" in texts(figure)
    boxes = [axes.get_window_extent() for axes in figure.axes]
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)


def test_the_script_writes_three_files_beside_the_arrays(tmp_path):
    folder = save(tmp_path, samples_linear=samples(2), completions_linear=completions(2))
    result = run(SCRIPT, folder)
    assert result.returncode == 0, result.stderr
    for kind, magic in MAGIC.items():
        assert (folder / f"images.{kind}").read_bytes().startswith(magic)


@pytest.mark.parametrize(
    ("name", "array", "said"),
    [
        ("samples-linear", samples(2).astype(float), "expected bytes (uint8), found float64"),
        ("samples-linear", samples(2)[0], "expected the shape [n, H, W] or [n, H, W, 3], found [8, 8]"),
        ("samples-linear", samples(2)[:0], "found [0, 8, 8]"),
        ("samples-linear", np.zeros((2, 8, 8, 4), np.uint8), "found [2, 8, 8, 4]"),
        ("completions-linear", samples(2), "expected the shape [n, 3, H, W]"),
        ("completions-linear", completions(2)[:, :2], "found [2, 2, 8, 8]"),
        ("other", samples(2), "no images; expected files samples-METHOD.npy, completions-METHOD.npy"),
    ],
)  # fmt: skip
def test_other_arrays_are_refused_by_name(tmp_path, name, array, said):
    np.save(tmp_path / f"{name}.npy", array)
    error = refusal(SCRIPT, tmp_path)
    assert said in error and (name == "other" or f"{name}.npy" in error)


def test_a_file_that_is_no_array_or_holds_objects_is_refused(tmp_path):
    (tmp_path / "samples-linear.npy").write_bytes(b"\x93NUMPY nonsense")
    assert "samples-linear.npy: expected an array" in refusal(SCRIPT, tmp_path)
    np.save(tmp_path / "samples-linear.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert "samples-linear.npy: expected an array" in refusal(SCRIPT, tmp_path)
