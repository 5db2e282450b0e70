#include "harness/worker/measure.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>

#include "harness/worker/decode.h"
#include "harness/worker/kept_memory.h"
#include "harness/worker/memory.h"
#include "harness/worker/subject.h"
#include "harness/worker/timing.h"

namespace attnbench {
namespace {

constexpr int64_t kCheckedRows = 64;

bool check_small(const Subject& subject, attn::Agreement& agreement, Record& record) {
  const auto problem = small_problem(subject.problem);
  const auto inputs = subject.make_inputs(problem);
  const auto results = attn::call(*subject.method, inputs, subject.protocol);
  agreement.include(attn::compare(*subject.method, inputs, results, subject.protocol, attn::Selection::everything(problem)));
  return set_agreement(record, agreement, attn::error_tolerance(problem.dtype)) &&
         (!results.state || check_state(record, *subject.method, *results.state));
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
Samples time_pass(const Case& c, const Subject& subject, const attn::Inputs& inputs, const std::function<void()>& before_sample) {
  SamplingPlan sampling{c.warmup_s, c.min_samples, c.noise_target, c.time_budget_s, 1.0};
  if (before_sample) sampling.min_sample_ms = 0;  // one call a sample
  const KeptMemory kept(c.allocation == "kept" ? c.memory_limit_bytes / 4 : 0);
  return take_samples(
      sampling, [&] { attn::call(*subject.method, inputs, subject.protocol); }, before_sample);
}

bool memory_pass(const Case& c, const Subject& subject, const attn::Inputs& inputs, Record& record) {
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
  if (!results.state) return true;
  record.set("state_bytes", results.state->bytes());
  results.output.reset();
  return check_kept(record, *results.state, counter.current_bytes());
}

// What forward leaves alive for backward: its own run, as the backward pass frees it piece by piece.
void saved_pass(const Subject& subject, const attn::Inputs& inputs, Record& record) {
  if (subject.protocol != attn::Protocol::forward_backward) return record.set("saved_bytes", int64_t{0});
  const AllocationCounter counter;
  at::Tensor output;
  const auto seconds = time_once([&] { output = subject.method->forward(inputs.q, inputs.k, inputs.v, inputs.mask); });
  record.set("measured_s", record.number("measured_s") + seconds);
  record.set("saved_bytes", counter.current_bytes() - bytes_of({output}));
}

void measure_subject(const Case& c, const Subject& subject, const std::function<void()>& before_sample, Record& record) {
  attn::Agreement agreement;
  if (!check_small(subject, agreement, record)) return;
  const auto inputs = subject.make_inputs(subject.problem);
  const auto budget = c.memory_limit_bytes - bytes_of({inputs.q, inputs.k, inputs.v, inputs.output_gradient});
  double first_s = 0;
  {
    const auto selection = attn::Selection::random(subject.problem, kCheckedRows, subject.seed);
    const auto restricted = attn::restrict_gradient(inputs, selection);
    attn::Results first;
    {
      const MemoryBound bound(budget);
      first_s = time_once([&] { first = attn::call(*subject.method, restricted, subject.protocol); });
    }
    record.set("implementation", subject.method->implementation());
    agreement.include(attn::compare(*subject.method, restricted, first, subject.protocol, selection));
    record.set("rows_checked", selection.count());
    if (!set_agreement(record, agreement, attn::error_tolerance(subject.problem.dtype))) return;
    if (first.state && !check_state(record, *subject.method, *first.state)) return;
    set_quality(record, attn::assess(*subject.method, restricted, first, subject.protocol, selection));
  }
  const MemoryBound bound(budget);
  const auto samples = time_pass(c, subject, inputs, before_sample);
  record.set("measured_s", first_s + samples.total_s);
  if (!memory_pass(c, subject, inputs, record)) return;
  saved_pass(subject, inputs, record);
  // Not before: what is wrong has no time.
  set_times(record, first_s, samples);
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
    const auto subject = prepare(c, record);
    if (!subject) return;
    std::function<void()> before_sample;
    if (c.cache == "cold") before_sample = CacheFlush();
    if (subject->protocol == attn::Protocol::decode) measure_decode(c, *subject, before_sample, record);
    else measure_subject(c, *subject, before_sample, record);
  });
  return record;
}

Record verify(const Case& c) {
  Record record;
  guarded(record, [&] {
    use_threads(c);
    const auto subject = prepare(c, record);
    if (!subject) return;
    if (subject->protocol == attn::Protocol::decode) return verify_decode(*subject, record);
    const auto inputs = subject->make_inputs(subject->problem);
    const auto results = attn::call(*subject->method, inputs, subject->protocol);
    record.set("implementation", subject->method->implementation());
    const auto everything = attn::Selection::everything(subject->problem);
    record.set("rows_checked", everything.count());
    const auto agreement = attn::compare(*subject->method, inputs, results, subject->protocol, everything);
    if (set_agreement(record, agreement, attn::error_tolerance(subject->problem.dtype)) &&
        (!results.state || check_state(record, *subject->method, *results.state)))
      record.set("outcome", outcome::measured);
  });
  return record;
}

Record plan(const Case& c) {
  Record record;
  guarded(record, [&] { prepare(c, record); });
  return record;
}

}  // namespace attnbench
