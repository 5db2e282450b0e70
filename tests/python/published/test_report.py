"""Tests of the page that `attnbench report` writes: what it says, what it refuses, and that nothing in it
is loaded from elsewhere. test_report_browser.py opens it in a browser."""

import html
import importlib
import json
import math
import re
import subprocess
from types import SimpleNamespace

import pytest
from conftest import HANG_S, ROOT
from test_plots import complete, entry, measured, missing, run, schema, write

interactive, vega, maker = (importlib.import_module(f"attnplots.{name}") for name in ("figures.interactive", "report.vega", "report.page"))
REPORT = "report"
LENGTHS = (512, 1024, 4096, 16384)
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def certain(method, n, ms, **more):
    """A record of eight processes whose interval reaches 1 % to either side."""
    medians = [ms * batch_of(n) * (1 + k / 1000) for k in range(-4, 4)]
    ends = {"time_ci_low_ms": 0.99 * ms * batch_of(n), "time_ci_high_ms": 1.01 * ms * batch_of(n)}
    known = {"time_ci_scope": "across processes", "processes": 8, "process_medians_ms": medians, "noise_target": 0.02}
    own = {"schema_version": schema.current().version, "revision": "abc123", "dirty": False, "finished_at": "2026-01-02T00:00:00Z",
           "processors": 2, "build": "CPU Release", "torch_version": "2.11.0", "implementation": "kernel/avx512",
           "peak_extra_bytes": 2**20 * batch_of(n)}  # fmt: skip
    return complete(measured(method, n, ms) | ends | known | own | more)


def absent(method, n, kind, **more):
    """A record without a number."""
    return complete(missing(method, n, kind, "skipped", schema_version=schema.current().version, **more))


def batch_of(n):
    return max(1, 4096 // n)


def rows(**more):
    """sdpa, whose time grows with the square, and linear, which is faster from N = 1000 on."""
    found = [certain("sdpa", n, n * n / 1e6, **more) for n in LENGTHS]
    found += [certain("linear", n, n / 1e3, **more) for n in LENGTHS]
    return [*found, absent("sdpa", 65536, "predicted_oom", **{"reason": "needs 40 GiB", **more})]


def folder(tmp_path, name="machine", sweep="demo", description="A sweep for the tests", found=None):
    made = write(tmp_path / name, rows() if found is None else found)
    told = {"sweep": sweep, "description": description, "settings": {"processes": 8, "noise_target": 0.02}}
    (made / "environment.json").write_text(json.dumps(told | {"environment": {"revision": "abc123", "cpu_model": "Some CPU", "processors": 2}}))
    return made


def report(tmp_path, *arguments):
    """The page about these arguments. It is made in this process, which is faster than a process for each page."""
    out = tmp_path / "report.html"
    assert entry.run(ROOT, "report", [*map(str, arguments), "-o", str(out)], "report.py") == 0
    return out.read_text("utf-8")


def words(page):
    """The text of a page without its elements, its scripts and its styles."""
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


def data_of(page):
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)[1])


# ---------------------------------------------------------------- what the page says


def test_the_answers_name_the_fastest_methods_the_crossover_the_ends_and_the_noise(tmp_path):
    page = words(report(tmp_path, folder(tmp_path)))
    assert "A sweep for the tests." in page
    assert "N = 16k" in page and re.search(r"linear 16\.4 ms 16 × as fast as sdpa of 2 methods (?!;)", page)
    assert re.search(r"linear is faster than sdpa from N = (9\d\d|1,0\d\d) on \(95 % interval: ", page)
    assert "sdpa: predicted to be out of memory from N = 65,536 on (Forward)." in page
    assert "Half of the 8 times are known to ± 1 % or better, 90 % of them to ± 1 %" in page
    assert "measured 2026-01-02 processor Some CPU threads 4 on 2 processors memory not recorded system not recorded" in page
    assert "git checkout abc123 && make build" in page and "build/attnbench sweep demo" in page


