"""Tests of `attnbench paper`: the figures of the paper, its tables beside our numbers, and the errors."""

import csv
import importlib
import json
import re
import struct
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import ROOT, Cli
from matplotlib.colors import to_hex
from test_plots import MAGIC, clear_labels, entry, figure_of, measured, missing, records, sheet, texts, style
from test_verdicts import generation, training, write

grid, images, paper, paper_tables, panel, split = (
    importlib.import_module(f"attnplots.{name}") for name in ("marks.grid", "figures.experiments.images", "published.paper", "published.paper_tables", "marks.panel", "figures.split")
)
# By figure: the ends of its file names with the results of the project.
ENDS = {name: ("",) for name in paper.FIGURES} | {
    "figure5": ("-digits", "-speech-short"),
    "long": tuple(f"-{name}" for name in ("long-text", "long-copy") if (ROOT / f"results/{name}").exists()),
}
# The figures whose results the project has; the data of `long` take hours, and are drawn once they are there.
DRAWN = [name for name in paper.FIGURES if ENDS[name]]
# The widths of a column and of a page of a paper, 3.25 and 6.75 inches, in points.
WIDTHS = {"column": 234, "page": 486}
SVG = "{http://www.w3.org/2000/svg}"
TABLES = [f"table{number}" for number in paper_tables.NUMBERS]


@pytest.fixture
def files_of(build, made_once):
    """A function that draws a figure from the results of the project, once in a run of the tests, and
    returns the folder of its files."""

    def drawn(name):
        def make(folder):
            done = Cli(build / "attnbench", folder=folder)("paper", name, "--out", "out")
            stems = [f"{name}{end}-{width}" for width in WIDTHS for end in ENDS[name]]
            expected = [f"out/{stem}.{kind}" for stem in stems for kind in ("pdf", "svg", "png")]
            assert done.stdout.splitlines() == expected
            (folder / "told.txt").write_text(done.stderr)

        return made_once(f"paper-{name}", make)

    return drawn


def refused(capsys, *words):
    """The error that the command ends with, which is one line."""
    code = entry.run(ROOT, "paper", [str(word) for word in words], "paper.py")
    out, told = capsys.readouterr()
    assert (code, out) == (2, "") and told.count("\n") == 1, told
    return told


# ---------------------------------------------------------------- figures


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_is_written_in_three_formats_at_two_widths(files_of, name):
    folder = files_of(name)
    for width, points in WIDTHS.items():
        for end in ENDS[name]:
            pdf, svg, png = (
                (folder / f"out/{name}{end}-{width}.{kind}").read_bytes() for kind in ("pdf", "svg", "png")
            )
            for kind, content in {"pdf": pdf, "svg": svg, "png": png}.items():
                assert content.startswith(MAGIC[kind])
            (box,) = re.findall(rb"/MediaBox \[ 0 0 (\S+) (\S+) \]", pdf)
            assert float(box[0]) == points
            assert b'width="%gpt"' % points in svg
            assert struct.unpack(">I", png[16:20])[0] == round(points / 72 * 300)


@pytest.mark.parametrize("name", DRAWN)
def test_pdf_files_embed_their_fonts_and_hold_no_pictures_of_curves(files_of, name):
    for path in files_of(name).glob("out/*.pdf"):
        content = path.read_bytes()
        fonts = content.count(b"/Type /FontDescriptor")
        assert fonts > 0 and content.count(b"/FontFile2") == fonts, "each font is in the file, as Type 42"
        assert (b"/Subtype /Image" in content) == (name in ("figure3", "figure4"))


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_says_which_folder_and_which_revision_it_shows(files_of, name):
    folder = files_of(name)
    told = (folder / "told.txt").read_text()
    for end in ENDS[name]:
        assert f"{name}{end} is drawn from {ROOT}/results/" in told
        shown = " ".join(ElementTree.parse(folder / f"out/{name}{end}-page.svg").getroot().itertext())
        (source,) = re.findall(rf"^{name}{end} is drawn from (\S+)", told, re.MULTILINE)
        revision = json.loads((ROOT / source / "environment.json").read_text())["environment"]["revision"]
        assert revision in shown


