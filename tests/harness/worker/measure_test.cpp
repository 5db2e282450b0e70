// Tests of measuring, verifying and planning cases on whole sequences: correct methods are measured, and no wrong result gets a
// time.
#include "harness/worker/measure.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <new>
#include <stdexcept>

#include "attn/reference.h"
#include "attn/registry.h"
#include "harness/worker/cpu/memory.h"
#include "harness/worker/environment.h"
#include "tests/support/errors_of.h"
#include "tests/support/head_slopes.h"

namespace attnbench {
namespace {

using attn::Problem, attn::Protocol;

// Softmax attention whose output is changed by `flaw`.
class Flawed : public attn::AttentionMethod {
 public:
  using Flaw = at::Tensor (*)(const at::Tensor& output, const at::Tensor& v);
  explicit Flawed(Flaw flaw) : flaw_(flaw) {}

  attn::Cost cost(const Problem& p, Protocol) const override { return {1, 1, p.input_bytes()}; }
  at::Tensor reference(const attn::Inputs& inputs, const at::Tensor& rows) const override {
    return attn::reference::softmax(inputs, rows);
  }

 protected:
  at::Tensor attend(const attn::Inputs& inputs) override {
    ran("test");
    const auto scores = at::matmul(inputs.q, inputs.k.transpose(2, 3)) / std::sqrt(double(inputs.q.size(3)));
    return flaw_(at::matmul(at::softmax(scores, -1), inputs.v), inputs.v);
  }