def test_the_machine_is_named_in_full(tmp_path):
    found = [r | {"threads": 2, "memory_limit_bytes": 6 * 2**30, "gpu": "Some GPU"} for r in rows()]
    made = folder(tmp_path, found=found)
    path = made / "environment.json"
    told = json.loads(path.read_text())
    told["environment"] |= {"instruction_set": "AVX512", "gpu": "Some GPU"}
    path.write_text(json.dumps(told | {"machine": {"system": "Debian 12, Linux 6.1", "memory_bytes": 8 * 2**30}}))
    said = "processor Some CPU, AVX512 threads 2 on 2 processors memory 8 GiB; a case may use 6 GiB system Debian 12, Linux 6.1 GPU Some GPU"
    page = words(report(tmp_path, made))
    assert said in page and page.index(said) < page.index("Charts")
    path.write_text(json.dumps(told | {"machine": ["odd"]}))
    assert "memory not recorded; a case may use 6 GiB system not recorded" in words(report(tmp_path, made))


def on_devices(cpu_ms, gpu_ms, graph_ms=None):
    """Records of decoding on both devices; the times are functions of the length."""
    def records_of(device, graph, ms):
        more = {"device": device, "graph": graph, "protocol": "decode", "causal": True, "batch": 1}
        if device == "cuda":
            more |= {"gpu": "Some GPU"}
        found = [certain("linear", n, 1.0, **more) for n in LENGTHS]
        for record in found:
            value = ms(record["query_len"])
            record |= {"time_median_ms": value, "time_per_sample_ms": value, "time_ci_low_ms": 0.99 * value, "time_ci_high_ms": 1.01 * value,
                       "process_medians_ms": [value * (1 + k / 1000) for k in range(-4, 4)]}  # fmt: skip
        return found

    found = records_of("cpu", False, cpu_ms) + records_of("cuda", False, gpu_ms)
    return found + (records_of("cuda", True, graph_ms) if graph_ms else [])


def test_the_cpu_is_compared_with_the_gpu_and_the_break_even_point_is_named(tmp_path):
    found = on_devices(lambda n: n / 1000, lambda n: 2.0, lambda n: 0.1)
    for record in found:
        if record["device"] == "cuda":
            record["process_medians_ms"].reverse()  # so that the ratio differs from process to process
    page = words(report(tmp_path, folder(tmp_path, sweep="latency", found=found)))
    assert "CPU against GPU" in page
    said = re.search(r"linear: the GPU is faster from N = ([\d,]+) on \(95 % interval: ([\d,]+) to ([\d,]+)\), the CPU below\.", page)
    length, low, high = (int(number.replace(",", "")) for number in said.groups())
    assert low < 2000 < high and length == pytest.approx(2000, rel=0.1)
    assert "linear · GPU with a CUDA graph: the GPU is faster at every length that both were measured at, N = 512 to 16,384." in page
    columns = "case N = 512 N = 1k N = 4k N = 16k"
    assert f"{columns} linear 0.256 × CPU 512 µs GPU 2 ms 0.512 × CPU 1.02 ms GPU 2 ms 2.05 ×" in page, page
    assert "(below 1, it is slower)" in page


def test_an_interval_of_a_length_that_is_narrower_than_a_position_has_no_two_equal_ends(tmp_path):
    found = on_devices(lambda n: n / 1000, lambda n: 2.0)
    assert "from N = 2,000 on (95 % interval: narrower than one position), the CPU below." in words(report(tmp_path, folder(tmp_path, found=found)))


def test_methods_on_both_devices_share_a_table_that_names_the_protocol_as_charts_do(tmp_path):
    found = on_devices(lambda n: n / 1000, lambda n: 2.0)
    found += [complete(r | {"protocol": "forward_backward"}) for r in found]
    page = words(report(tmp_path, folder(tmp_path, found=found)))
    assert page.count("How many times as fast the GPU is as the CPU") == 1
    assert "linear · Forward + backward: the GPU is faster" in page and "protocol forward" not in page


def test_a_folder_of_one_device_has_no_comparison_of_devices(tmp_path):
    assert "CPU against GPU" not in words(report(tmp_path, folder(tmp_path)))