def fill_of(element):
    return re.search(r"(?<![-\w])fill: (#\w+)", element.get("style", ""))[1]


def looks_in(path):
    """The colours of the names, and the shapes of the marks by their colour, in an SVG file."""
    root = ElementTree.parse(path).getroot()
    colours, shapes = {}, {}
    for group in root.iter(f"{SVG}g"):
        if group.get("id") == "label":
            for text in group.iter(f"{SVG}text"):
                colours.setdefault(text.text.split(" (")[0], set()).add(fill_of(text))
    paths = {path.get("id"): path.get("d") for path in root.iter(f"{SVG}path") if path.get("id")}
    for use in root.iter(f"{SVG}use"):
        if "fill-opacity" in use.get("style", ""):
            continue  # a band
        found = dict(re.findall(r"(?<![-\w])(fill|stroke): (#\w+|none)", use.get("style", "")))
        hollow = found.get("fill") == "#ffffff"
        shape = paths[use.get("{http://www.w3.org/1999/xlink}href").removeprefix("#")]
        shapes.setdefault((found.get("stroke" if hollow else "fill"), hollow), set()).add(shape)
    return colours, shapes


def test_a_method_has_the_same_colour_and_mark_in_every_figure(files_of):
    colours, shapes = {}, {}
    for name in DRAWN:
        for path in files_of(name).glob("out/*.svg"):
            of_names, of_marks = looks_in(path)
            for method, found in of_names.items():
                colours.setdefault(method, set()).update(found)
            for colour, found in of_marks.items():
                shapes.setdefault(colour, set()).update(found)
    known = {name: style.styles([name])[name] for name in style.KNOWN}
    for method in ("softmax", "linear", "lsh-1", "bi-lstm"):
        look = known[method]
        assert colours[method] == {look.text_colour}, method
        assert len(shapes[look.colour, look.hollow]) == 1, method
    # The method and its profile "fast-transformers" both begin with lsh-4 in figure1.
    assert known["lsh-4"].text_colour in colours["lsh-4"]
    assert len(shapes[known["lsh-4"].colour, False]) == 1
    filled = ("softmax", "linear", "lsh-1", "lsh-4")
    assert len({shape for name in filled for shape in shapes[known[name].colour, False]}) == len(filled)


def test_figure_5_names_the_data_that_stand_in_for_the_papers(files_of):
    root = ElementTree.parse(files_of("figure5") / "out/figure5-digits-page.svg").getroot()
    shown = [text.text for text in root.iter(f"{SVG}text")]
    assert "Task images, data digits" in shown
    assert {"Epoch", "Wall time of the updates (s)", "Validation loss"} <= set(shown)


def test_the_figure_of_long_sequences_shows_the_loss_against_time(attnbench, tmp_path):
    of = {"task": "text", "data": "../../data/debian-handbook", "length": 16384}
    points = [training(m, 5 - n / 100 * f, update=n, validation_loss=5 - n / 100 * f, training_s=n / f, **of)
              for m, f in (("sdpa", 0.1), ("linear", 1.0)) for n in (20, 40, 60)]  # fmt: skip
    folder = write(tmp_path / "results", "long-text", "curves.jsonl", points)
    (folder / "environment.json").write_text(json.dumps({"experiment": "long-text", "environment": {}}))
    done = attnbench("paper", "long", "--results", "results", "--out", "out", "--width", "page")
    assert done.stdout.splitlines() == [f"out/long-long-text-page.{kind}" for kind in ("pdf", "svg", "png")]
    shown = [text.text for text in ElementTree.parse(tmp_path / "out/long-long-text-page.svg").getroot().iter(f"{SVG}text")]
    assert {"Task text, data debian-handbook", "Wall time of the updates (s)", "Validation loss", "sdpa", "linear"} <= set(shown)


