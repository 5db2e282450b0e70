#include "harness/worker/measure.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <optional>
#include <utility>

#include "harness/worker/decode.h"
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
  return set_agreement(record, agreement, subject.method->error_tolerance(problem.dtype)) &&
         (!results.state || check_state(record, *subject.method, *results.state));
}

// Leaves of a graph of their own: those of an earlier call belong to the stream it ran on.
attn::Inputs fresh_leaves(attn::Inputs inputs) {
  for (auto* input : {&inputs.q, &inputs.k, &inputs.v}) *input = input->detach().set_requires_grad(input->requires_grad());
  return inputs;
}

// A call as it is timed, its results dropped or, if they are asked for, in `results` after each call.
std::function<void()> timed_call(const Case& c, const Subject& subject, const attn::Inputs& inputs,
                                 attn::Results* results = nullptr) {
  const auto call = [&subject, inputs, results] {
    auto made = attn::call(*subject.method, inputs, subject.protocol);
    if (results) *results = std::move(made);
  };
  if (!c.graph) return call;
  return subject.device->capture([&] {
    auto made = attn::call(*subject.method, fresh_leaves(inputs), subject.protocol);
    if (results) *results = std::move(made);
  });
}

// `before_sample` may be empty.
Samples time_pass(const Case& c, const Subject& subject, const attn::Inputs& inputs, const std::function<void()>& before_sample,
                  Turns* turns) {
  SamplingPlan sampling{c.warmup_s, c.min_samples, c.noise_target, c.time_budget_s, 1.0, turns};
  if (before_sample) sampling.min_sample_ms = 0;  // one call a sample
  auto& device = *subject.device;
  const auto kept = device.keep_memory(c);
  const auto range = device.range("samples");
  return take_samples(
      sampling, [&](const auto& work) { return device.time(work); },
      slowed_down(timed_call(c, subject, inputs), c.injected_slowdown_percent),
      [&] {
        device.watch();
        if (before_sample) before_sample();
      });
}

bool memory_pass(const Subject& subject, const attn::Inputs& inputs, Record& record) {
  const auto input_bytes =
      bytes_of({inputs.q, inputs.k, inputs.v, inputs.output_gradient, inputs.mask.key_lengths.value_or(at::Tensor())});
  const auto range = subject.device->range("memory");
  const bool can_reset = reset_peak_resident_bytes();
  record.set("rss_before_bytes", resident_bytes());
  const auto meter = subject.device->make_meter();
  attn::Results results;
  const auto elapsed = subject.device->time([&] { results = attn::call(*subject.method, inputs, subject.protocol); });
  record.set("measured_s", record.number("measured_s") + elapsed.wall_s);
  record.set("output_bytes", bytes_of({results.output, results.q_gradient, results.k_gradient, results.v_gradient}));
  set_memory(record, subject, *meter, input_bytes, meter->peak_bytes());
  if (can_reset) record.set("peak_rss_bytes", peak_resident_bytes());
  if (!results.state) return true;
  record.set("state_bytes", results.state->bytes());
  results.output.reset();
  return check_kept(record, *results.state, meter->current_bytes());
}

// What forward leaves alive for backward: its own run, as the backward pass frees it piece by piece.
void saved_pass(const Subject& subject, const attn::Inputs& inputs, Record& record) {
  if (subject.protocol != attn::Protocol::forward_backward) return record.set("saved_bytes", int64_t{0});
  const auto meter = subject.device->make_meter();
  at::Tensor output;
  const auto elapsed = subject.device->time([&] { output = subject.method->forward(inputs.q, inputs.k, inputs.v, inputs.mask); });
  record.set("measured_s", record.number("measured_s") + elapsed.wall_s);
  record.set("saved_bytes", meter->current_bytes() - bytes_of({output}));
}