def factors_of(page):
    told = data_of(page)["lines"]["sweep-0"]
    (column,) = (column for column in told["columns"] if column["name"] == "_factor")
    at = {column["name"]: k for k, column in enumerate(told["columns"])}
    return column.get("head"), told["usual"], {(row[at["method"]], row[at["query_len"]]): row[at["_factor"]] for row in told["rows"]}


def test_each_record_has_its_factor_against_sdpa_beside_its_time(tmp_path):
    head, usual, found = factors_of(report(tmp_path, folder(tmp_path)))
    assert head == "× as fast as sdpa" and usual.index("_factor") == usual.index("time_median_ms") + 2
    assert found["linear", 16384] == pytest.approx(16.384) and found["linear", 512] == pytest.approx(0.512)
    assert found["sdpa", 512] is None, "the reference itself"
    _, usual, _ = factors_of(report(tmp_path, folder(tmp_path, "alone", found=[r for r in rows() if r["method"] == "linear"])))
    assert "_factor" not in usual, "nothing to compare with"


def test_ratios_to_several_baselines_stand_beside_the_factor(tmp_path):
    found = [*rows(baseline="sdpa", ratio_median=0.25), *(certain("lsh-1", n, n / 1e2, baseline="linear", ratio_median=10.0) for n in LENGTHS)]
    _, usual, _ = factors_of(report(tmp_path, folder(tmp_path, found=found)))
    assert {"_factor", "ratio_median"} <= set(usual)


def test_the_factor_is_against_the_baseline_of_the_sweep_and_the_ratio_that_was_recorded(tmp_path):
    paired = {"baseline": "lsh-1", "ratio_median": 0.25, "ratio_ci_low": 0.24, "ratio_ci_high": 0.26}
    found = [*rows(), *(certain("lsh-1", n, n / 1e2, baseline="lsh-1") for n in LENGTHS)]
    found = [r | paired if r["method"] == "linear" else r for r in found]
    page = report(tmp_path, folder(tmp_path, found=found))
    head, usual, factors = factors_of(page)
    assert head == "× as fast as lsh-1" and factors["linear", 512] == 4
    assert "ratio_median" not in usual, "the reciprocal of the factor"
    assert "linear 16.4 ms 4.0 × as fast as lsh-1 of 3 methods" in words(page)


def test_a_row_of_what_changed_has_one_estimate(tmp_path, monkeypatch):
    """The values, the ratio and the interval of a row are those that `attnbench compare` gives, and the values divide to
    the ratio."""
    case = {axis.name: axis.default for axis in schema.current().axes} | {"method": "linear", "query_len": 512, "protocol": "forward"}
    said = {"differences": [], "counts": {"regression": 1}, "cases": [
        {"case": case, "a_ms": 99.0, "b_ms": 98.0, "a_value": 1.2, "b_value": 1.3, "a_estimate": 1.234, "b_estimate": 1.3574,
         "quantity": "time", "log_ratio": math.log(1.1), "interval": [0.0, 1.0], "decisive_interval": [math.log(1.08), math.log(1.12)],
         "decisive_level": 0.9, "verdict": "regression"}]}  # fmt: skip
    folder(tmp_path, "a")
    folder(tmp_path, "b", found=[r | {"finished_at": "2026-01-03T00:00:00Z"} for r in rows()])
    monkeypatch.setattr(maker.changes, "driver", SimpleNamespace(ask=lambda *words: said))
    page = words(report(tmp_path, tmp_path / "a", tmp_path / "b"))
    row = re.search(r"linear · forward · N = 512 ([\d.]+) ms ([\d.]+) ms ([\d.]+) (\+[\d.]+) % 90 %: (\+[\d.]+) % to (\+[\d.]+) % slower", page)
    one, other, ratio, change, low, high = map(float, row.groups())
    assert (one, other, ratio) == (1.234, 1.357, 1.1)
    assert other / one == pytest.approx(ratio, rel=1e-3) and change == pytest.approx(100 * (ratio - 1), rel=1e-2)
    assert low < change < high