 private:
  Flaw flaw_;
};

struct RegisterFlawed {
  RegisterFlawed(const char* name, Flawed::Flaw flaw) {
    attn::RegisterMethod({name, "softmax attention with a flaw", "O(N²)", "O(N²)", {}, [flaw](const attn::Options&) {
                            return std::make_shared<Flawed>(flaw);
                          }});
  }
};

// Whether the sequence is longer than in the small check, which compares all rows.
bool is_long(const at::Tensor& output) { return output.size(2) > 300; }

const RegisterFlawed flawed[] = {
    {"test-right", [](const at::Tensor& out, const at::Tensor&) { return out; }},
    {"test-wrong-values", [](const at::Tensor& out, const at::Tensor&) { return out * 1.01; }},
    {"test-wrong-gradient", [](const at::Tensor& out, const at::Tensor& v) { return out + 0.01 * (v - v.detach()); }},
    {"test-nan", [](const at::Tensor& out, const at::Tensor&) { return out / 0. * 0.; }},
    {"test-infinite", [](const at::Tensor& out, const at::Tensor&) { return out / 0.; }},
    {"test-throws", [](const at::Tensor&, const at::Tensor&) -> at::Tensor { throw std::runtime_error("no luck today"); }},
    {"test-throws-check",
     [](const at::Tensor& out, const at::Tensor&) -> at::Tensor {
       TORCH_CHECK(out.dim() == 7, "seven dimensions wanted");
       return out;
     }},
    {"test-bad-alloc", [](const at::Tensor&, const at::Tensor&) -> at::Tensor { throw std::bad_alloc(); }},
    {"test-wrong-when-long", [](const at::Tensor& out, const at::Tensor&) { return is_long(out) ? out * 1.01 : out; }},
    {"test-wrong-last-row",
     [](const at::Tensor& out, const at::Tensor&) {
       if (!is_long(out)) return out;
       auto wrong = out.clone();
       wrong.select(2, -1).mul_(1.5);
       return wrong;
     }},
    {"test-wrong-gradient-when-long",
     [](const at::Tensor& out, const at::Tensor& v) { return is_long(out) ? out + 0.01 * (v - v.detach()) : out; }},
    // The NaN is in a row that the random selection hardly ever contains.
    {"test-nan-when-long",
     [](const at::Tensor& out, const at::Tensor&) {
       if (!is_long(out)) return out;
       auto wrong = out.clone();
       wrong.select(0, -1).select(0, -1)[333][0].fill_(std::nan(""));
       return wrong;
     }},
    {"test-greedy",
     [](const at::Tensor& out, const at::Tensor&) {
       if (is_long(out)) at::empty({int64_t{1} << 28}, at::kFloat);  // 1 GiB
       return out;
     }},
};

Case quick_case(const std::string& method, int64_t query_len = 64) {
  Case c;
  c.method = method;
  c.batch = 2;
  c.heads = 3;
  c.query_len = query_len;
  c.head_dim = 8;
  c.threads = 2;
  c.warmup_s = 0;
  c.noise_target = 1e9;
  c.time_budget_s = 0;
  c.max_disturbance = 1e6;  // all samples count, however busy the machine is
  c.complete();
  return c;
}

Record measured(Case c) {
  c.complete();
  return measure(c);
}

void expect_no_times(const Record& record) {
  for (const auto& column : columns()) {
    if (column.group == "time") {
      EXPECT_FALSE(record.has(column.name)) << column.name;
    }
  }
}

Record expect_failure(const Case& c, const char* failure_kind) {
  auto record = measure(c);
  EXPECT_EQ(record.text("outcome"), "failed");
  EXPECT_EQ(record.text("failure_kind"), failure_kind) << record.text("reason");
  expect_no_times(record);
  return record;
}

TEST(Measure, ACorrectMethodGetsAllColumns) {
  for (const auto* protocol : {"forward", "forward_backward"}) {
    auto c = quick_case("test-right", 400);
    c.protocol = protocol;
    const bool backward = c.protocol == "forward_backward";
    const auto record = measure(c);
    ASSERT_TRUE(record.measured()) << record.text("reason");
    EXPECT_EQ(record.text("implementation"), "test");
    EXPECT_FALSE(record.has("failure_kind"));
    // Columns of the time.
    const auto samples = record.get("time_samples_ms").get<std::vector<double>>();
    EXPECT_EQ(int64_t(samples.size()), record.get("samples").get<int64_t>());
    EXPECT_GE(samples.size(), 5u);
    for (const auto ms : samples) EXPECT_GT(ms, 0);
    EXPECT_GE(record.number("calls_per_sample"), 1);
    EXPECT_GE(record.number("warmup_calls"), 1);
    EXPECT_GT(record.number("time_first_ms"), 0);
    EXPECT_GT(record.number("measured_s"), record.number("time_first_ms") / 1e3);
    EXPECT_EQ(record.text("stop_reason"), "time_budget");
    // Columns of the memory. The inputs are three float32 tensors [2,3,400,8], and a fourth if there is a gradient of the output.
    const int64_t tensor = 2 * 3 * 400 * 8 * 4;
    EXPECT_EQ(record.get("input_bytes"), (backward ? 4 : 3) * tensor);
    EXPECT_EQ(record.get("output_bytes"), (backward ? 4 : 1) * tensor);
    const int64_t scores = 2 * 3 * 400 * 400 * 4;
    EXPECT_GE(record.number("peak_extra_bytes"), 2 * scores);
    EXPECT_LE(record.number("peak_extra_bytes"), 4 * scores + 8 * tensor);
    EXPECT_EQ(record.get("largest_allocation_bytes"), scores);
    EXPECT_EQ(record.number("peak_allocated_bytes"), record.number("peak_extra_bytes") + record.number("input_bytes"));
    EXPECT_EQ(record.number("peak_extra_bytes_per_sample"), record.number("peak_extra_bytes") / 2);
    if (backward) {
      EXPECT_GE(record.number("saved_bytes"), scores);
      EXPECT_LE(record.number("saved_bytes"), 2 * scores + 4 * tensor);
    } else {
      EXPECT_EQ(record.get("saved_bytes"), 0);
    }
    EXPECT_GT(record.number("rss_before_bytes"), 1 << 20);
    // Columns of the agreement and of the cost.
    EXPECT_GT(record.number("max_rel_error"), 0);
    EXPECT_LT(record.number("max_rel_error"), record.number("error_tolerance"));
    EXPECT_EQ(record.get("rows_checked"), 2 * 3 * 16);
    EXPECT_EQ(record.number("flops"), 1);
    // The driver must be able to read the record.
    EXPECT_NO_THROW(Record::parse(Json::parse(record.to_json().dump())));
  }
}

TEST(Measure, EveryRegisteredMethodIsMeasuredOnTheCpu) {
  for (const auto* entry : attn::methods()) {
    if (entry->name.starts_with("test-")) continue;
    for (const auto& [dtype, causal] : {std::pair{"float32", true}, {"float64", false}, {"bfloat16", true}}) {
      auto c = quick_case(entry->name, 200);
      c.head_dim = c.value_dim = 64;
      c.protocol = "forward_backward";
      c.dtype = dtype;
      c.causal = causal;
      c.key_lengths = causal ? "uniform" : "full";
      c.quality_seeds = 1;  // the tests of the quality take several
      const auto record = measure(c);
      if (record.text("failure_kind") == kind::unsupported) continue;
      EXPECT_TRUE(record.measured()) << entry->name << " " << dtype << ": " << record.text("reason");
      EXPECT_FALSE(record.text("implementation").empty()) << entry->name;
    }
  }
}

TEST(Measure, WrongValuesAreInvalid) {
  const auto record = expect_failure(quick_case("test-wrong-values"), kind::invalid);
  EXPECT_NEAR(record.number("max_rel_error"), 0.01, 1e-4);
  EXPECT_CONTAINS(record.text("reason"), "output disagrees with the float64 reference: relative error 0.0");
  EXPECT_CONTAINS(record.text("reason"), "accepted 0.0005");
}

TEST(Measure, AWrongGradientIsInvalidWhenTheProtocolHasABackwardPass) {
  auto c = quick_case("test-wrong-gradient");
  EXPECT_TRUE(measure(c).measured());
  c.protocol = "forward_backward";
  EXPECT_CONTAINS(expect_failure(c, kind::invalid).text("reason"), "gradient of v disagrees");
}

TEST(Measure, AMethodWhoseHeadsAndBatchEntriesDifferIsRight) {
  auto c = quick_case("test-head-slopes", 400);
  c.heads = c.kv_heads = c.value_heads = 8;
  c.batch = 5;
  for (const auto* protocol : {"forward", "forward_backward"}) {
    c.protocol = protocol;
    c.memory_limit_bytes = int64_t{1} << 32;
    const auto record = measured(c);
    EXPECT_TRUE(record.measured()) << record.text("reason");
    EXPECT_EQ(record.get("rows_checked"), 5 * 8 * 16);
  }
}

TEST(Measure, ResultsWithTheBitsOfComparedOnesAreNotComparedAgain) {
  for (const auto* protocol : {"forward", "forward_backward", "prefill", "decode"}) {
    SCOPED_TRACE(protocol);
    auto c = quick_case("linear", 300);
    c.protocol = protocol;
    c.causal = true;
    const auto first = measured(c);
    EXPECT_TRUE(first.has("max_rel_error") && first.has("rows_checked"));
    const auto digest = first.text("results_digest");
    const auto later = [&](const std::string& compared) {
      return measure(c, {.small_check = false, .compared_digest = compared});
    };
    const auto same = later(digest), other = later("0123456789abcdef");
    for (const auto& record : {same, other}) {
      EXPECT_TRUE(record.measured()) << record.text("reason");
      EXPECT_EQ(record.text("results_digest"), digest);
    }
    EXPECT_FALSE(same.has("max_rel_error") || same.has("rows_checked"));
    EXPECT_TRUE(other.has("max_rel_error") && other.has("rows_checked"));
  }
}

TEST(Measure, WrongResultsAreInvalidAlthoughOtherBitsWereCompared) {
  auto c = quick_case("test-wrong-when-long", 700);
  const auto record = measure(c, {.small_check = false, .compared_digest = "0123456789abcdef"});
  EXPECT_EQ(record.text("failure_kind"), kind::invalid);
}

TEST(Measure, NanAndInfinityAreInvalid) {
  for (const auto* method : {"test-nan", "test-infinite"})
    EXPECT_EQ(expect_failure(quick_case(method), kind::invalid).text("reason"), "NaN or infinity in the results");
}

TEST(Measure, ResultsThatAreWrongOnlyAtTheTimedSizeAreInvalid) {
  for (const auto* method : {"test-wrong-when-long", "test-wrong-last-row"}) {
    EXPECT_TRUE(measure(quick_case(method, 300)).measured()) << method;
    auto c = quick_case(method, 700);
    c.batch = c.heads = c.kv_heads = c.value_heads = 1;
    const auto record = expect_failure(c, kind::invalid);
    EXPECT_CONTAINS(record.text("reason"), "output disagrees");
    EXPECT_EQ(record.get("rows_checked"), 64);
  }
  auto backward = quick_case("test-wrong-gradient-when-long", 700);
  backward.protocol = "forward_backward";
  EXPECT_CONTAINS(expect_failure(backward, kind::invalid).text("reason"), "gradient of v disagrees");
  EXPECT_EQ(expect_failure(quick_case("test-nan-when-long", 700), kind::invalid).text("reason"),
            "NaN or infinity in the results");
}

TEST(Measure, AnExceptionOfTheMethodIsAnError) {
  EXPECT_EQ(expect_failure(quick_case("test-throws"), kind::error).text("reason"), "no luck today");
  const auto record = expect_failure(quick_case("test-throws-check"), kind::error);
  EXPECT_CONTAINS(record.text("reason"), "seven dimensions wanted");
  EXPECT_FALSE(contains(record.text("reason"), "frame #")) << "the reason must not contain a backtrace";
}

TEST(Measure, MemoryBeyondTheBudgetIsOutOfMemory) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer has an allocator and a memory map of its own";
#endif
  auto c = quick_case("test-greedy", 400);
  c.memory_limit_bytes = 256 << 20;
  EXPECT_CONTAINS(expect_failure(c, kind::oom).text("reason"), "1073741824 bytes");
  EXPECT_NO_THROW(at::empty({int64_t{1} << 28}, at::kFloat)) << "the bound must be removed after a failure";
  c.memory_limit_bytes = int64_t{3} << 30;
  EXPECT_TRUE(measure(c).measured());
}

TEST(Measure, BadAllocIsOutOfMemory) { expect_failure(quick_case("test-bad-alloc"), kind::oom); }

// The buffer that flushes the caches belongs to the harness, and the memory budget of a case is for the method alone.
TEST(Measure, TheBufferThatFlushesCachesDoesNotCountTowardsTheBudget) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer has an allocator and a memory map of its own";
#endif
  auto c = quick_case("test-right");
  c.cache = "cold";
  c.memory_limit_bytes = 32 << 20;
  const auto record = measure(c);
  EXPECT_TRUE(record.measured()) << record.text("reason");
}

