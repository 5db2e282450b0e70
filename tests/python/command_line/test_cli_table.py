"""Tests of `attnbench table`, which shows records as text, Markdown, CSV and JSON."""

import csv
import io
import json
import os
import re

import pytest
from conftest import ROOT, Cli, records_in, strict_json, words, write_sweep


@pytest.fixture(scope="module")
def template(build, canned_worker, tmp_path_factory):
    """The records of a sweep, from which tests make other records."""
    folder = tmp_path_factory.mktemp("template")
    attnbench = Cli(build / "attnbench", canned_worker, folder)
    attnbench("sweep", write_sweep(folder / "s.toml"), "--out", "out")
    return records_in(folder / "out")


@pytest.fixture
def folder(tmp_path, template):
    """Writes a folder of the given records (by default the template), or with the given text as its
    records.jsonl."""
    out = tmp_path / "out"
    out.mkdir()

    def write(records=template, log=None):
        lines = [json.dumps(record) + "\n" for record in records]
        (out / "records.jsonl").write_text("".join(lines) if log is None else log, "utf-8")
        return out

    return write


def failed(template, **changes):
    """A record of the template's first case that failed, with these changes."""
    times = {name: None for name in template[0] if name.startswith(("time_", "peak_", "samples"))}
    reason = {"outcome": "failed", "failure_kind": "error", "reason": "no such kernel"}
    budget = {"time_budget_s": template[0]["time_budget_s"]}
    return template[0] | times | reason | budget | changes


def rows_of(text):
    return list(csv.reader(io.StringIO(text, newline="")))


def markdown_cells(line):
    assert line.startswith("| ") and line.endswith(" |")
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def table_of(text):
    """The lines of a table from its header on, without what is above it and the sentences below it."""
    lines = text.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("─")) - 1
    return lines[begin : next((i for i, line in enumerate(lines) if line.startswith("±: how")), None)]


def test_text_has_aligned_columns_with_units(attnbench, folder, template):
    changed = [record | {"implementation": f"stand-in {i}", "max_rel_error": (i + 1) * 1e-8} for i, record in enumerate(template)]
    lines = table_of(attnbench("table", folder(changed)).stdout)
    assert len(lines) == 2 + 4
    header = re.split(r"\s{2,}", lines[0].strip())
    assert header == ["method", "query_len", "time", "interval", "rounding error", "implementation"]
    assert set(lines[1]) == {"─"} and len(lines[1]) == max(map(len, lines))
    assert re.split(r"\s{2,}", lines[2].strip()) == ["linear", "32", "1.10 ms", "spread ±9.1 %", "1.0e-08", "stand-in 0"]
    assert len({line.rstrip().rfind("stand-in") for line in lines[2:]}) == 1, "not aligned"


def test_text_begins_with_what_the_records_answer_and_what_all_have_in_common(attnbench, folder):
    answer, _, rest = attnbench("table", folder()).stdout.partition("\n\n")
    common, _, header = words(rest).partition(" method query_len")
    assert words(answer) == (
        "it is not certain whether softmax or linear is faster at N = 48: softmax is 1.00 × as fast (one process, so no interval)."
    )
    assert header
    assert common.startswith("In all rows: device=cpu, dtype=float32, ")
    assert common.endswith("time/sequence=1.10 ms, memory/sequence=2.00 KiB, rounding error=1.0e-08, implementation=stand-in, outcome=measured, noisy")


def test_text_shows_only_the_axes_that_vary(attnbench, folder, template):
    changed = [record | {"batch": n} for n, record in enumerate(template, 1)]
    header = table_of(attnbench("table", folder(changed)).stdout)[0].split()
    assert header[:3] == ["method", "batch", "query_len"]
    assert "heads" not in header and "key_len" not in header and "seed" not in header


def test_the_file_of_records_may_be_given_instead_of_its_folder(attnbench, folder):
    out = folder()
    by_folder, by_file = attnbench("table", out), attnbench("table", out / "records.jsonl")
    assert by_folder.stdout == by_file.stdout != ""


