// Tests that the files of other benchmark programs are read with the right values, and that wrong ones are refused.
#include "harness/foreign/foreign_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <string>

#include "harness/text/errors.h"

namespace attnbench {
namespace {

// The files of the fuzzer's corpus. Those of Google Benchmark, pytest-benchmark, hyperfine and asv were written by these
// programs.
ForeignRun run_of(const std::string& name, const std::string& measure = "") {
  return read_foreign_file(fmt::format("{}/../tests/fuzz/corpus/foreign/{}.json", ATTNBENCH_SWEEPS, name), measure);
}

std::map<std::string, double> values_of(const ForeignRun& run) {
  std::map<std::string, double> values;
  for (const auto& result : run.results)
    if (result.fault.empty()) values[result.name] = result.value;
  return values;
}

const ForeignResult& result_of(const ForeignRun& run, const std::string& name) {
  for (const auto& result : run.results)
    if (result.name == name) return result;
  throw std::out_of_range(name);
}

void expect_refused(const std::string& text, const std::string& message, const std::string& measure = "") {
  try {
    read_foreign_run(text, "file.json", measure);
    FAIL() << text;
  } catch (const UsageError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("file.json: ")) << error.what();
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
}

TEST(ForeignRun, RepetitionsOfGoogleBenchmarkAreOneValue) {
  const auto text = [](const char* more) {
    return fmt::format(R"({{"context": {{"host_name": "h", "num_cpus": 2}}, "benchmarks": [{}]}})", more);
  };
  const auto run = read_foreign_run(
      text(
          R"({"name": "a/1", "run_name": "a/1", "run_type": "iteration", "repetition_index": 0, "real_time": 10, "time_unit": "us"},
              {"name": "a/1", "run_name": "a/1", "run_type": "iteration", "repetition_index": 1, "real_time": 30, "time_unit": "us"},
              {"name": "a/1", "run_name": "a/1", "run_type": "iteration", "repetition_index": 2, "real_time": 11, "time_unit": "us"},
              {"name": "a/1_mean", "run_name": "a/1", "run_type": "aggregate", "aggregate_name": "mean", "real_time": 17, "time_unit": "us"},
              {"name": "a/1_median", "run_name": "a/1", "run_type": "aggregate", "aggregate_name": "median", "real_time": 99, "time_unit": "us"},
              {"name": "b_mean", "run_name": "b", "run_type": "aggregate", "aggregate_name": "mean", "real_time": 5, "time_unit": "ms"},
              {"name": "b_median", "run_name": "b", "run_type": "aggregate", "aggregate_name": "median", "real_time": 3, "time_unit": "ms"})"),
      "x");
  EXPECT_EQ(run.machine, "h, 2 processors");
  EXPECT_EQ(run.format, ForeignFormat::google_benchmark);
  ASSERT_EQ(run.results.size(), 2);
  EXPECT_DOUBLE_EQ(result_of(run, "a/1").value, 11e-6);
  EXPECT_DOUBLE_EQ(result_of(run, "b").value, 3e-3);
  expect_refused(text(R"({"name": "a", "real_time": 1, "time_unit": "ns"}, {"name": "a", "real_time": 2, "time_unit": "ns"})"),
                 "two benchmarks have the name 'a'");
  expect_refused(text(R"({"name": "a", "real_time": 1, "time_unit": "weeks"})"), "expected ns, us, ms or s");
  expect_refused(text(R"({"name": "a", "real_time": "1", "time_unit": "ns"})"), "real_time of the benchmark 'a' is string");
  expect_refused(text(R"({"name": "a", "real_time": 1, "time_unit": "ns"})"), "no benchmark has the measure", "items_per_second");
  expect_refused(text(R"({"name": "a", "score": 1, "real_time": 1, "time_unit": "ns"})"),
                 "of the measure 'score' it is not known whether more is better", "score");
}

TEST(ForeignRun, FilesOfRealProgramsAreRead) {
  const auto google = run_of("google_benchmark");
  EXPECT_EQ(values_of(google).size(), 2);
  EXPECT_EQ(result_of(google, "BM_err").fault, "no such thing");
  const auto rates = run_of("google_benchmark", "bytes_per_second");
  EXPECT_TRUE(rates.measure.more_is_better);
  EXPECT_NEAR(result_of(rates, "BM_sum/64").value * result_of(google, "BM_sum/64").value, 64 * 8, 64);

  const auto pytest = run_of("pytest_benchmark");
  EXPECT_EQ(pytest.format, ForeignFormat::pytest_benchmark);
  EXPECT_NEAR(result_of(pytest, "test_x.py::test_sum[10]").value, 1.4e-7, 1e-7);

  const auto hyperfine = run_of("hyperfine");
  EXPECT_EQ(hyperfine.format, ForeignFormat::hyperfine);
  EXPECT_DOUBLE_EQ(result_of(hyperfine, "true").value, 0.001309624);

  const auto asv = run_of("asv");
  EXPECT_EQ(asv.format, ForeignFormat::asv);
  EXPECT_NEAR(result_of(asv, "b.TimeSuite.time_sum(10, 'b')").value, 1.445e-4, 1e-6);
  EXPECT_NE(result_of(asv, "b.TimeSuite.time_sum(20, 'b')").fault, "");
  EXPECT_NE(result_of(asv, "b.time_fail").fault, "");
  ASSERT_EQ(asv.left_out.size(), 2);
  EXPECT_EQ(asv.left_out[1], "b.track_y");
  const auto memory = run_of("asv", "memory");
  ASSERT_EQ(memory.results.size(), 1);
  EXPECT_EQ(result_of(memory, "b.peakmem_x").value, 40124416);
  const auto sizes = read_foreign_run(
      R"({"results": {"b.mem_list": [[512], []], "b.MemSuite.track": [[1], []]}, "result_columns": ["result", "params"]})", "x",
      "memory");
  EXPECT_EQ(values_of(sizes), (std::map<std::string, double>{{"b.mem_list", 512}}));
}

TEST(ForeignRun, BencherAndNvbenchAreRead) {
  EXPECT_DOUBLE_EQ(result_of(run_of("bencher"), "suite::parse").value, 1250.5e-9);
  ASSERT_EQ(run_of("bencher").left_out.size(), 1);
  EXPECT_EQ(run_of("bencher").left_out.front(), "suite::size");
  EXPECT_DOUBLE_EQ(result_of(run_of("bencher", "throughput"), "suite::parse").value, 8e5);
  const auto nvbench = run_of("nvbench");
  EXPECT_DOUBLE_EQ(result_of(nvbench, "copy Device=0 Elements=2^20").value, 7.68e-6);
  EXPECT_EQ(result_of(nvbench, "copy Device=0 Elements=2^40").fault, "out of memory");
  EXPECT_EQ(nvbench.machine, "NVIDIA H100 80GB HBM3");
  EXPECT_DOUBLE_EQ(result_of(run_of("nvbench", "bytes_per_second"), "copy Device=0 Elements=2^20").value, 1092266666666.6666);
}

TEST(ForeignRun, CommandsOfHyperfineThatFailedHaveNoValue) {
  const auto run = read_foreign_run(R"({"results": [{"command": "a", "median": 1, "exit_codes": [0, 1]}]})", "x");
  EXPECT_EQ(result_of(run, "a").fault, "the command did not always end with exit code 0");
}

// NaN is not JSON, but Python and Google Benchmark write it. It is a benchmark without a value, and no text of a name.
TEST(ForeignRun, ValuesThatAreNoTimesAreFaults) {
  const auto run = read_foreign_run(R"({"a": {"latency": {"value": NaN}}, "b": {"latency": {"value": -Infinity}},
    "c": {"latency": {"value": 0}}, "d": {"latency": {"value": -1}}, "NaN \" Infinity": {"latency": {"value": 1}}})",
                                    "x");
  EXPECT_EQ(values_of(run).size(), 1);
  EXPECT_DOUBLE_EQ(result_of(run, "NaN \" Infinity").value, 1e-9);
  for (const auto* name : {"a", "b", "c", "d"})
    EXPECT_NE(result_of(run, name).fault.find("expected a number above 0"), std::string::npos);
}