TEST(Measure, WithAColdCacheASampleIsOneCall) {
  auto c = quick_case("test-right");
  c.threads = 1;  // on a busy machine, a call of several threads may never take less than a millisecond
  c.min_samples = 7;
  c.noise_target = 0;
  c.warmup_s = 0.05;
  const auto warm = measure(c);
  EXPECT_GT(warm.number("calls_per_sample"), 1);
  c.cache = "cold";
  const auto cold = measure(c);
  ASSERT_TRUE(cold.measured()) << cold.text("reason");
  EXPECT_EQ(cold.get("calls_per_sample"), 1);
  EXPECT_EQ(cold.get("samples"), 7);
}

TEST(Measure, UsesTheNumberOfThreadsOfTheCase) {
  auto c = quick_case("test-right");
  for (const int64_t threads : {1, 2}) {
    c.threads = threads;
    EXPECT_TRUE(measure(c).measured());
    EXPECT_EQ(at::get_num_threads(), threads);
  }
}

TEST(Measure, UnsupportedCasesAreSkippedWithTheReason) {
  const auto skip = [](const Case& c) {
    const auto record = measured(c);
    EXPECT_EQ(record.text("outcome"), "skipped");
    EXPECT_EQ(record.text("failure_kind"), "unsupported");
    expect_no_times(record);
    return record.text("reason");
  };
  auto c = quick_case("linear-einsum");
  c.causal = true;
  EXPECT_EQ(skip(c), "linear-einsum has no causal form");
  c = quick_case("linear");
  c.causal = true;
  c.key_len = 32;
  EXPECT_EQ(skip(c), "linear needs key_len = query_len with the causal mask");
  c = quick_case("linear");
  c.dtype = "float16";
  EXPECT_EQ(skip(c), "linear takes float16 on CUDA only");
  c = quick_case("linear");
  c.device = "cuda";
  EXPECT_EQ(skip(c), "this build has no CUDA kernels; `make cuda` builds them")
      << "there is no GPU module beside the test program";
}