def test_figures_3_and_4_name_the_models(files_of):
    for name, title in (("figure3", "Unconditional samples"), ("figure4", "Completions of occluded images")):
        shown = " ".join(ElementTree.parse(files_of(name) / f"out/{name}-page.svg").getroot().itertext())
        assert "Models of `attnbench train digits`." in shown and f"{title} (8 × 8 pixels)" in shown


def test_one_width_is_drawn_if_it_is_asked_for(attnbench, tmp_path):
    folder = tmp_path / "results/digits/machine"
    folder.mkdir(parents=True)
    np.save(folder / "samples-linear.npy", np.zeros((2, 8, 8), np.uint8))
    done = attnbench("paper", "figure3", "--results", "results", "--out", "out", "--width", "column")
    assert done.stdout.splitlines() == [f"out/figure3-column.{kind}" for kind in ("pdf", "svg", "png")]
    assert len(list((tmp_path / "out").iterdir())) == 3


def test_a_method_with_options_looks_like_the_one_without_unless_both_are_there():
    plain = style.styles(["lsh-4"])["lsh-4"]
    for name in ("lsh-4:chunk=8", "lsh:rounds=4,chunk=16"):
        assert style.styles(["softmax", name])[name] == plain
        both = style.styles(["lsh-4", name])
        assert both["lsh-4"] == plain and both[name].colour != plain.colour
    two = style.styles(["lsh-4:chunk=8", "lsh-4:chunk=16"])
    assert len({look.colour for look in two.values()}) == 2


def test_texts_of_a_linear_axis_are_evenly_spaced(tmp_path):
    values = [0, 500, 1000, 1500, 2000, 2500]
    for wide, kept in ((400, values), (110, [0, 1000, 2000]), (50, [0, 1500])):
        with sheet.context("page"):
            figure = sheet.figure()
            sheet.size(figure, 100)
            frame = panel.Box(30, 20, 30 + wide, 90)
            x = grid.Scale((0, 2600), (values, [f"{value:,}" for value in values]), logarithmic=False)
            axes = panel.empty_axes(figure, frame, x, grid.Scale((0, 1), ([], []), logarithmic=False))
            grid._thin_ticks(figure, axes, x)
        shown = [label.get_text() for label in axes.get_xticklabels()]
        assert [value for value, text in zip(values, shown, strict=True) if text] == kept, wide


# ---------------------------------------------------------------- memory


def split_record(method="linear", n=512, **sizes):
    memory = {"input_bytes": 400, "output_bytes": 300, "state_bytes": None, "saved_bytes": 0, "peak_allocated_bytes": 1000}
    return measured(method, n, batch=2, **(memory | sizes))


@pytest.mark.parametrize("source", ["figure1", "decode", "methods", "rivals"])
def test_the_parts_of_each_peak_sum_to_it(source):
    folder = paper.folder_of(ROOT / "results", source, "records.jsonl")
    shown = [r for r in records.load(folder) if r["outcome"] == "measured" and r.get("peak_allocated_bytes")]
    assert shown
    for record in shown:
        parts = split.parts_of(record)
        assert sum(parts.values()) == pytest.approx(record["peak_allocated_bytes"] / record["batch"])
        assert min(parts.values()) >= 0
        # Inputs and output are there at the end of a call, so they count in full.
        for name in ("input_bytes", "output_bytes"):
            assert parts[name] == record[name] / record["batch"]


def test_a_part_counts_as_far_as_the_peak_has_room_for_it():
    assert split.parts_of(split_record(saved_bytes=100)) == {
        "input_bytes": 200, "output_bytes": 150, "state_bytes": 0, "saved_bytes": 50, "workspace": 100,
    }  # fmt: skip
    parts = split.parts_of(split_record(saved_bytes=900))
    assert (parts["saved_bytes"], parts["workspace"]) == (150, 0)
    assert split.parts_of(split_record(state_bytes=300))["state_bytes"] == 150


def drawn_split(rows, width="page"):
    with sheet.context(width):
        figure = figure_of(split.describe(records.Records(rows)))
        figure.draw_without_rendering()
    return figure