def test_markdown_is_a_table_with_a_cell_for_each_column(attnbench, folder):
    header, rule, *rows = (line for line in attnbench("table", folder(), "--format", "markdown").stdout.splitlines() if line.startswith("|"))
    names = markdown_cells(header)
    assert names[0] == "method" and names[-1] == "outcome"
    assert all(re.fullmatch("-+:?", cell) for cell in markdown_cells(rule))
    # Numbers are aligned to the right.
    assert markdown_cells(rule)[names.index("time")].endswith(":")
    assert len(rows) == 4
    for row in rows:
        assert len(markdown_cells(row)) == len(names)


def test_csv_has_every_column_of_every_record(attnbench, folder, template):
    rows = rows_of(attnbench("table", folder(), "--format", "csv").stdout)
    lists = ("numbers", "numbers by name")
    columns = [c for c in attnbench.json("list", "columns") if c["group"] != "diagnostics"]
    assert rows[0] == [column["name"] for column in columns if column["type"] not in lists]
    assert len(rows) == 5
    for row, record in zip(rows[1:], template, strict=True):
        cells = dict(zip(rows[0], row, strict=True))
        assert cells["method"] == record["method"]
        assert float(cells["time_median_ms"]) == record["time_median_ms"]
        assert int(cells["query_len"]) == record["query_len"]
        assert cells["causal"] == "false" and cells["failure_kind"] == ""


def test_json_has_the_records_as_they_were_written(attnbench, folder, template):
    assert attnbench.json("table", folder()) == template


def test_columns_chooses_and_orders_the_columns(attnbench, folder, template):
    chosen = "query_len,method,time_median_ms"
    out = folder()
    lines = attnbench("table", out, "--columns", chosen).stdout.splitlines()
    assert lines[0].split() == chosen.split(",")
    assert lines[2].split() == ["32", "linear", str(template[0]["time_median_ms"])]
    rows = rows_of(attnbench("table", out, "--columns", chosen, "--format", "csv").stdout)
    assert rows[0] == chosen.split(",") and rows[1][:2] == ["32", "linear"]
    markdown = attnbench("table", out, "--columns", "method", "--format", "markdown").stdout
    assert markdown_cells(markdown.splitlines()[2]) == ["linear"]
    several = attnbench("table", out, "--columns", "query_len", "--columns", "method").stdout
    assert several.splitlines()[0].split() == ["query_len", "method"]


def test_options_may_precede_the_folder(attnbench, folder):
    text = attnbench("table", "--columns", "method,heads", folder()).stdout
    assert text.splitlines()[0].split() == ["method", "heads"]


def test_a_column_of_samples_can_be_chosen(attnbench, folder, template):
    text = attnbench("table", folder(), "--columns", "time_samples_ms", "--format", "csv").stdout
    assert strict_json(rows_of(text)[1][0]) == template[0]["time_samples_ms"]


def test_an_unknown_column_or_format_is_an_error_that_suggests_another(attnbench, folder):
    message = attnbench("table", folder(), "--columns", "time_medain_ms", code=2).stderr
    assert "'time_medain_ms'" in message and "'time_median_ms'" in message
    message = attnbench("table", folder(), "--format", "html", code=2).stderr
    assert "html" in message and "markdown" in message


def skipped(record, **changes):
    """The record of a skipped case, with these changes."""
    return failed([record], outcome="skipped", failure_kind="predicted_oom", reason="too large") | changes


