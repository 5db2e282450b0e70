"""Tests of `attnbench verdicts`: the numbers that it reads, and the verdicts on made numbers."""

import importlib
import json

import pytest
from conftest import ROOT
from test_plots import measured, missing, refusal

claims_module, methods, quantities, results = (
    importlib.import_module(f"attnplots.{name}") for name in ("published.claims", "records.methods", "published.quantities", "records.results")
)
SCRIPT = "verdicts"
CLAIMS = ROOT / "experiments/published/claims.toml"
FILES = [*sorted((ROOT / "experiments/published").glob("*.csv")), *sorted((ROOT / "sweeps/published").glob("*.csv"))]
PUBLISHED = results.load_published(FILES)


def training(method, value, seed=0, **other):
    line = {"task": "images", "data": "../data/mnist", "method": method, "seed": seed, "device": "cpu", "threads": 2}
    return line | {"outcome": "measured", "bits_per_dim": value, "epoch_s": 1.0} | other


def generation(method, seconds, device="cpu", batch=1, **other):
    line = {"dataset": "mnist", "method": method, "device": device, "batch": batch, "threads": 2}
    return line | {"s_per_image": seconds, "images_per_s": 1 / seconds, "extrapolated": False} | other


def write(root, name, file, lines):
    folder = root / name / "machine"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def claim(kind, source, **other):
    return {"part": "Table 1", "says": "So it is.", "kind": kind, "source": source} | other


ORDER = claim("order", "trainings", quantity="bits_per_dim", methods=["softmax", "linear"], where={"dataset": "mnist"})
RATIO = claim(
    "ratio", "generations", quantity="images_per_s", top={"method": "linear"}, bottom={"method": "softmax"}, above=10,
    where={"dataset": "mnist"},
)  # fmt: skip


def answers(root, one, stand_ins=None):
    return claims_module.here(one, results.load(root), stand_ins or {})


def answer(root, one, stand_ins=None):
    (found,) = answers(root, one, stand_ins)
    return found


# ---------------------------------------------------------------- the paper's own numbers


def test_every_claim_with_published_numbers_holds_for_these():
    claims = claims_module.load_claims(CLAIMS)
    found = {c["says"]: claims_module.published_answer(c, PUBLISHED) for c in claims.claims}
    decided = {says: paper for says, paper in found.items() if paper}
    assert len(decided) >= 18
    assert {says: paper.numbers for says, paper in decided.items() if paper.verdict != "reproduced"} == {}
    by_part = [c["says"] for c in claims.claims if c["part"].startswith("Table")]
    assert set(by_part) <= set(decided), "the tables have numbers for each of their claims"


def test_the_two_speedups_of_table_5_are_both_there():
    said = [p.numbers for c in claims_module.load_claims(CLAIMS).claims if (p := claims_module.published_answer(c, PUBLISHED))]
    assert any(text.startswith("6.65× (softmax on the GPU 300.1; linear on the CPU 45.1)") for text in said)
    assert any(text.startswith("4.9× (softmax 300.1; linear 61.3)") for text in said)


def test_the_published_files_hold_every_number_of_the_paper():
    counts = {}
    for row in PUBLISHED:
        counts[row["said_in"][-7:]] = counts.get(row["said_in"][-7:], 0) + 1
    assert [counts[f"Table {k}"] for k in range(1, 6)] == [8, 8, 8, 4, 20]
    (linear,) = [
        row for row in PUBLISHED
        if row.get("table") == "1" and row["method"] == "linear" and "images_per_s" in row
    ]  # fmt: skip
    assert (linear["images_per_s"], linear["dataset"], linear["source"]) == (142.8, "mnist", "generations")
    memory = [row["peak_allocated_bytes"] for row in PUBLISHED if "peak_allocated_bytes" in row]
    assert sorted(memory) == [12 << 20, 72 << 20, 132 << 20, 4096 << 20]


# ---------------------------------------------------------------- rules