TEST(ForeignRun, OtherFilesAreRefused) {
  for (const auto* text : {"", "[]", "{}", "3", "null", R"({"benchmarks": []})", R"({"a": {"latency": 3}})", "{\"a\": ", "\xff"})
    expect_refused(text, "Google Benchmark JSON");
  expect_refused(R"({"results": []})", "hyperfine JSON without any benchmark");
  expect_refused(R"({"results": [3]})", "an entry of results is number, expected an object");
  expect_refused(R"({"results": [{"command": 3}]})", "command of an entry of results is number, expected text");
  expect_refused(R"({"a": {"latency": {"value": 1}}, "b": 3})", "the benchmark 'b' is number");
  expect_refused(R"({"": {"latency": {"value": 1}}})", "has no name");
  expect_refused(R"({"benchmarks": [{"fullname": "a", "stats": []}], "machine_info": {}})", "expected an object");
  expect_refused(R"({"results": {"time_x": [[1, 2], [["1"]]]}, "result_columns": ["result", "params"]})",
                 "expected a value for each");
  expect_refused(fmt::format(R"({{"{}": {{"latency": {{"value": 1}}}}}})", std::string(2000, 'a')),
                 "has 2000 bytes, expected at most 1024");
  expect_refused(R"({"results": [{"command": "a", "median": 1}, {"command": "a", "median": 2}]})",
                 "two results are of the command 'a'");
  expect_refused(R"({"benchmarks": [{"fullname": "a", "stats": {"median": 1}}, {"fullname": "a", "stats": {"median": 2}}],
                     "machine_info": {}})",
                 "two benchmarks have the name 'a'");
  expect_refused(R"({"a": {"latency": {"lower_value": 1}}, "b": {"latency": {"value": 1}}})",
                 "latency of the benchmark 'a' has no value");
  const std::string deep(100, '[');
  expect_refused(deep, "not JSON");
}

TEST(ForeignRun, ThousandsOfBenchmarksAreReadAndMillionsRefused) {
  const auto text = [](int count) {
    std::string many;
    for (int i = 0; i < count; ++i) many += fmt::format("{}\"case {}\": {{\"latency\": {{\"value\": 1}}}}", i > 0 ? "," : "", i);
    return fmt::format("{{{}}}", many);
  };
  EXPECT_EQ(read_foreign_run(text(20'000), "x").results.size(), 20'000);
  expect_refused(text(20'001), "more than 20000 benchmarks");
}

TEST(ForeignRun, CostsAreLargerForWhatIsWorse) {
  EXPECT_DOUBLE_EQ(cost_of({"items_per_second", "items/s", true}, 4), 0.25);
  EXPECT_DOUBLE_EQ(cost_of({"real_time", "s"}, 4), 4);
}

}  // namespace
}  // namespace attnbench
