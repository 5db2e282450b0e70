#include "harness/worker/measure.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>

#include "attn/agreement.h"
#include "attn/registry.h"
#include "harness/worker/memory.h"
#include "harness/worker/timing.h"

namespace attnbench {
namespace {

constexpr int64_t kCheckedRows = 64;
// Not a multiple of any chunk, so that the last one is partial.
constexpr int64_t kSmallLength = 300;

struct Subject {
  std::shared_ptr<attn::AttentionMethod> method;
  attn::Problem problem;
  attn::Protocol protocol;
};

attn::Problem problem_of(const Case& c) {
  attn::Problem p;
  p.batch = c.batch;
  p.heads = c.heads;
  p.query_len = c.query_len;
  p.key_len = c.key_len;
  p.head_dim = c.head_dim;
  p.value_dim = c.value_dim;
  p.dtype = attn::parse_dtype(c.dtype);
  p.device = c10::Device(c.device).type();
  p.causal = c.causal;
  p.key_lengths = attn::KeyLengthDistribution::parse(c.key_lengths);
  return p;
}

// Nothing when the case cannot run; the record says why.
std::optional<Subject> prepare(const Case& c, Record& record) {
  Subject subject{attn::make_method(c.method), problem_of(c), attn::parse_protocol(c.protocol)};
  std::optional<std::string> reason;
  if (c.causal && c.key_len != c.query_len) reason = "causal needs key_len = query_len";
  else reason = subject.method->why_unsupported(subject.problem, subject.protocol);
  if (!reason && c.device != "cpu") reason = "this build measures on the CPU only, not on " + c.device;
  if (reason) {
    record.set_skipped(kind::unsupported, *reason);
    return std::nullopt;
  }
  subject.problem.validate();
  const auto cost = subject.method->cost(subject.problem, subject.protocol);
  record.set("flops", cost.flops);
  record.set("min_bytes", cost.min_bytes);
  record.set("predicted_peak_bytes", cost.peak_bytes);
  return subject;
}

int64_t bytes_of(std::initializer_list<at::Tensor> tensors) {
  int64_t bytes = 0;
  for (const auto& tensor : tensors)
    if (tensor.defined()) bytes += int64_t(tensor.nbytes());
  return bytes;
}

void set_agreement(Record& record, const attn::Agreement& agreement, double tolerance) {
  record.set("max_abs_error", agreement.max_abs_error);
  record.set("max_rel_error", agreement.max_rel_error);
  record.set("error_tolerance", tolerance);
  if (agreement.within(tolerance)) return;
  record.set_failed(kind::invalid, agreement.finite
                                       ? agreement.worst + " disagrees with the float64 reference: relative error " +
                                             Json(agreement.max_rel_error).dump() + ", accepted " + Json(tolerance).dump()
                                       : "NaN or infinity in the results");
}

// The same problem at a size where every row can be compared.
attn::Problem small_problem(attn::Problem p) {
  p.batch = std::min<int64_t>(p.batch, 2);
  p.heads = std::min<int64_t>(p.heads, 2);
  p.query_len = std::min(p.query_len, kSmallLength);
  p.key_len = std::min(p.key_len, kSmallLength);
  p.key_lengths.length = std::min(p.key_lengths.length, p.key_len);
  return p;
}

attn::Agreement check_small(const Subject& subject, uint64_t seed) {
  const auto problem = small_problem(subject.problem);
  const auto inputs = attn::make_inputs(problem, subject.protocol, seed);
  const auto results = attn::call(*subject.method, inputs, subject.protocol);
  return attn::compare(*subject.method, inputs, results, subject.protocol, attn::Selection::everything(problem));
}

// Evicts everything by writing more than the last-level cache holds.
class CacheFlush {
 public:
  void operator()() { buffer_.add_(1); }