def test_an_order_holds_only_if_every_value_is_below_the_next(tmp_path):
    write(tmp_path, "a", "trainings.jsonl", [training("softmax", 1.0), training("linear", 1.5)])
    found = answer(tmp_path, ORDER)
    assert (found.verdict, found.numbers) == ("reproduced", "softmax 1.000, linear 1.500")
    assert found.where == f"{tmp_path}/a/machine, cpu"
    write(tmp_path, "a", "trainings.jsonl", [training("softmax", 1.5), training("linear", 1.5)])
    assert answer(tmp_path, ORDER).verdict == "not reproduced"


def test_the_median_of_the_seeds_counts_and_overlaps_are_named(tmp_path):
    lines = [training("softmax", value, seed) for seed, value in enumerate((1.0, 9.0, 1.1))]
    lines += [training("linear", value, seed) for seed, value in enumerate((2.0, 2.2, 2.1))]
    write(tmp_path, "a", "trainings.jsonl", lines)
    found = answer(tmp_path, ORDER)
    assert found.verdict == "cannot tell"
    assert "softmax 1.100 (1.000–9.000, 3 seeds)" in found.numbers
    assert found.numbers.endswith("; the ranges of the seeds overlap for softmax and linear")
    write(tmp_path, "a", "trainings.jsonl", [line for line in lines if line["bits_per_dim"] != 9.0])
    found = answer(tmp_path, ORDER)
    assert found.verdict == "reproduced" and "overlap" not in found.numbers
    # One pair that is in the wrong order for all seeds decides, whatever the others do.
    lines += [training("lsh-1", 0.5, seed) for seed in range(3)]
    write(tmp_path, "a", "trainings.jsonl", lines)
    three = ORDER | {"methods": ["softmax", "linear", "lsh-1"]}
    assert answer(tmp_path, three).verdict == "not reproduced"


def test_a_ratio_that_seeds_leave_open_cannot_be_told(tmp_path):
    lines = [training("softmax", value, seed) for seed, value in enumerate((1.0, 1.2, 1.4))]
    lines += [training("linear", value, seed) for seed, value in enumerate((1.0, 1.05, 1.1))]
    write(tmp_path, "a", "trainings.jsonl", lines)
    one = claim("ratio", "trainings", quantity="bits_per_dim", top={"method": "softmax"}, bottom={"method": "linear"},
                where={"dataset": "mnist"})  # fmt: skip
    verdicts_by_bound = {above: answer(tmp_path, one | {"above": above}).verdict for above in (0.9, 1.1, 1.5)}
    assert verdicts_by_bound == {0.9: "reproduced", 1.1: "cannot tell", 1.5: "not reproduced"}


def test_a_claim_about_a_gpu_needs_one(tmp_path):
    write(tmp_path, "a", "generations.jsonl", [generation("linear", 0.5), generation("softmax", 4.0)])
    on_gpu = RATIO | {"where": {"dataset": "mnist", "device": "cuda"}}
    assert answer(tmp_path, RATIO | {"where": {"dataset": "mnist"}, "above": 2}).verdict == "reproduced"
    assert answer(tmp_path, on_gpu).verdict == "needs a GPU"


def test_an_open_claim_says_what_would_decide_it(tmp_path):
    write(tmp_path, "a", "generations.jsonl", [generation("linear", 0.5)])
    found = answer(tmp_path, claim("open", "none", why="no model was trained"))
    assert (found.verdict, found.numbers) == ("cannot tell", "no model was trained")


def test_each_claim_names_the_command_that_measures_it():
    claims = claims_module.load_claims(CLAIMS)
    for one in claims.claims:
        command = claims_module.command_of(one, claims)
        assert command != "`none`", one["says"]
        known = {"sweep": "sweeps", "train": "experiments/settings", "latency": "experiments/speed", "throughput": "experiments/speed"}
        if one["kind"] != "open":
            _, what, name = command.strip("`").split()
            assert (ROOT / known[what] / f"{name}.toml").exists(), command