def test_skipped_cases_are_counted_below_the_table(attnbench, folder, template):
    first, second, third, fourth = template
    out = folder([first, skipped(second), skipped(third), skipped(fourth, failure_kind="unsupported", reason="no causal form")])
    _, _, row, *lines = attnbench("table", out).stdout.splitlines()
    assert "linear" in row
    assert lines[-2:] == ["2 cases are skipped as predicted_oom: too large", "1 case is skipped as unsupported: no causal form"]
    assert attnbench("table", out, "--all").stdout.count("skipped") == 3
    markdown = attnbench("table", out, "--format", "markdown").stdout.splitlines()
    assert markdown[-4:] == ["", r"2 cases are skipped as predicted\_oom: too large", "", "1 case is skipped as unsupported: no causal form"]
    for format in ("csv", "json"):
        assert attnbench("table", out, "--format", format).stdout.count("predicted_oom") == 2
    (out / "records.jsonl").write_text(json.dumps(skipped(first)) + "\n")
    assert attnbench("table", out).stdout == "1 case is skipped as predicted_oom: too large\n"


def test_skipped_cases_of_several_reasons_are_counted_with_an_example(attnbench, folder, template):
    first, second, third, _ = template
    shown = attnbench("table", folder([first, skipped(second, reason="needs 8 GiB"), skipped(third)])).stdout
    assert "2 cases are skipped as predicted_oom, for example linear forward N=48: needs 8 GiB" in words(shown)


def test_rows_are_ordered_by_method_then_setting_then_length(attnbench, folder, template):
    first = template[0]
    made = [
        first | {"method": method, "protocol": protocol, "query_len": n, "key_len": n, "batch": batch}
        for n, batch in ((64, 1), (32, 2)) for protocol in ("forward", "forward_backward") for method in ("softmax", "linear")
    ]  # fmt: skip
    order = [(m, p, n) for m in ("softmax", "linear") for p in ("forward", "forward_backward") for n in ("32", "64")]
    for words_of_table in ((), ("--columns", "method,protocol,query_len")):
        lines = attnbench("table", folder(made) if not words_of_table else "out", *words_of_table).stdout
        rows = [re.split(r"\s{2,}", line.strip()) for line in table_of(lines)]
        at = [rows[0].index(name) for name in ("method", "protocol", "query_len")]
        assert [tuple(row[k] for k in at) for row in rows[2:]] == order


def test_signs_and_words_of_a_table_are_explained_below_it(attnbench, folder, template):
    shown = words(attnbench("table", folder()).stdout)
    assert '±: how far the interval of a time reaches to its farther end; it is after "spread" the middle half of the samples of one process.' in shown
    assert "noisy: the interval reaches further than 10 %" in shown and "published" not in shown and '"range"' not in shown
    across = template[0] | {
        "time_ci_scope": "across processes", "published_outcome": "oom", "published_source": "A paper, Figure 1: beyond 11 GB",
        "baseline": "sdpa", "ratio_pairing": "turns",
    }  # fmt: skip
    (out := attnbench.folder / "out" / "records.jsonl").write_text(
        "".join(json.dumps(record) + "\n" for record in (across, across | {"query_len": 64, "key_len": 64, "baseline": "softmax"}))
    )
    shown = words(attnbench("table", out).stdout)
    assert "±: how far the interval of a time reaches to its farther end; it is the 95 % interval across processes." in shown
    assert "The column published has the outcome, time or memory of the case in A paper, Figure 1." in shown
    assert "The baseline of a case is sdpa or softmax, as its column baseline says." in shown


def test_a_table_fits_into_the_terminal(attnbench, folder, template):
    outcomes = ["measured", "implausible", "measured", "measured"]
    changed = [
        record | {"implementation": f"stand-in {i}", "max_rel_error": (i + 1) * 1e-8, "implausible": None if outcome == "measured" else "too fast"}
        for i, (record, outcome) in enumerate(zip(template, outcomes, strict=True))
    ]
    out = folder(changed)
    wide = attnbench("table", out).stdout
    for width, variables in ((60, {}), (200, {"COLUMNS": "60"})):
        environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"} | {"NO_COLOR": "1"} | variables
        _, shown = attnbench.on_terminal("table", out, "--charts", "never", width=width, env=environment)
        assert max(map(len, shown.splitlines())) <= 60 < max(map(len, wide.splitlines()))
        note = " ".join(shown.split("(the terminal has 60 columns; not shown: ")[1].partition(")")[0].split())
        assert note == "rounding error, implementation"
        for header in ("method", "query_len", "time", "interval", "outcome"):
            assert header in table_of(shown)[0]
        assert "implausible" in shown
    # Whatever reads a pipe gets everything.
    assert attnbench("table", out, env=os.environ | {"COLUMNS": "60"}).stdout == wide