TEST(Measure, InvalidMethodsOptionsAndSizesAreErrors) {
  const auto error = [](const Case& c) { return expect_failure(c, kind::error).text("reason"); };
  EXPECT_CONTAINS(error(quick_case("linaer")), "unknown method 'linaer'; known: ");
  EXPECT_CONTAINS(error(quick_case("linear-chunked:chunk=0")),
                  "linear-chunked: chunk = '0', expected a whole number from 1 to 16777216");
  auto c = quick_case("linear");
  c.key_lengths = "some";
  EXPECT_CONTAINS(error(c), "key_lengths = 'some', expected 'full', 'uniform' or a number of keys");
  c.key_lengths = "65";
  EXPECT_CONTAINS(error(c), "key_lengths = 65 is beyond key_len = 64");
  c = quick_case("linear");
  c.batch = int64_t{1} << 60;
  EXPECT_CONTAINS(error(c), "more bytes than 64-bit sizes can count");
}

TEST(Verify, ComparesEveryRow) {
  auto c = quick_case("test-right", 50);
  auto record = verify(c);
  EXPECT_TRUE(record.measured());
  EXPECT_EQ(record.get("rows_checked"), 2 * 3 * 50);
  EXPECT_LT(record.number("max_rel_error"), record.number("error_tolerance"));
  EXPECT_EQ(record.text("implementation"), "test");
  expect_no_times(record);

  EXPECT_EQ(verify(quick_case("test-wrong-values")).text("failure_kind"), "invalid");
  EXPECT_EQ(verify(quick_case("test-nan")).text("failure_kind"), "invalid");
  EXPECT_EQ(verify(quick_case("test-throws")).text("failure_kind"), "error");
  EXPECT_EQ(verify(quick_case("test-nan-when-long", 400)).text("failure_kind"), "invalid");
  c = quick_case("test-wrong-gradient");
  EXPECT_TRUE(verify(c).measured());
  c.protocol = "forward_backward";
  EXPECT_EQ(verify(c).text("failure_kind"), "invalid");
  c = quick_case("linear-einsum");
  c.causal = true;
  EXPECT_EQ(verify(c).text("failure_kind"), "unsupported");
}