def test_failed_trainings_do_not_count(tmp_path):
    lines = [training("softmax", 1.0), training("linear", 1.5, outcome="failed")]
    write(tmp_path, "a", "trainings.jsonl", lines)
    found = answer(tmp_path, ORDER)
    assert found.verdict == "cannot tell" and found.numbers == f"{tmp_path}/a/machine lacks linear"


def test_a_folder_in_which_no_training_has_ended_yet_is_left_out(tmp_path):
    write(tmp_path, "a", "trainings.jsonl", [training("softmax", 1.0), training("linear", 1.5)])
    write(tmp_path, "b", "trainings.jsonl", [])
    assert [a.verdict for a in answers(tmp_path, ORDER)] == ["reproduced"]


def test_methods_are_compared_within_one_folder(tmp_path):
    write(tmp_path, "a", "trainings.jsonl", [training("softmax", 1.0)])
    write(tmp_path, "b", "trainings.jsonl", [training("linear", 1.5)])
    assert answer(tmp_path, ORDER).verdict == "cannot tell"
    write(tmp_path, "c", "trainings.jsonl", [training("softmax", 2.0), training("linear", 1.5)])
    write(tmp_path, "d", "trainings.jsonl", [training("softmax", 1.0), training("linear", 1.5)])
    assert [a.verdict for a in answers(tmp_path, ORDER)] == ["not reproduced", "reproduced"]


def test_a_stand_in_for_the_data_is_named(tmp_path):
    lines = [training("softmax", 1.0, data="x/digits"), training("linear", 1.5, data="x/digits")]
    write(tmp_path, "a", "trainings.jsonl", lines)
    assert answer(tmp_path, ORDER).verdict == "cannot tell"
    found = answer(tmp_path, ORDER, {"mnist": ["digits"]})
    assert (found.verdict, found.stand_in) == ("reproduced", "on digits, not mnist")


def test_data_stand_in_for_one_quantity_alone(tmp_path):
    lines = [training("softmax", 1.0, data="x/clothes"), training("linear", 1.5, data="x/clothes")]
    write(tmp_path, "a", "trainings.jsonl", lines)
    assert answer(tmp_path, ORDER, {"mnist epoch_s": ["clothes"]}).verdict == "cannot tell"
    assert answer(tmp_path, ORDER, {"mnist bits_per_dim": ["clothes"]}).stand_in == "on clothes, not mnist"
    assert answer(tmp_path, ORDER | {"stand_ins": ["clothes"]}).stand_in == "on clothes, not mnist"


def curve(method, seed, points, **other):
    """The points of a training: updates, bits and seconds."""
    return [training(method, bits, seed, update=n, training_s=s, **other) for n, bits, s in points]