def test_csv_says_which_lists_it_leaves_out(attnbench, folder):
    message = attnbench("table", folder(), "--format", "csv").stderr
    assert re.fullmatch(r"CSV leaves out the lists (\w+, )*time_samples_ms(, \w+)*; --format json has them\n", message)


def test_failed_cases_are_shown_without_a_time(attnbench, folder, template):
    text = attnbench("table", folder([failed(template)])).stdout.splitlines()[2]
    assert "failed: error" in text
    assert "–" in text and " ms" not in text and "nan" not in text


def test_only_the_last_record_of_a_case_is_shown(attnbench, folder, template):
    again = template[1] | {"time_median_ms": 7.5}
    out = folder([*template, again])
    assert attnbench.json("table", out) == [template[0], again, *template[2:]]
    assert len(table_of(attnbench("table", out).stdout)) == 2 + 4
    assert len(rows_of(attnbench("table", out, "--format", "csv").stdout)) == 5


def test_a_folder_without_records_gives_an_empty_table(attnbench, folder):
    out = folder([])
    assert attnbench.json("table", out) == []
    assert len(attnbench("table", out).stdout.splitlines()) == 2
    assert len(rows_of(attnbench("table", out, "--format", "csv").stdout)) == 1


# ---------------------------------------------------------------- a folder of machines