def test_the_answers_say_what_was_not_measured(tmp_path):
    more = [absent("linear", n, "unsupported", device="cuda", reason="no kernels") for n in LENGTHS]
    kept = [r for r in rows() if r["outcome"] == "measured" and not (r["method"] == "sdpa" and r["query_len"] > 1024)]
    page = words(report(tmp_path, folder(tmp_path, found=[*kept, *more])))
    assert "sdpa: the sweep does not go beyond N = 1,024 (Forward)." in page
    assert "None of the 4 cases on cuda was measured: no kernels." in page


def test_the_answers_say_how_far_methods_are_from_exact_attention(tmp_path):
    found = [r | {"quality_row_error_median": 0.5 if r["method"] == "linear" else 1e-7} for r in rows() if r["outcome"] == "measured"]
    assert "from that of exact attention: linear 0.5 (0 is exact" in words(report(tmp_path, folder(tmp_path, found=found)))


def test_the_answers_say_which_methods_need_the_least_memory(tmp_path):
    def needs(method, n, mebibytes):
        size = round(mebibytes * 2**20)
        return certain(method, n, 1.0, peak_extra_bytes=size * batch_of(n), peak_extra_bytes_per_sample=size)

    found = [needs("linear", 512, 1), needs("sdpa", 512, 9), needs("linear", 1024, 2), needs("favor", 1024, 2.01)]
    found += [needs("lsh-1", 1024, 3), needs("sdpa", 1024, 6)]
    page = words(report(tmp_path, folder(tmp_path, found=found)))
    assert "Forward: linear and favor need the least at N = 1,024, 2 MiB a sequence; sdpa needs 3 times as much." in page
    longer = [*found, needs("linear", 4096, 4), needs("favor", 4096, 6)]
    page = words(report(tmp_path, folder(tmp_path, "longer", found=longer)))
    assert "at N = 1,024, 2 MiB a sequence; sdpa needs 3 times as much." in page
    assert "Forward: linear needs the least at N = 4,096, 4 MiB a sequence; favor needs 1.5 times as much." in page
    found = [r for r in found if r["method"] in ("linear", "lsh-1")]
    page = words(report(tmp_path, folder(tmp_path, "other", found=found)))
    assert "Forward: linear needs the least at N = 1,024, 2 MiB a sequence; lsh-1 needs 1.5 times as much." in page
    found = [r for r in found if r["method"] == "linear"]
    assert "needs the least" not in words(report(tmp_path, folder(tmp_path, "alone", found=found)))


def test_fastest_methods_whose_intervals_overlap_are_both_named(tmp_path):
    found = [certain("sdpa", n, n / 1e3) for n in LENGTHS] + [certain("linear", n, n / 1.01e3) for n in LENGTHS]
    page = words(report(tmp_path, folder(tmp_path, found=found)))
    assert "linear or sdpa" in page
    assert "Which method is the fastest at N = 512 (Forward): linear or sdpa; their intervals overlap." in page


def test_noisy_times_are_named(tmp_path):
    noisy = certain("linear", 1024, 2.0) | {"time_ci_high_ms": 12.0}
    page = words(report(tmp_path, folder(tmp_path, found=[certain("linear", 512, 1.0), noisy])))
    assert "the least exact to ± 50 % (linear · forward · N = 1,024)" in page
    assert "Noisier than usual (beyond ± 10 %): 1 of 2 cases" in page


def test_records_of_one_process_have_no_interval(tmp_path):
    found = [complete(measured("linear", n, 1.0, time_ci_scope="spread within process")) for n in (512, 1024)]
    assert "2 of 2 times come from a single process and have no interval." in words(report(tmp_path, folder(tmp_path, found=found)))


def test_every_record_is_in_the_data_with_the_command_that_measures_it_again(tmp_path):
    found = [*rows(), certain("lsh:rounds=4", 512, 1.0, causal=True, heads=2)]
    data = data_of(report(tmp_path, folder(tmp_path, found=found)))
    told = data["lines"]["sweep-0"]
    names = [column["name"] for column in told["columns"]]
    table = [dict(zip(names, row, strict=True)) for row in told["rows"]]
    assert len(table) == len(found)
    (lsh,) = (line for line in table if line["method"] == "lsh:rounds=4")
    assert lsh["_command"] == "attnbench measure lsh:rounds=4 --batch 8 --heads 2 --query-len 512 --causal --threads 4"
    about = {column["name"]: column["about"] for column in told["columns"]}
    assert about["peak_extra_bytes_per_sample"] == "memory for one sequence of the batch: peak_extra_bytes divided by the batch size"
    assert not [name for name in names if name.endswith("samples_ms") or name == "process_medians_ms"], "lists are left out"