def test_curves_that_still_fall_leave_an_order_open(tmp_path):
    # softmax falls by 0.4 in its last quarter, linear by nothing.
    curves = [curve("softmax", 0, [(50, 3.0, 5), (75, 2.4, 7.5), (100, 2.0, 10)]), curve("linear", 0, [(50, 2.3, 1), (100, 2.3, 2)])]
    folder = write(tmp_path, "a", "trainings.jsonl", [points[-1] for points in curves])
    settled = ORDER | {"settled": True}
    assert answer(tmp_path, settled).verdict == "reproduced", "without curves nothing is known of their falls"
    write(tmp_path, "a", "curves.jsonl", [point for points in curves for point in points])
    assert answer(tmp_path, ORDER).verdict == "reproduced"
    found = answer(tmp_path, settled)
    assert found.verdict == "cannot tell"
    assert found.numbers.endswith("; still falling by more than what is between: softmax")
    # The gap is larger than what any curve falls.
    curves[1] = curve("linear", 0, [(50, 2.6, 1), (100, 2.6, 2)])
    for name, lines in (("trainings", [points[-1] for points in curves]), ("curves", [p for points in curves for p in points])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert answer(tmp_path, settled).verdict == "reproduced"
    # The same holds for an order that is wrong.
    reverse = settled | {"methods": ["linear", "softmax"]}
    assert answer(tmp_path, reverse).verdict == "not reproduced"


def test_a_claim_about_equal_time_reads_curves_at_that_time(tmp_path):
    curves = [curve("softmax", 0, [(25, 4.0, 5), (50, 3.0, 10), (100, 2.0, 20)]), curve("linear", 0, [(50, 3.5, 5), (100, 2.5, 10)])]
    write(tmp_path, "a", "trainings.jsonl", [points[-1] for points in curves])
    write(tmp_path, "a", "curves.jsonl", [point for points in curves for point in points])
    assert answer(tmp_path, ORDER).numbers == "softmax 2.000, linear 2.500"
    one = ORDER | {"at": "equal time"}
    found = answer(tmp_path, one)
    assert (found.verdict, found.numbers) == ("not reproduced", "softmax 3.000, linear 2.500")
    assert found.budget == "0.167 minutes of training each"
    assert claims_module.rule_text(one) == "bits/dim after equal time: softmax < linear"


def test_verdicts_on_trainings_name_their_budget(tmp_path):
    lines = [training("softmax", 1.0, update=100, batch=10, training_s=60.0), training("linear", 1.5, update=200, batch=10, training_s=30.0)]
    write(tmp_path, "a", "trainings.jsonl", lines)
    claims = claims_module.Claims([ORDER])
    (verdict,) = claims_module.decided([], results.load(tmp_path), claims)
    assert verdict.text() == "reproduced at this budget (100 to 200 updates of 10, 0.5 to 1 minutes each)"
    epochs = claim("order", "trainings", quantity="epoch_s", methods=["softmax", "linear"], where={"dataset": "mnist"})
    (verdict,) = claims_module.decided([], results.load(tmp_path), claims_module.Claims([epochs]))
    assert verdict.text() == "not reproduced", "times do not depend on how much was trained"


def test_nothing_measured_is_said_in_words(tmp_path):
    found = answer(tmp_path, ORDER)
    assert (found.verdict, found.numbers) == ("cannot tell", "no trainings of mnist in the results")


def test_a_ratio_takes_the_best_batch_of_each_method_on_one_device(tmp_path):
    lines = [generation("softmax", 1.0), generation("softmax", 0.5, batch=4), generation("linear", 0.04, batch=4)]
    lines += [generation("linear", 0.02, batch=64), generation("softmax", 9.0, "cuda"), generation("linear", 1.0, "cuda")]
    write(tmp_path, "a", "generations.jsonl", lines)
    cpu, cuda = answers(tmp_path, RATIO)
    assert cpu.verdict == "reproduced" and cpu.where.endswith(", cpu")
    assert cpu.numbers == (
        "25× (linear 50 [cpu, batch 64, 2 threads]; softmax 2 [cpu, batch 4, 2 threads]); at equal batch 4: 12.5×"
    )
    rule = claims_module.rule_text(RATIO)
    assert rule == "images/s of linear ÷ that of softmax > 10, each at its own best batch, as in the paper"
    assert cuda.verdict == "not reproduced" and cuda.numbers.startswith("9× ")


def test_the_equal_batch_takes_the_best_of_each_method_of_several_devices(tmp_path):
    lines = [generation("softmax", 0.5, batch=4), generation("softmax", 9.0, "cuda", batch=4), generation("linear", 0.04, batch=4)]
    write(tmp_path, "a", "generations.jsonl", lines)
    one_sided = RATIO | {"top": {"method": "linear", "device": "cpu"}}
    assert answer(tmp_path, one_sided).numbers.endswith("; at equal batch 4: 12.5×")


def test_the_threshold_itself_is_not_above_the_threshold(tmp_path):
    write(tmp_path, "a", "generations.jsonl", [generation("softmax", 1.0), generation("linear", 0.1)])
    assert answer(tmp_path, RATIO).verdict == "not reproduced"


def test_an_extrapolated_number_is_marked(tmp_path):
    lines = [generation("softmax", 100.0, extrapolated=True), generation("linear", 1.0)]
    write(tmp_path, "a", "generations.jsonl", lines)
    assert "softmax 0.01 (extrapolated)" in answer(tmp_path, RATIO).numbers


def test_a_training_that_only_timed_an_epoch_says_nothing_about_its_loss(tmp_path):
    write(tmp_path, "a", "trainings.jsonl", [training("softmax", 1.0), training("linear", 2.0)])
    assert answer(tmp_path, ORDER).verdict == "reproduced"
    lines = [training("softmax", 1.0, epoch_extrapolated=True), training("linear", 2.0)]
    write(tmp_path, "a", "trainings.jsonl", lines)
    assert "lacks softmax" in answer(tmp_path, ORDER).numbers
    assert quantities.value_of(results.load(tmp_path).rows, "epoch_s") is not None


def test_a_ratio_across_devices_takes_them_from_the_folders_of_one_run(tmp_path):
    across = RATIO | {
        "quantity": "s_per_image", "where": {"dataset": "mnist", "batch": 1}, "above": 2,
        "top": {"method": "softmax", "device": "cuda"}, "bottom": {"method": "linear", "device": "cpu"},
    }  # fmt: skip
    write(tmp_path / "run", "gpu", "generations.jsonl", [generation("softmax", 9.0, "cuda")])
    assert "lacks linear on the CPU" in answer(tmp_path, across).numbers
    (tmp_path / "two" / "cpu").mkdir(parents=True)
    (tmp_path / "two" / "gpu").mkdir()
    (tmp_path / "two/gpu/generations.jsonl").write_text(json.dumps(generation("softmax", 9.0, "cuda")) + "\n")
    (tmp_path / "two/cpu/generations.jsonl").write_text(json.dumps(generation("linear", 3.0)) + "\n")
    found = answer(tmp_path / "two", across)
    assert found.verdict == "reproduced" and found.numbers.startswith("3× (softmax on the GPU 9 ")


def test_lowest_compares_with_each_of_the_others(tmp_path):
    lowest = RATIO | {"kind": "lowest", "quantity": "s_per_image", "method": "linear", "others": ["softmax", "lsh-4"]}
    lines = [generation("linear", 1.0), generation("softmax", 2.0), generation("lsh:rounds=4,chunk=8", 3.0)]
    write(tmp_path, "a", "generations.jsonl", lines)
    assert answer(tmp_path, lowest).verdict == "reproduced"
    lines[2]["s_per_image"] = 0.5
    write(tmp_path, "a", "generations.jsonl", lines)
    assert answer(tmp_path, lowest).verdict == "not reproduced"


GROWTH = claim("growth", "s", quantity="time_per_sample_ms", method="linear", between=[0.8, 1.2], **{"from": 1024})


# The intervals of made times reach 10 % to both sides, and so that of a slope over two octaves reaches 0.14 to both sides.
@pytest.mark.parametrize(
    ("power", "verdict", "interval"),
    [
        (1.0, "reproduced", "0.86 to 1.14"), (1.6, "not reproduced", "1.46 to 1.74"), (0.4, "not reproduced", "0.26 to 0.54"),
        (1.1, "cannot tell", "0.96 to 1.24"), (1.3, "cannot tell", "1.16 to 1.44"), (0.7, "cannot tell", "0.56 to 0.84"),
    ],
)  # fmt: skip
def test_growth_is_decided_by_the_interval_of_the_fitted_exponent(tmp_path, power, verdict, interval):
    rows = [measured("linear", n, (n / 1024) ** power) for n in (1024, 2048, 4096)]
    rows += [measured("linear", 512, 1e6), missing("linear", 8192, "oom"), measured("softmax", 8192, 1e6)]
    write(tmp_path, "s", "records.jsonl", rows)
    found = answer(tmp_path, GROWTH)
    assert found.verdict == verdict
    assert found.numbers.startswith(f"e = {power:.2f} ({interval}; 3 lengths; N = 1k: 1;")
    write(tmp_path, "s", "records.jsonl", rows[:2])
    assert answer(tmp_path, GROWTH).verdict == "cannot tell"


def test_points_that_lie_on_no_line_leave_the_exponent_open(tmp_path):
    exact = [measured("linear", n, n / 1024) | dict.fromkeys(("time_ci_low_ms", "time_ci_high_ms"), 4.0) for n in (1024, 2048, 4096)]
    write(tmp_path, "s", "records.jsonl", exact)
    assert answer(tmp_path, GROWTH).numbers.startswith("e = 1.00 (1.00 to 1.00; 3 lengths")
    exact[1] |= measured("linear", 2048, 1.6, time_ci_low_ms=3.2, time_ci_high_ms=3.2)
    write(tmp_path, "s", "records.jsonl", exact)
    found = answer(tmp_path, GROWTH)
    assert found.verdict == "cannot tell" and found.numbers.startswith("e = 1.00 (0.68 to 1.32; 3 lengths")
    # What is counted has no interval.
    memory = GROWTH | {"quantity": "peak_extra_bytes_per_sample"}
    write(tmp_path, "s", "records.jsonl", [measured("linear", n, memory=float(2**20)) for n in (1024, 2048, 4096)])
    assert answer(tmp_path, memory | {"between": [-0.01, 0.01]}).verdict == "reproduced"


def test_everywhere_compares_at_every_common_length(tmp_path):
    everywhere = claim("everywhere", "s", quantity="time_per_sample_ms", method="linear", others=["softmax", "lsh-4"])
    rows = [measured("linear", n, 1.0) for n in (512, 1024)] + [measured("softmax", n, 2.0) for n in (512, 1024, 2048)]
    write(tmp_path, "s", "records.jsonl", rows)
    found = answer(tmp_path, everywhere)
    assert (found.verdict, found.numbers) == ("reproduced", "lower in 2 of 2 comparisons")
    # The intervals of both reach 10 % to each side.
    write(tmp_path, "s", "records.jsonl", [*rows, measured("lsh-4", 512, 1.1)])
    found = answer(tmp_path, everywhere)
    assert found.verdict == "cannot tell"
    assert found.numbers == "lower in 2 of 3 comparisons; cannot tell against lsh-4 at N = 512: 1 against 1.1"
    write(tmp_path, "s", "records.jsonl", [*rows, measured("lsh-4", 512, 1.1), measured("lsh-4", 1024, 0.5)])
    found = answer(tmp_path, everywhere)
    assert found.verdict == "not reproduced"
    assert found.numbers == (
        "lower in 2 of 4 comparisons; not against lsh-4 at N = 1k: 1 against 0.5; cannot tell against lsh-4 at N = 512: 1 against 1.1"
    )


@pytest.mark.parametrize(
    ("own", "verdict"), [((0.9, 0.7), "reproduced"), ((0.9, 0.8), "cannot tell"), ((1.0, 0.9), "not reproduced")]
)
def test_errors_are_compared_seed_by_seed(tmp_path, own, verdict):
    # The seeds differ by more than the methods, which have the same inputs.
    errors = {"taylor": own, "linear": (1.0, 0.8)}
    rows = [
        measured(method, 512, quality_row_error_median=sum(by_seed) / 2, quality_seed_row_errors=by_seed)
        for method, by_seed in errors.items()
    ]
    write(tmp_path, "s", "records.jsonl", rows)
    everywhere = claim("everywhere", "s", quantity="quality_row_error_median", method="taylor", others=["linear"])
    assert answer(tmp_path, everywhere).verdict == verdict


def test_outcomes_must_be_the_published_ones(tmp_path):
    outcomes = claim("outcomes", "s", method="softmax")
    rows = [
        measured("softmax", 4096, published_outcome="measured"),
        missing("softmax", 8192, "predicted_oom", "skipped", published_outcome="oom"),
    ]
    write(tmp_path, "s", "records.jsonl", rows)
    found = answer(tmp_path, outcomes)
    assert (found.verdict, found.numbers) == ("reproduced", "N = 4k: runs, N = 8k: out of memory")
    write(tmp_path, "s", "records.jsonl", [rows[0], measured("softmax", 8192, published_outcome="oom")])
    assert answer(tmp_path, outcomes).verdict == "not reproduced"
    late = missing("softmax", 8192, "timeout", published_outcome="oom")
    write(tmp_path, "s", "records.jsonl", [rows[0], late])
    assert answer(tmp_path, outcomes).verdict == "cannot tell"


def test_the_sweep_is_named_by_its_environment(tmp_path):
    folder = write(tmp_path, "somewhere", "records.jsonl", [measured("linear")])
    assert {row["source"] for row in results.load(tmp_path).rows} == {"somewhere"}
    (folder / "environment.json").write_text(json.dumps({"sweep": "s", "environment": {}}))
    assert {row["source"] for row in results.load(tmp_path).rows} == {"s"}


@pytest.mark.parametrize(
    ("method", "name"),
    [("lsh:rounds=4,chunk=8", "lsh-4"), ("lsh-1:chunk=8", "lsh-1"), ("linear", "linear"), ("favor:rounds=2", "favor")],
)
def test_a_method_is_compared_by_its_name_without_options(method, name):
    assert methods.method_name(method) == name


# ---------------------------------------------------------------- the report


def test_the_report_has_every_claim_and_every_published_number(attnbench, tmp_path):
    lines = [generation("linear", 0.5), generation("softmax", 4.0)]
    folder = write(tmp_path / "results", "a", "generations.jsonl", lines)
    (folder / "environment.json").write_text(json.dumps({"environment": {"cpu_model": "Some | CPU", "processors": 2}}))
    report = attnbench("verdicts", "--format", "markdown").stdout
    assert report == attnbench("verdicts", tmp_path / "results", "--format", "markdown").stdout.replace(f"{tmp_path}/", "")
    for one in claims_module.load_claims(CLAIMS).claims:
        assert f"| {one['says']} |" in report
    assert "| mnist | linear | s/image on the CPU | 5.5 | 0.5 [cpu, batch 1, 2 threads] |" in report
    assert "| mnist | linear | s/image on the GPU | 7.3 | not measured |" in report
    assert "| wsj | bi-lstm | phone error rate | 10.94% | not measured |" in report
    assert "Some \\| CPU, 2 processors" in report
    assert "NVIDIA GTX 1080 Ti with 11 GB" in report
    tables = [line for line in report.splitlines() if line.startswith("|")]
    assert len(tables) > 80 and all(line.endswith("|") for line in tables)


def test_a_file_that_cannot_be_used_is_an_error_that_names_the_line(tmp_path):
    write(tmp_path, "a", "generations.jsonl", [generation("linear", 0.5), generation("linear", 0.5) | {"batch": "all"}])
    assert 'generations.jsonl:2: expected an integer in `batch`, found "all"' in refusal(SCRIPT, tmp_path)
    write(tmp_path, "a", "generations.jsonl", [3])
    assert "generations.jsonl:1: expected a JSON object" in refusal(SCRIPT, tmp_path)
    assert "no such folder" in refusal(SCRIPT, tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no claims"),
        ("[[claim", "expected a file of claims in TOML"),
        ("[[claim]]\nkind = 'best'", "claim 1: kind = 'best'; expected one of ratio, order"),
        ("[[claim]]\nkind = 'order'\npart = 'x'\nsays = 'y'\nsource = 's'\nquantity = 'q'", "claim 1: no `methods`"),
    ],
)
def test_wrong_claims_are_refused(tmp_path, text, said):
    (tmp_path / "claims.toml").write_text(text)
    assert said in refusal(SCRIPT, tmp_path, "--claims", tmp_path / "claims.toml")