@pytest.mark.parametrize("width", WIDTHS)
def test_bars_show_shares_of_the_peak_at_the_longest_length_of_most_methods(width):
    rows = [split_record(method, n) for method in ("linear", "softmax") for n in (512, 1024)]
    rows += [split_record("linear", 2048), missing("lsh-1", 1024, "oom")]
    figure = drawn_split(rows, width)
    shown = texts(figure)
    assert "Forward · N = 1,024" in shown and shown.count("500 B") == 2
    assert "No bar in Forward, N = 1,024: lsh-1 (out of memory)." in " ".join(shown)
    assert clear_labels(figure) == ["linear", "softmax"]
    (axes,) = figure.axes
    bars = [(bar.get_gid(), round(bar.get_width(), 3), to_hex(bar.get_facecolor())) for bar in axes.patches]
    shares = {"input_bytes": 0.4, "output_bytes": 0.3, "state_bytes": 0.0, "saved_bytes": 0.0, "workspace": 0.3}
    assert bars == 2 * [(name, share, split.PARTS[name].colour) for name, share in shares.items()]
    legend = [text.get_text() for text in figure.texts if text.get_gid() == "part"]
    assert legend == ["inputs", "output", "workspace"], "parts that no bar has are left out"


def test_sizes_fit_into_their_parts():
    figure = drawn_split([split_record(peak_allocated_bytes=704), split_record("softmax")])
    sizes = [text.get_text() for text in figure.axes[0].texts if text.get_gid() == "size"]
    assert sizes == ["200 B", "150 B", "150 B", "200 B", "150 B"], "2 B have no room in a bar"


def test_parts_have_colours_of_their_own_that_differ_in_grey():
    colours = [part.colour for part in split.PARTS.values()]
    assert not set(colours) & {tone for tones in style.FAMILIES.values() for tone in tones}
    light = [116 * style.luminance(colour) ** (1 / 3) - 16 for colour in colours]
    assert min(-np.diff(light)) > 14


# ---------------------------------------------------------------- tables


def cells(line):
    return [cell.strip() for cell in line.strip("|\n").split(" | ")]