def test_the_commands_of_records_are_accepted_by_measure(tmp_path, attnbench):
    data = data_of(report(tmp_path, folder(tmp_path)))
    told = data["lines"]["sweep-0"]
    at = [column["name"] for column in told["columns"]].index("_command")
    command = told["rows"][0][at].split()
    assert command[0] == "attnbench"
    changed = ["--query-len=64" if word == "--query-len" else word for word in command[1:] if word != "512"]
    attnbench(*changed, "--time-budget-s=0.01", "--warmup-s=0")


def test_the_commands_of_a_folder_are_those_that_measured_it(tmp_path):
    made = folder(tmp_path)
    path = made / "environment.json"
    told = json.loads(path.read_text())
    path.write_text(json.dumps(told | {"commands": ["attnbench sweep demo --methods linear", "attnbench sweep demo --methods sdpa"]}))
    page = words(report(tmp_path, made))
    assert "build/attnbench sweep demo --methods linear Copy build/attnbench sweep demo --methods sdpa Copy" in page


def test_at_first_few_panels_are_shown():
    found = [certain("linear", n, 1.0, protocol=p, causal=c, dtype=d, heads=h)
             for n in (512, 1024) for p in ("forward", "forward_backward") for c in (False, True)
             for d in ("float32", "bfloat16") for h in (1, 2, 4)]  # fmt: skip
    records = importlib.import_module("attnplots.records.records").Records(found)
    chosen = interactive.facets(records)
    assert {facet.column for facet in chosen} == {"protocol", "causal", "dtype", "heads"}
    panels = 1
    for facet in chosen:
        panels *= sum(value["on"] for value in facet.values)
    assert 1 <= panels <= interactive.PANELS
    assert sum(value["on"] for value in chosen[0].values) == 2, "both protocols are shown beside each other"


def test_methods_have_the_looks_of_the_figures():
    looks = vega.for_page(interactive.gate_chart(["linear", "softmax", "favor", "taylor", "rff"]), "gate")["series"]
    linear = next(look for look in looks if look["name"] == "linear")
    assert linear["colour"] == "#0b4a91" and linear["shape"] == vega.SHAPES["^"]
    assert len({(look["colour"], look["shape"]) for look in looks}) == len(looks) == 5
    style = importlib.import_module("attnplots.figures.style")
    for look in looks:
        contrast = (style.luminance(look["dark"]) + 0.05) / (style.luminance(style.DARK_PAGE) + 0.05)
        assert contrast >= 3, f"{look['name']} can be seen on a dark page"


# ---------------------------------------------------------------- several folders


def test_two_folders_of_a_sweep_are_compared(tmp_path):
    folder(tmp_path, "before")
    slower = [{**r, **{k: 1.2 * r[k] for k in ("time_median_ms", "time_per_sample_ms", "time_ci_low_ms", "time_ci_high_ms")},
               "process_medians_ms": [1.2 * v for v in r["process_medians_ms"]], "finished_at": "2026-01-03T00:00:00Z"}
              if r["method"] == "linear" else r | {"finished_at": "2026-01-03T00:00:00Z"} for r in rows()]  # fmt: skip
    folder(tmp_path, "after", found=slower)
    page = report(tmp_path, tmp_path / "before", tmp_path / "after")
    assert "From before to after : 4 slower" in words(page)
    assert re.search(r"linear · forward · N = 512.*?\+20 % .*? slower", words(page))
    text = words(page)
    assert text.index("What changed") < text.index("Charts") < text.index("In short"), "what changed comes first"
    before, after = ('<span class="run one">before</span>', '<span class="run other">after</span>')
    assert page.count(before) == page.count(after) == 3, "each run has its colour in the sentence, the table and the facts"
    assert "These answers are about the newest folder, after." in words(page)