@pytest.fixture
def machines(tmp_path, template):
    """A folder that holds one folder of records for each machine."""
    for name, records in (("b-machine", template[:2]), ("a-machine/run-1", template[2:])):
        (tmp_path / "all" / name).mkdir(parents=True)
        (tmp_path / "all" / name / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return "all"


def test_a_folder_of_machines_has_a_table_for_each(attnbench, machines):
    one, other = (attnbench("table", f"all/{name}").stdout for name in ("a-machine/run-1", "b-machine"))
    assert attnbench("table", machines).stdout == f"all/a-machine/run-1:\n{one}\nall/b-machine:\n{other}"
    markdown = attnbench("table", machines, "--format", "markdown").stdout
    assert markdown.startswith("**all/a-machine/run-1**\n\n| method") and "\n\n**all/b-machine**\n\n| method" in markdown
    columns = attnbench("table", machines, "--columns", "method,query_len").stdout
    assert columns.count("query_len") == 2 and "all/b-machine:\n" in columns


def test_csv_and_json_hold_the_records_of_all_machines(attnbench, machines, template):
    assert attnbench.json("table", machines) == [*template[2:], *template[:2]]
    rows = rows_of(attnbench("table", machines, "--format", "csv").stdout)
    assert len(rows) == 5 and len({len(row) for row in rows}) == 1
    assert [row[0] for row in rows_of(attnbench("table", machines, "--columns", "method", "--format", "csv").stdout)].count("method") == 1


def test_the_folder_of_a_single_machine_needs_not_be_named(attnbench, folder, tmp_path):
    out = folder()
    for command in (["table"], ["analyse"], ["compare", out], ["table", "--columns", "method"]):
        named, found = (attnbench(*command, of).stdout.split() for of in (out, tmp_path))
        assert [word.replace(f"{tmp_path}.", f"{out}.") for word in found] == named


def test_commands_that_take_one_machine_name_those_that_there_are(attnbench, machines):
    for command in (["analyse", machines], ["compare", machines, "all/b-machine"]):
        message = attnbench(*command, code=2).stderr
        assert "all holds several folders of records: all/a-machine/run-1, all/b-machine; expected one of them" in message


# ---------------------------------------------------------------- what cannot be read


def test_a_missing_folder_is_an_error_that_names_it(attnbench, tmp_path):
    assert "no-such" in attnbench("table", "no-such", code=2).stderr
    (tmp_path / "empty").mkdir()
    assert "empty/records.jsonl" in attnbench("table", "empty", code=2).stderr


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nonsense", []),
        ("", []),
        ("[1, 2]", ["array", "object"]),
        ("3", ["number", "object"]),
        ("{", []),
        ('{"method": "linear"} trailing', []),
        ('{"method": "linear", "speed": 3}', ["'speed'"]),
        ('{"method": "linear", "batch": "two"}', ["batch", "two", "integer"]),
        ('{"method": "linear", "batch": 1.5}', ["batch", "1.5", "integer"]),
        ('{"method": "linear", "batch": 99999999999999999999999}', ["batch"]),
        ('{"method": "linear", "causal": 1}', ["causal", "1", "boolean"]),
        ('{"method": 3}', ["method", "3", "text"]),
        ('{"method": "linear", "time_median_ms": NaN}', []),
        ('{"method": "linear", "time_median_ms": 1e999}', []),
        ('{"method": "linear", "time_samples_ms": [1, "x"]}', ["time_samples_ms"]),
        ("{}", []),
        ("\0\0\0\0", []),
        ("[" * 1_000_000, []),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_the_error_about_a_malformed_line_names_its_place(attnbench, folder, template, line, expected):
    good = [json.dumps(record) for record in template]
    out = folder(log="\n".join([good[0], good[1], line, good[2]]) + "\n")
    done = attnbench("table", out, code=2)
    assert "records.jsonl:3:" in done.stderr
    for word in expected:
        assert word in done.stderr
    assert done.stdout == "", "no partial output"


def test_an_incomplete_last_line_is_ignored(attnbench, folder, template):
    good = [json.dumps(record) for record in template]
    out = folder(log="\n".join([good[0], good[1], good[2][:300]]))
    assert attnbench.json("table", out) == template[:2]


def test_each_diagnostic_has_a_column_in_csv(attnbench, folder, template):
    old = template[0] | {"diagnostics": {"lsh_bucket_mean": 12.5}}
    new = template[1] | {"diagnostics": {"lsh_bucket_mean": 3.0, "lsh_bucket_skew": 1.5}}
    out = folder([old, new, template[2]])
    shown = attnbench.json("table", out)
    means = [{"lsh_bucket_mean": 12.5}, {"lsh_bucket_mean": 3.0, "lsh_bucket_skew": 1.5}, None]
    assert [record["diagnostics"] for record in shown] == means
    assert not any("lsh_bucket_mean" in record for record in shown)
    header, *rows = rows_of(attnbench("table", out, "--format", "csv").stdout)
    at = header.index("lsh_bucket_mean")
    assert header[at - 1 : at + 2] == ["quality_not_scored", "lsh_bucket_mean", "lsh_bucket_skew"]
    assert [row[at : at + 2] for row in rows] == [["12.5", ""], ["3.0", "1.5"], ["", ""]]
    chosen = "lsh_bucket_skew,lsh_bucket_mean"
    text = attnbench("table", out, "--columns", chosen, "--format", "csv").stdout
    assert rows_of(text) == [chosen.split(","), ["", "12.5"], ["1.5", "3.0"], ["", ""]]


def test_an_injected_slowdown_is_shown_only_in_records_that_have_one(attnbench, folder, template):
    out = folder([record | {"injected_slowdown_percent": 0.0} for record in template])
    assert attnbench.json("table", out) == template
    assert "injected" not in attnbench("table", out, "--format", "csv").stdout
    out = folder([template[0] | {"injected_slowdown_percent": 10.0}, template[1]])
    first, second = attnbench.json("table", out)
    assert first["injected_slowdown_percent"] == 10 and second == template[1]
    header, *rows = rows_of(attnbench("table", out, "--format", "csv").stdout)
    at = header.index("injected_slowdown_percent")
    assert [row[at] for row in rows] == ["10.0", ""]


def test_records_of_the_oldest_schema_get_the_values_of_later_axes(attnbench, folder, template):
    older = {name: value for name, value in template[0].items() if name != "decay_positions"}
    newer = template[0] | {"decay_positions": 5}
    records = [older | {"schema_version": 6}, template[0] | {"reason": "the same case"}, newer]
    shown = attnbench.json("table", folder(records))
    assert [r["decay_positions"] for r in shown] == [20, 5]
    assert shown[0]["reason"] == "the same case"


def test_the_results_of_the_project_can_be_read(attnbench):
    folders = [path.parent for path in (ROOT / "results").glob("*/*/records.jsonl")]
    assert folders
    for folder in folders:
        lines = (folder / "records.jsonl").read_text("utf-8").splitlines()
        shown = attnbench.json("table", folder)
        assert len(shown) == len(lines)
        assert all(record["inputs"] for record in shown)


# ---------------------------------------------------------------- text that must be escaped


FORMULAS = ["=1+1", '=HYPERLINK("x","y")', "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"]


@pytest.mark.parametrize("text", FORMULAS)
def test_text_like_a_formula_is_escaped_in_csv(attnbench, folder, template, text):
    out = folder([failed(template, reason=text)])
    for more in ([], ["--columns", "method,reason"]):
        header, row = rows_of(attnbench("table", out, "--format", "csv", *more).stdout)
        # Control characters become spaces.
        assert row[header.index("reason")] == "'" + re.sub(r"[\t\r]", " ", text)
    # Other formats leave the text as it is.
    assert attnbench.json("table", out)[0]["reason"] == text
    assert "'" + text not in attnbench("table", out, "--columns", "reason").stdout


def test_numbers_are_not_escaped_in_csv(attnbench, folder, template):
    out = folder([template[0] | {"max_abs_error": -1.5, "saved_bytes": -3}])
    for more in ([], ["--columns", "max_abs_error,saved_bytes"]):
        header, row = rows_of(attnbench("table", out, "--format", "csv", *more).stdout)
        assert row[header.index("max_abs_error")] == "-1.5"
        assert row[header.index("saved_bytes")] == "-3"


def test_csv_quotes_commas_and_quotes_and_replaces_line_ends(attnbench, folder, template):
    text = 'commas, "quotes"\r\nand lines'
    out = folder([failed(template, reason=text)])
    for more in ([], ["--columns", "method,reason"]):
        header, row = rows_of(attnbench("table", out, "--format", "csv", *more).stdout)
        assert row[header.index("reason")] == 'commas, "quotes"  and lines'


def test_markdown_escapes_its_special_characters(attnbench, folder, template):
    reason = "a|b `c` <b>d</b> [e](f) *g* \\ h\ni"
    out = folder([failed(template, reason=reason)])
    text = attnbench("table", out, "--columns", "method,reason", "--format", "markdown").stdout
    lines = text.splitlines()
    assert len(lines) == 3
    method, cell = markdown_cells(lines[2])
    assert method == "linear"
    assert r"a\|b" in cell
    for character in "|`<>[]*":
        assert not re.search(r"(?<!\\)" + re.escape(character), cell), character
    assert re.sub(r"\\(.)", r"\1", cell) == reason.replace("\n", " ")


def test_text_shows_each_record_on_one_line(attnbench, folder, template):
    out = folder([failed(template, reason="one\ntwo\r\tthree\033[31m four")])
    text = attnbench("table", out, "--columns", "method,reason").stdout
    assert len(text.splitlines()) == 3
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", text)


def test_text_with_characters_beyond_ascii_is_aligned(attnbench, folder, template):
    records = [failed(template, reason=text) for text in ("O(N²)", "plain")]
    records[1]["seed"] = 1
    out = folder(records)
    lines = attnbench("table", out, "--columns", "reason,method").stdout.splitlines()
    assert lines[2].index("linear") == lines[3].index("linear")