def markdown_table(text):
    """The head and the rows of the table in a text, whose lines all have the same length."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1, "the columns line up"
    return cells(lines[0]), [cells(line) for line in lines[2:]]


def published(number):
    """The numbers of a table as the files have them: by data set, method, quantity and device."""
    found = {}
    for path in (ROOT / "experiments/published").glob("*.csv"):
        for line in csv.DictReader(path.open(encoding="utf-8")):
            if line["table"] == number:
                for name in ("bits_per_dim", "images_per_s", "s_per_image", "phone_error_rate", "epoch_s"):
                    if line.get(name):
                        found[line["dataset"], line["method"], name, line["device"]] = line[name]
    return found


HEADS = {
    "bits_per_dim": "bits/dim", "images_per_s": "images/s", "phone_error_rate": "phone error rate", "epoch_s": "s/epoch",
}  # fmt: skip
ON = {"cpu": "s/image on the CPU", "cuda": "s/image on the GPU"}


@pytest.mark.parametrize("number", paper_tables.NUMBERS)
def test_a_table_has_every_number_of_the_paper(number):
    text = paper_tables.paper_table(number, ROOT / "results", ROOT).text("markdown")
    assert text.startswith(f"Table {number} of Transformers are RNNs (arXiv 2006.16236)")
    head, rows = markdown_table(text)
    shown = {}
    for row in rows:
        for name, cell in zip(head[2:], row[2:], strict=True):
            shown[row[0], row[1], name] = cell
    wanted = published(number)
    assert len(wanted) >= 4
    for (dataset, method, quantity, device), printed in wanted.items():
        column = ON[device] if quantity == "s_per_image" else HEADS[quantity]
        if quantity == "phone_error_rate":
            printed = f"{float(printed):.2%}"
        assert shown[dataset, method, f"{column}, paper"] == printed
    assert len([name for name in head if name.endswith(", paper")]) * len(rows) == len(wanted)
    ours = {cell for key, cell in shown.items() if key[2].endswith(", ours")}
    for letter in re.findall(r"\[(\w+)\]", " ".join(ours)):
        assert f"\n- [{letter}]: " in text


def test_the_papers_digits_are_kept():
    text = paper_tables.paper_table("5", ROOT / "results", ROOT).text("markdown")
    (row,) = [cells(line) for line in text.splitlines() if line.startswith("| cifar10 | softmax ")]
    assert row[2] == "8651.4" and row[4:] == ["300.1", "–"]
    assert "3.40" in paper_tables.paper_table("2", ROOT / "results", ROOT).text("markdown")


@pytest.fixture
def made(tmp_path):
    """A folder of results with numbers for tables 1, 3 and 5."""
    root = tmp_path / "results"
    lines = [generation("linear", 0.5), generation("softmax", 4.0, extrapolated=True), generation("linear", 0.25, "cuda")]
    write(root, "speed", "generations.jsonl", lines)
    lines = [training("softmax", value, seed) for seed, value in enumerate((0.7, 0.9, 0.8))]
    lines.append(training("linear", 1.5, data="../data/fashion-mnist"))
    lines.append(training("linear", 9.0, task="speech", data="", epoch_s=123456.0))
    write(root, "trained", "trainings.jsonl", lines)
    name = {"environment": {"cpu_model": "Some_CPU 100 % & #1 ± {x} 中", "revision": "0123456789ab"}}
    (root / "speed/machine/environment.json").write_text(json.dumps(name))
    return root


def test_our_numbers_are_beside_those_of_the_paper_with_what_they_were_measured_with(attnbench, made):
    done = attnbench("paper", "table5", "--results", made)
    _, rows = markdown_table(done.stdout)
    assert ["mnist", "linear", "5.5", "0.5 [b]", "7.3", "0.25 [c]"] in rows
    assert ["mnist", "softmax", "72.6", "4 [a]", "10.2", "–"] in rows
    assert "- [a]: cpu, batch 1, 2 threads, extrapolated (speed/machine; Some_CPU" in done.stdout
    assert "- [c]: cuda, batch 1 (speed/machine; " in done.stdout
    assert "- –: not measured; to measure: `attnbench latency mnist` on a GPU, `attnbench latency mnist`" in done.stdout
    _, rows = markdown_table(paper_tables.paper_table("1", made, ROOT).text("markdown"))
    assert rows[0][:4] == ["mnist", "softmax", "0.621", "0.800 (0.700–0.900) [a]"], "median and range of the seeds"
    assert "1.500 [" in rows[3][3]
    text = paper_tables.paper_table("1", made, ROOT).text("markdown")
    assert "]: fashion-mnist in place of mnist, cpu (trained/machine)." in text
    assert "[a]: cpu, median and range of 3 seeds (trained/machine)." in text
    assert "123500 [" in paper_tables.paper_table("3", made, ROOT).text("markdown"), "no exponents"


def braces_balance(text):
    depth = 0
    for character in re.sub(r"\\[{}]", "", text):
        depth += (character == "{") - (character == "}")
        assert depth >= 0
    return depth == 0


def check_latex(text):
    """Checks what pdflatex would stumble over, and returns the rows of the table."""
    lines = text.splitlines()
    assert braces_balance(text)
    begun, ended = (re.findall(rf"\\{word}\{{(\w+)\}}", text) for word in ("begin", "end"))
    assert (begun, ended) == (["table", "tabular"], ["tabular", "table"])
    for rule in ("toprule", "midrule", "bottomrule"):
        assert lines.count(f"\\{rule}") == 1
    assert text.count("$") % 2 == 0
    (columns,) = re.findall(r"\\begin\{tabular\}\{([lr]+)\}", text)
    body = text[text.index("\\midrule") : text.index("\\bottomrule")].splitlines()[1:]
    for line in body:
        assert line.endswith(r" \\") and len(re.findall(r"(?<!\\)&", line)) == len(columns) - 1
    outside = "\n".join(line for line in lines[1:] if line not in body and " & " not in line)
    for text_of in (outside, *body):
        assert not re.search(r"(?<!\\)[#%_^~]", re.sub(r"\\label\{[^}]*\}", "", text_of)), text_of
    assert all(ord(character) < 0x180 for character in text), "pdflatex knows every character"
    commands = set(re.findall(r"\\([a-zA-Z]+)", text))
    assert commands <= {
        "begin", "bottomrule", "caption", "cdot", "centering", "cmidrule", "end", "footnotesize", "label", "midrule",
        "multicolumn", "par", "pm", "textbackslash", "textsuperscript", "texttt", "toprule", "usepackage",
    }  # fmt: skip
    return [line.removesuffix(r" \\").split(" & ") for line in body]


@pytest.mark.parametrize("number", paper_tables.NUMBERS)
def test_latex_has_the_same_cells_as_markdown(number):
    table = paper_tables.paper_table(number, ROOT / "results", ROOT)
    _, rows = markdown_table(table.text("markdown"))
    plain = [
        [re.sub(r"\\textsuperscript\{(\w+)\}", r" [\1]", cell).replace("\\%", "%").replace("--", "–") for cell in row]
        for row in check_latex(table.text("latex"))
    ]
    assert plain == rows


def test_latex_escapes_what_comes_from_files(attnbench, made):
    text = attnbench("paper", "table5", "--results", made, "--format", "latex").stdout
    check_latex(text)
    assert r"Some\_CPU 100 \% \& \#1 $\pm$ \{x\} U+4E2D" in text
    assert r"to measure: \texttt{attnbench latency mnist} on a GPU" in text


def test_every_special_character_is_written_so_that_latex_prints_it():
    assert paper_tables.escaped("a\\b ~ ^ < > | \" − × ÷ ≥ ≤ µ é `x_y`") == (
        r"a\textbackslash{}b \textasciitilde{} \textasciicircum{} \textless{} \textgreater{} \textbar{} '' $-$ $\times$ $\div$ "
        r"$\geq$ $\leq$ $\mu$ é \texttt{x\_y}"
    )
    assert paper_tables.escaped("a`b") == r"a\textquoteleft{}b"
    for character, text in paper_tables.LATEX.items():
        assert braces_balance(text) and text != character


def test_notes_have_letters_beyond_z():
    assert [paper_tables._letters(k) for k in (0, 25, 26, 27, 52)] == ["a", "z", "aa", "ab", "ba"]


# ---------------------------------------------------------------- break-even


def both_devices(folder):
    rows = []
    for n in (256, 1024, 4096, 16384):
        more = {"protocol": "decode", "causal": True, "batch": 1, "graph": False}
        on_gpu = more | {"device": "cuda", "gpu": "Some_GPU"}
        rows += [measured("linear", n, 0.01 * n / 256, **more), measured("linear", n, 0.05, **on_gpu)]
        rows.append(measured("linear", n, 0.001, **(on_gpu | {"graph": True})))
        rows += [measured("softmax", n, 0.001 * n / 256, **more), measured("softmax", n, 0.5, **on_gpu)]
        noisy = {"time_ci_low_ms": 0.001, "time_ci_high_ms": 9.0}
        rows += [measured("favor", n, 0.1, **more, **noisy), measured("favor", n, 0.1, **on_gpu, **noisy)]
    folder.mkdir(parents=True)
    (folder / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_break_even_says_from_which_length_on_the_gpu_is_faster(attnbench, tmp_path):
    both_devices(tmp_path / "results/latency/machine")
    done = attnbench("paper", "break-even", "--results", "results")
    head, rows = markdown_table(done.stdout)
    assert head == ["results", "protocol", "setting", "method", "faster"]
    start = ["latency/machine", "Decoding"]
    linear, graph, softmax, favor = rows
    assert linear[:4] == [*start, "float32, causal", "linear"]
    assert re.fullmatch(r"GPU from N = 1,2\d\d \(1,\d{3} to 1,\d{3}\)", linear[4])
    assert graph == [*start, "float32, causal, in a CUDA graph", "linear", "GPU at every N from 256 to 16,384"]
    assert softmax == [*start, "float32, causal", "softmax", "CPU at every N from 256 to 16,384"]
    assert favor[3] == "favor" and favor[4].startswith("cannot tell: ")
    assert "latency/machine on Some(R) CPU @ 2.00GHz and Some_GPU." in done.stdout
    check_latex(attnbench("paper", "break-even", "--results", "results", "--format", "latex").stdout)


# ---------------------------------------------------------------- choice of folders and errors


def test_of_several_machines_the_one_with_the_most_measured_cases_is_drawn(tmp_path):
    counts = {"a-machine": 2, "b-machine": 3, "c-machine": 3}
    for name, count in counts.items():
        folder = tmp_path / "results/figure1" / name
        folder.mkdir(parents=True)
        rows = [measured(n=512 + k) for k in range(count)] + [missing("linear", 600 + k, "oom") for k in range(5 - count)]
        (folder / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "results/figure1/a-machine/environment.json").write_text(json.dumps({"sweep": "figure1"}))
    root = tmp_path / "results"
    assert paper.folder_of(root, "figure1", "records.jsonl") == root / "figure1/b-machine"
    assert paper.sources_of("figure1", root / "figure1/a-machine") == {"": [root / "figure1/a-machine"]}
    assert paper.folder_of(root, "methods", "records.jsonl") is None


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("figure1", "`attnbench sweep figure1`"),
        ("figure2", "`attnbench train copy-task` or `attnbench train copy-task-short`"),
        ("figure3", "samples-*.npy of `attnbench train mnist` and `attnbench generate results/mnist/MACHINE`"),
        ("figure4", "completions-*.npy of `attnbench train cifar10`"),
        ("figure5", "`attnbench train fashion-short` or `attnbench train digits` or `attnbench train speech` or `attnbench train speech-short`"),
        ("long", "curves.jsonl of `attnbench train long-text` or `attnbench train long-copy`"),
        ("memory", "`attnbench sweep figure1` or `attnbench sweep methods`"),
        ("table1", "`attnbench train fashion-short` or `attnbench throughput mnist`"),
        ("table2", "`attnbench train cifar10` or `attnbench throughput cifar10`"),
        ("table3", "`attnbench train speech-short` or `attnbench train speech-epoch`"),
        ("table4", "`attnbench throughput mnist` or `attnbench throughput cifar10`"),
        ("table5", "`attnbench latency mnist`"),
        ("break-even", "`attnbench sweep latency`"),
    ],
)
def test_missing_results_are_an_error_that_says_what_measures_them(capsys, tmp_path, name, needs):
    (tmp_path / "results").mkdir()
    told = refused(capsys, name, "--results", tmp_path / "results", "--out", tmp_path / "out")
    assert f"{tmp_path}/results: " in told and needs in told and "found none" in told
    assert not (tmp_path / "out").exists()


def test_the_names_of_the_script_are_those_of_the_program(attnbench):
    said = attnbench("paper", "figure6", code=2).stderr
    assert f"expected one of {', '.join(paper.NAMES)}" in said
    assert set(paper.NAMES) == {*paper.FIGURES, *TABLES, "break-even"}


def test_results_of_the_cpu_alone_have_no_break_even(attnbench):
    told = attnbench("paper", "break-even", code=2).stderr
    assert "cases that were measured on a CPU and on a GPU" in told and "`attnbench sweep latency`" in told


def test_wrong_words_are_refused(attnbench, capsys, tmp_path):
    assert "expected one of figure1, figure2" in attnbench("paper", "figure6", code=2).stderr
    told = attnbench("paper", "figure1", "--width", "poster", code=2).stderr
    assert "--width = 'poster', expected one of column, page" in told
    assert "no such folder" in refused(capsys, "table1", "--results", tmp_path / "nowhere")
    folder = tmp_path / "results/figure1/machine"
    folder.mkdir(parents=True)
    (folder / "records.jsonl").write_text('{"method": 3}\n')
    assert "records.jsonl:1: " in refused(capsys, "memory", "--results", tmp_path / "results")