def test_three_folders_of_a_sweep_are_a_history(tmp_path):
    for k, factor in enumerate((1.0, 1.0, 0.7)):
        changed = [
            r | {"finished_at": f"2026-01-0{k + 1}T00:00:00Z"}
            | ({n: factor * r[n] for n in ("time_median_ms", "time_per_sample_ms", "time_ci_low_ms", "time_ci_high_ms")}
               | {"process_medians_ms": [factor * v for v in r["process_medians_ms"]]} if r["outcome"] == "measured" else {})
            for r in rows()
        ]  # fmt: skip
        folder(tmp_path, f"run-{k}", found=changed)
    page = words(report(tmp_path, tmp_path))
    assert "History" in page and re.search(r"linear · forward · N = 512 equivalent \([+−][\d.]+ %\) faster \(−30 %\)", page)
    assert "0 cases were never found faster or slower." in page


def test_sweeps_of_other_names_have_sections_of_their_own(tmp_path):
    folder(tmp_path, "one/m", "one")
    folder(tmp_path, "two/m", "two")
    page = report(tmp_path, tmp_path)
    assert '<a href="#sweep-0">one</a>' in page and '<a href="#sweep-1">two</a>' in page
    assert "What changed" not in page


def test_experiments_are_shown_with_their_curves_images_and_claims(tmp_path):
    page = report(tmp_path, ROOT / "results/digits", ROOT / "results/copy-task-short")
    text = words(page)
    assert "How each training ended" in text and "Time of an image" in text and "Beside the paper" in text
    assert "On the copy task, linear attention reaches a lower loss than Reformer with 4 rounds. reproduced" in text
    assert page.count("data:image/png;base64,") == 1
    assert len(data_of(page)["charts"]) == 2


def gate(tmp_path, name, finished, ratios, verdicts=("pass", "pass"), result="pass", **more):
    """A folder with what a run of the gate leaves: the cases `linear forward N=1024` and `sdpa forward N=1024`."""
    side = {"revision": f"base-of-{name}", "dirty": False, "cpu_model": "Some CPU", "processors": 2}
    cases = [
        {"name": f"{method} forward N=1024", "verdict": verdict, "waived": None, "log_ratio": math.log(ratio),
         "interval": [math.log(ratio) - 0.01, math.log(ratio) + 0.01]}
        for method, ratio, verdict in zip(("linear", "sdpa"), ratios, verdicts, strict=True)
    ]  # fmt: skip
    told = {"finished_at": finished, "result": result, "base": side, "candidate": side | {"revision": name}, "cases": cases}
    (tmp_path / name).mkdir()
    (tmp_path / name / "gate.json").write_text(json.dumps(told | more))


def test_runs_of_the_gate_are_a_history_with_its_verdicts(tmp_path):
    gate(tmp_path, "mid", "2026-02-02T00:00:00Z", (1.2, 1.0), ("regression", "pass"), "regression")
    gate(tmp_path, "new", "2026-03-02T00:00:00Z", (0.99, 1.0))
    gate(tmp_path, "old", "2026-01-02T00:00:00Z", (1.0, 1.0))
    page = report(tmp_path, tmp_path)
    text = words(page)
    assert re.search(r"old 2026-01-02T00:00:00Z base-of-old old pass 2 pass Some CPU, 2 processors mid .* new ", text)
    assert "1 regression, 1 pass" in text
    assert "linear forward N=1024 pass (+0 %) regression (+20 %) pass (−1 %) sdpa forward N=1024 pass" in text
    told = data_of(page)
    assert len(told["lines"]["gate"]["rows"]) == 6 and told["charts"]["gate"]["y"][0]["title"] == "Candidate / base"


def test_a_waived_regression_says_why(tmp_path):
    gate(tmp_path, "one", "2026-02-02T00:00:00Z", (1.2, 1.0), ("regression", "pass"))
    path = tmp_path / "one/gate.json"
    told = json.loads(path.read_text())
    told["cases"][0]["waived"] = "checks its inputs"
    path.write_text(json.dumps(told))
    assert "regression (+20 %); waived: checks its inputs" in words(report(tmp_path, tmp_path))