// The first call at this size, compared with the reference in some rows. Its seconds; nothing when it is wrong.
std::optional<double> checked_first_call(const Case& c, const Subject& subject, const attn::Inputs& inputs, int64_t budget,
                                         attn::Agreement& agreement, Record& record) {
  const auto selection = attn::Selection::random(subject.problem, kCheckedRows, subject.seed);
  const auto restricted = attn::restrict_gradient(inputs, selection);
  auto& device = *subject.device;
  const auto range = device.range("first call");
  attn::Results first;
  std::function<void()> replay;  // what it computed lives as long as it
  Elapsed elapsed{};
  {
    const auto bound = device.bound_memory(budget);
    elapsed = device.time([&] { first = attn::call(*subject.method, restricted, subject.protocol); });
    if (c.graph) {
      replay = timed_call(c, subject, restricted, &first);
      device.time(replay);
    }
  }
  record.set("implementation", subject.method->implementation());
  agreement.include(attn::compare(*subject.method, restricted, first, subject.protocol, selection));
  record.set("rows_checked", selection.count());
  if (!set_agreement(record, agreement, subject.method->error_tolerance(subject.problem.dtype))) return std::nullopt;
  if (first.state && !check_state(record, *subject.method, *first.state)) return std::nullopt;
  set_quality(record, attn::assess(*subject.method, restricted, first, subject.protocol, selection));
  first = {};
  return elapsed.wall_s;
}

void measure_subject(const Case& c, const Subject& subject, const std::function<void()>& before_sample, Turns* turns,
                     Record& record) {
  attn::Agreement agreement;
  if (!check_small(subject, agreement, record)) return;
  const auto inputs = subject.make_inputs(subject.problem);
  const auto budget = c.memory_limit_bytes - bytes_of({inputs.q, inputs.k, inputs.v, inputs.output_gradient});
  const auto first_s = checked_first_call(c, subject, inputs, budget, agreement, record);
  if (!first_s) return;
  const auto bound = subject.device->bound_memory(budget);
  const auto samples = time_pass(c, subject, inputs, before_sample, turns);
  record.set("measured_s", *first_s + samples.total_s);
  if (!memory_pass(subject, inputs, record)) return;
  saved_pass(subject, inputs, record);
  // Not before: what is wrong has no time.
  set_times(record, subject, *first_s, samples);
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

Record measure(const Case& asked, Turns* turns) {
  Record record;
  guarded(record, [&] {
    auto c = asked;
    use_threads(c);
    const auto subject = prepare(c, record);
    if (!subject) return;
    if (c.memory_limit_bytes == 0) c.memory_limit_bytes = int64_t(record.number("memory_limit_bytes"));
    std::function<void()> before_sample;
    if (c.cache == "cold") before_sample = subject->device->make_cache_flush();
    if (subject->protocol == attn::Protocol::decode) measure_decode(c, *subject, before_sample, turns, record);
    else measure_subject(c, *subject, before_sample, turns, record);
    subject->device->set_columns(record);
  });
  return record;
}

// Never inlined, so that a profiler finds it by its name and counts nothing else.
extern "C" __attribute__((noinline)) void attnbench_counted_calls(const std::function<void()>& call, int64_t count) {
  for (int64_t i = 0; i < count; ++i) call();
}

Record count(const Case& asked) {
  Record record;
  guarded(record, [&] {
    auto c = asked;
    c.threads = 1;
    use_threads(c);
    const auto subject = prepare(c, record);
    if (!subject) return;
    const auto inputs = subject->make_inputs(subject->problem);
    const auto call = [&] { attn::call(*subject->method, inputs, subject->protocol); };
    call();
    record.set("implementation", subject->method->implementation());
    const auto calls = int64_t(std::lround(double(kCountedCalls) * (1 + c.injected_slowdown_percent / 100)));
    attnbench_counted_calls(call, calls);
    record.set("outcome", outcome::measured);
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
    if (set_agreement(record, agreement, subject->method->error_tolerance(subject->problem.dtype)) &&
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