TEST(Plan, GivesTheCostAndAllocatesNoTensor) {
  auto c = quick_case("softmax", int64_t{1} << 30);  // The inputs would take more than 500 GB.
  const AllocationCounter counter;
  const auto record = plan(c);
  EXPECT_EQ(counter.peak_bytes(), 0);
  EXPECT_FALSE(record.has("outcome")) << record.text("reason");
  Problem problem;
  problem.batch = 2;
  problem.heads = 3;
  problem.query_len = problem.key_len = int64_t{1} << 30;
  problem.head_dim = problem.value_dim = 8;
  const auto cost = attn::make_method("softmax")->cost(problem, Protocol::forward);
  EXPECT_EQ(record.number("flops"), cost.flops);
  EXPECT_EQ(record.number("min_bytes"), cost.min_bytes);
  EXPECT_EQ(record.number("predicted_peak_bytes"), cost.peak_bytes);
  EXPECT_GT(cost.flops, 1e19);
}

TEST(Plan, SaysWhyACaseCannotRun) {
  auto c = quick_case("linear-einsum");
  c.causal = true;
  EXPECT_EQ(plan(c).text("failure_kind"), "unsupported");
  const auto refused = [](const Case& wrong) {
    const auto record = plan(wrong);
    return record.text("failure_kind") + " " + record.text("failure_field");
  };
  EXPECT_EQ(refused(quick_case("linaer")), "unknown_method method");
  EXPECT_EQ(refused(quick_case("linear:chunks=8")), "unknown_method method") << "the method has no such option";
  EXPECT_EQ(refused(quick_case("linear-chunked:chunk=0")), "usage method");
  auto beyond = quick_case("softmax");
  beyond.key_lengths = "1000000";
  EXPECT_EQ(refused(beyond), "usage key_lengths");
  EXPECT_FALSE(plan(quick_case("test-nan")).has("outcome"));
}

TEST(Environment, HasTheColumnsOfBuildAndMachine) {
  const auto record = environment();
  for (const auto* column : {"revision", "dirty", "build", "compiler", "compiler_flags", "torch_version", "cpu_model",
                             "processors", "instruction_set", "float32_matmul_precision"})
    EXPECT_TRUE(record.has(column)) << column;
  for (const auto& column : columns()) {
    if (record.has(column.name)) {
      EXPECT_EQ(column.group, "environment") << column.name;
    }
  }
  EXPECT_EQ(record.text("float32_matmul_precision"), "highest");
}

TEST(DescribeMethods, ListsTheRegistry) {
  const auto described = describe_methods();
  const auto registered = attn::methods();
  ASSERT_EQ(described.size(), registered.size());
  for (size_t i = 0; i < described.size(); ++i) {
    const auto& method = described[i];
    EXPECT_EQ(method["name"], registered[i]->name);
    EXPECT_EQ(method["description"], registered[i]->description);
    EXPECT_EQ(method["time_order"], registered[i]->time_order);
    EXPECT_EQ(method["memory_order"], registered[i]->memory_order);
    EXPECT_EQ(method["options"].size(), registered[i]->options.size());
    for (const auto* flag : {"full", "causal", "decoding", "learned", "nan_reaches_its_rows_only"})
      EXPECT_TRUE(method["capabilities"][flag].is_boolean()) << flag;
    EXPECT_FALSE(method["capabilities"]["dtypes"].empty());
    if (method["name"] == "linear-chunked") {
      EXPECT_EQ(method["options"][0]["name"], "chunk");
      EXPECT_EQ(method["options"][0]["type"], "integer");
      EXPECT_EQ(method["options"][0]["default"], 128);
      EXPECT_EQ(method["options"][0]["min"], 1);
    }
  }
}

}  // namespace
}  // namespace attnbench