def test_the_reason_of_a_verdict_is_shown_beside_it_and_not_counted(tmp_path):
    gate(tmp_path, "one", "2026-02-02T00:00:00Z", (1.0, 1.0), ("unusable", "unusable"), "unusable")
    path = tmp_path / "one/gate.json"
    told = json.loads(path.read_text())
    for case, reason in zip(told["cases"], ("no memory", "no such kernel"), strict=True):
        case["reason"] = reason
    path.write_text(json.dumps(told))
    text = words(report(tmp_path, tmp_path))
    assert "unusable: no memory (+0 %)" in text and "unusable: no such kernel (+0 %)" in text and "2 unusable" in text


@pytest.mark.parametrize("changed", [{"cases": 1}, {"base": None}, {"cases": [{"name": "a"}]}, {"result": "pass", "candidate": []}])
def test_a_file_that_the_gate_did_not_write_is_refused(tmp_path, changed):
    gate(tmp_path, "one", "2026-02-02T00:00:00Z", (1.2, 1.0), **changed)
    done = run(REPORT, tmp_path, "-o", tmp_path / "report.html")
    assert done.returncode == 2 and "one/gate.json: expected what `attnbench gate --out` writes" in done.stderr


# ---------------------------------------------------------------- safety


def test_hostile_texts_stay_texts(tmp_path):
    found = [certain(f"mine.py:{HOSTILE}", 512, 1.0), certain("linear\x1b[31m", 512, 1.0),
             absent("linear", 1024, "invalid", reason=HOSTILE)]  # fmt: skip
    page = report(tmp_path, folder(tmp_path, name="x'\"<b>", sweep=HOSTILE, description=HOSTILE, found=found), "--title", HOSTILE)
    outside = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert "<script>alert" not in page and "<img src=x" not in outside and "\x1b" not in page
    assert HOSTILE in words(page)


def test_nothing_is_loaded_from_elsewhere(tmp_path):
    page = report(tmp_path, folder(tmp_path))
    assert "default-src 'none'" in html.unescape(page)
    elements = re.sub(r"<script\b.*?</script>", "", page, flags=re.DOTALL)
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#|data:)""", elements)
    assert not re.findall(r"url\((?!data:)", elements)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda path: path / "none", "no such folder; expected a folder of results"),
        (lambda path: path, "no results; expected records.jsonl or curves.jsonl or trainings.jsonl or generations.jsonl or gate.json in it or below it"),
        (lambda path: write(path / "bad", ["[]"]), "records.jsonl:1: not a record: a record is array"),
    ],
)
def test_what_is_no_folder_of_results_is_refused(tmp_path, make, expected):
    done = run(REPORT, make(tmp_path), "-o", tmp_path / "report.html")
    assert done.returncode == 2 and expected in done.stderr and not (tmp_path / "report.html").exists()


def test_a_folder_in_place_of_the_file_is_refused(tmp_path):
    done = run(REPORT, folder(tmp_path), "-o", tmp_path)
    assert done.returncode == 2 and "a folder; expected the name of a file such as report.html" in done.stderr


def test_the_command_writes_the_page_and_says_how_large_it_is(tmp_path, attnbench):
    done = attnbench("report", folder(tmp_path), "-o", tmp_path / "page.html", "--title", "Mine")
    assert re.fullmatch(rf"{re.escape(str(tmp_path))}/page\.html: \d\.\d MB\n", done.stdout)
    assert "<h1>Mine</h1>" in (tmp_path / "page.html").read_text("utf-8")


def test_a_python_without_the_packages_is_refused_with_their_names(tmp_path, attnbench):
    subprocess.run(["python3", "-m", "venv", "--without-pip", tmp_path / "bare"], check=True, timeout=HANG_S)
    done = attnbench("report", folder(tmp_path), "--python", tmp_path / "bare/bin/python", code=2)
    assert "No module named" in done.stderr and "make setup" in done.stderr


def test_the_page_of_figure1_is_small_enough_to_send(tmp_path):
    assert len(report(tmp_path, ROOT / "results/figure1").encode()) <= 3e6