 private:
  static int64_t bytes() {
    const auto last_level = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return std::clamp<int64_t>(last_level > 0 ? 2 * last_level : 0, int64_t{1} << 26, int64_t{1} << 30);
  }
  at::Tensor buffer_ = at::zeros({bytes() / 4}, at::kFloat);
};

// `before_sample` may be empty.
void time_pass(const Case& c, const Subject& subject, const attn::Inputs& inputs, const std::function<void()>& before_sample,
               Record& record) {
  SamplingPlan sampling{c.warmup_s, c.min_samples, c.noise_target, c.time_budget_s, 1.0};
  if (before_sample) sampling.min_sample_ms = 0;  // one call a sample
  const auto samples = take_samples(
      sampling, [&] { attn::call(*subject.method, inputs, subject.protocol); }, before_sample);
  record.set("time_samples_ms", samples.ms);
  record.set("samples", int64_t(samples.ms.size()));
  record.set("calls_per_sample", samples.calls_per_sample);
  record.set("warmup_calls", samples.warmup_calls);
  record.set("stop_reason", samples.stop_reason);
  record.set("measured_s", record.number("measured_s") + samples.total_s);
}

void memory_pass(const Case& c, const Subject& subject, const attn::Inputs& inputs, Record& record) {
  const auto input_bytes =
      bytes_of({inputs.q, inputs.k, inputs.v, inputs.output_gradient, inputs.mask.key_lengths.value_or(at::Tensor())});
  const bool can_reset = reset_peak_resident_bytes();
  record.set("rss_before_bytes", resident_bytes());
  const AllocationCounter counter;
  attn::Results results;
  const auto seconds = time_once([&] { results = attn::call(*subject.method, inputs, subject.protocol); });
  record.set("measured_s", record.number("measured_s") + seconds);
  record.set("input_bytes", input_bytes);
  record.set("output_bytes", bytes_of({results.output, results.q_gradient, results.k_gradient, results.v_gradient}));
  record.set("peak_extra_bytes", counter.peak_bytes());
  record.set("peak_allocated_bytes", input_bytes + counter.peak_bytes());
  record.set("peak_extra_bytes_per_sample", double(counter.peak_bytes()) / double(std::max<int64_t>(1, c.batch)));
  record.set("largest_allocation_bytes", counter.largest_bytes());
  if (can_reset) record.set("peak_rss_bytes", peak_resident_bytes());
}

// What forward leaves alive for backward: its own run, as the backward pass frees it piece by piece.
void saved_pass(const Subject& subject, const attn::Inputs& inputs, Record& record) {
  if (subject.protocol == attn::Protocol::forward) return record.set("saved_bytes", int64_t{0});
  const AllocationCounter counter;
  at::Tensor output;
  const auto seconds = time_once([&] { output = subject.method->forward(inputs.q, inputs.k, inputs.v, inputs.mask); });
  record.set("measured_s", record.number("measured_s") + seconds);
  record.set("saved_bytes", counter.current_bytes() - bytes_of({output}));
}

void measure_subject(const Case& c, const Subject& subject, Record& record) {
  const auto tolerance = attn::error_tolerance(subject.problem.dtype);
  auto agreement = check_small(subject, uint64_t(c.seed));
  set_agreement(record, agreement, tolerance);
  if (record.has("outcome")) return;

  const auto inputs = attn::make_inputs(subject.problem, subject.protocol, uint64_t(c.seed));
  const auto budget = c.memory_limit_bytes - bytes_of({inputs.q, inputs.k, inputs.v, inputs.output_gradient});
  double first_s = 0;
  {
    const auto selection = attn::Selection::random(subject.problem, kCheckedRows, uint64_t(c.seed));
    const auto restricted = attn::restrict_gradient(inputs, selection);
    attn::Results first;
    {
      const MemoryBound bound(budget);
      first_s = time_once([&] { first = attn::call(*subject.method, restricted, subject.protocol); });
    }
    record.set("implementation", subject.method->implementation());
    agreement.include(attn::compare(*subject.method, restricted, first, subject.protocol, selection));
    record.set("rows_checked", selection.count());
    set_agreement(record, agreement, tolerance);
    if (record.has("outcome")) return;
  }
  // Not before: what is wrong has no time.
  record.set("time_first_ms", first_s * 1e3);
  record.set("measured_s", first_s);
  std::function<void()> before_sample;
  if (c.cache == "cold") before_sample = CacheFlush();
  const MemoryBound bound(budget);
  time_pass(c, subject, inputs, before_sample, record);
  memory_pass(c, subject, inputs, record);
  saved_pass(subject, inputs, record);
  record.set("outcome", outcome::measured);
}

// Turns whatever `work` throws into the record's outcome.
void guarded(Record& record, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    record.set_failed(kind::oom, "the system had no more memory");
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    const bool out_of_memory =
        what.find("can't allocate memory") != std::string::npos || dynamic_cast<const c10::OutOfMemoryError*>(&error);
    record.set_failed(out_of_memory ? kind::oom : kind::error, what);
  } catch (const std::exception& error) {
    record.set_failed(kind::error, error.what());
  }
}

void use_threads(const Case& c) { at::set_num_threads(int(c.threads)); }

}  // namespace

Record measure(const Case& c) {
  Record record;
  guarded(record, [&] {
    use_threads(c);
    if (const auto subject = prepare(c, record)) measure_subject(c, *subject, record);
  });
  return record;
}

Record verify(const Case& c) {
  Record record;
  guarded(record, [&] {
    use_threads(c);
    const auto subject = prepare(c, record);
    if (!subject) return;
    const auto inputs = attn::make_inputs(subject->problem, subject->protocol, uint64_t(c.seed));
    const auto results = attn::call(*subject->method, inputs, subject->protocol);
    record.set("implementation", subject->method->implementation());
    const auto everything = attn::Selection::everything(subject->problem);
    record.set("rows_checked", everything.count());
    set_agreement(record, attn::compare(*subject->method, inputs, results, subject->protocol, everything),
                  attn::error_tolerance(subject->problem.dtype));
    if (!record.has("outcome")) record.set("outcome", outcome::measured);
  });
  return record;
}

Record plan(const Case& c) {
  Record record;
  guarded(record, [&] { prepare(c, record); });
  return record;
}

}  // namespace attnbench
