// Checks, counts and times calls on whole sequences, in the order that whole_call.h lists.
#include "harness/worker/protocols/whole_call.h"

#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "harness/worker/checks/agreement.h"
#include "harness/worker/checks/call_checks.h"
#include "harness/worker/checks/quality.h"
#include "harness/worker/checks/selection.h"
#include "harness/worker/cpu/memory.h"
#include "harness/worker/methods/diagnostics.h"
#include "harness/worker/methods/foreign_method.h"
#include "harness/worker/protocols/decode.h"
#include "harness/worker/timing/timing.h"

namespace attnbench {
namespace {

constexpr int64_t kCheckedRows = 64;

// Returns whether the results agree with the reference and the state, if there is one, has the right size. If not, records the
// failure.
bool check_results(const Subject& subject, const Agreement& agreement, const Results& results, Record& record) {
  return agreement.set_columns(record, subject.tolerance()) &&
         (!results.state || check_state(record, *subject.method, *results.state));
}

// Returns the same inputs as leaves of a new autograd graph. An existing autograd graph belongs to the CUDA stream that it was
// recorded on, but a CUDA graph is captured on another stream.
CallInputs fresh_leaves(CallInputs inputs) {
  for (const auto& spec : attn::kInputs)
    if (auto& x = inputs.*spec.member; x.defined()) x = x.detach().set_requires_grad(x.requires_grad());
  return inputs;
}

// Returns the call that is timed. It stores its results in `results`, or frees them if that is null.
std::function<void()> timed_call(const Subject& subject, const CallInputs& inputs, Results* results = nullptr) {
  const auto call_on = [&subject, results](const CallInputs& call_inputs) {
    auto made = subject.protocol->call(*subject.method, call_inputs);
    if (results) *results = std::move(made);
  };
  if (subject.c.graph) return subject.device->capture([&] { call_on(fresh_leaves(inputs)); });
  return [call_on, inputs] { call_on(inputs); };
}

// Makes and compares the first call at the case's own size. Returns its seconds, or nothing if a check fails, which the record
// then says.
std::optional<double> checked_first_call(const Subject& subject, const CallInputs& inputs, int64_t budget_bytes,
                                         Agreement& agreement, Record& record) {
  // The results take no more than the inputs, as their gradients, and an output.
  const auto used_bytes = 2 * bytes_of(inputs) + int64_t(subject.problem.output_bytes());
  const auto selection = Selection::random(subject.problem, kCheckedRows, subject.seed(), subject.need_of_reference(used_bytes));
  const auto restricted = restrict_gradient(inputs, selection);
  const InputState sums(restricted);
  auto& device = *subject.device;
  const auto range = device.range("first call");
  std::function<void()> replay;  // the CUDA graph, which owns the memory of its results
  Results first;
  Elapsed elapsed{};
  {
    const auto bound = device.bound_memory(budget_bytes);
    elapsed = device.time([&] { first = subject.protocol->call(*subject.method, restricted); });
    if (subject.c.graph) {
      replay = timed_call(subject, restricted, &first);
      device.time(replay);
    }
  }
  record.set("implementation", subject.method->implementation());
  if (!check_memory(restricted, sums, first, record)) return std::nullopt;
  if (subject.were_compared(first, record)) {
    if (first.state && !check_state(record, *subject.method, *first.state)) return std::nullopt;
    return elapsed.wall_s;
  }
  {
    // A reference of a long sequence would otherwise spend half its time in page faults, because its tensors are large.
    const auto cached = device.cache_memory(subject.c, used_bytes);
    agreement.include(compare(*subject.method, restricted, first, selection));
  }
  if (agreement.verified) record.set("rows_checked", selection.count());
  if (!check_results(subject, agreement, first, record)) return std::nullopt;
  set_diagnostics(record, *subject.method, restricted, first, selection);
  return elapsed.wall_s;
}

// Lets a method that is not compiled into this program prepare its calls, and returns the seconds that it took, if it did.
std::optional<double> set_up(const Subject& subject, const attn::Problem& problem, Record& record) {
  auto* const other = foreign(subject.method.get());
  if (!other) return std::nullopt;
  bool prepared = false;
  const auto elapsed = subject.device->time([&] { prepared = set_up(*other, problem, subject.protocol->id(), record); });
  return prepared ? std::optional(elapsed.wall_s) : std::nullopt;
}

Samples time_pass(const Subject& subject, const CallInputs& inputs, const Sampling& sampling) {
  const auto& c = subject.c;
  SamplingPlan plan{c.warmup_s, c.min_samples, c.noise_target, c.time_budget_s, 1.0, sampling.turns, sampling.watch};
  if (sampling.before_sample) plan.min_sample_ms = 0;  // a sample is one call
  auto& device = *subject.device;
  const auto cached = device.cache_memory(c, bytes_of(inputs));
  const auto range = device.range("samples");
  return take_samples(plan, device.make_sample_stopwatch(), timed_call(subject, inputs), sampling.before_sample);
}

bool memory_pass(const Subject& subject, const CallInputs& inputs, Record& record) {
  const auto range = subject.device->range("memory");
  const bool can_reset = reset_peak_resident_bytes();
  record.set("rss_before_bytes", resident_bytes());
  const auto meter = subject.device->make_meter();
  Results results;
  const auto elapsed = subject.device->time([&] { results = subject.protocol->call(*subject.method, inputs); });
  add_measured_s(record, elapsed.wall_s);
  record.set("output_bytes", bytes_of(results));
  set_memory_columns(record, *meter, bytes_of(inputs), meter->peak_bytes(), subject.problem.batch);
  if (can_reset) record.set("peak_rss_bytes", peak_resident_bytes());
  if (!results.state) return true;
  record.set("state_bytes", results.state->bytes());
  results.output.reset();
  return check_held_bytes(record, *results.state, meter->current_bytes());
}

}  // namespace

void WholeCall::measure(const Subject& subject, const Sampling& sampling, Record& record) const {
  const auto settings = ProcessSettings::now();
  Agreement agreement;
  if (subject.checks_small) {
    set_up(subject, small_problem(subject), record);
    if (!check_repeated_calls(subject, agreement, record)) return;
  }
  if (const auto seconds = set_up(subject, subject.problem, record)) record.set("setup_s", *seconds);
  const auto inputs = subject.make_inputs(subject.problem);
  const auto budget_bytes = subject.c.memory_limit_bytes - bytes_of(inputs);
  const auto first_s = checked_first_call(subject, inputs, budget_bytes, agreement, record);
  if (!first_s) return;
  Samples samples;
  {
    const auto bound = subject.device->bound_memory(budget_bytes);
    samples = time_pass(subject, inputs, sampling);
    record.set("measured_s", *first_s + samples.total_s);
    if (!memory_pass(subject, inputs, record)) return;
    record.set("saved_bytes", measure_saved_bytes(subject, inputs, record));
  }
  if (subject.takes_quality && !measure_quality(subject, record)) return;
  if (!check_settings(settings, sampling.turns, record)) return;
  if (auto* const other = foreign(subject.method.get())) record.set("call_overhead_us", other->call_overhead_us(inputs));
  set_times(record, subject, *first_s, samples, sampling.watch);
  record.set("outcome", outcome::measured);
}

std::function<void()> WholeCall::repeated(const Subject& subject, int64_t) const {
  return [this, &subject, inputs = subject.make_inputs(subject.problem)] { call(*subject.method, inputs); };
}

void WholeCall::verify(const Subject& subject, Record& record) const {
  set_up(subject, subject.problem, record);
  const auto inputs = subject.make_inputs(subject.problem);
  const InputState sums(inputs);
  const auto results = call(*subject.method, inputs);
  record.set("implementation", subject.method->implementation());
  if (!check_memory(inputs, sums, results, record)) return;
  const auto everything = Selection::everything(subject.problem);
  record.set("rows_checked", everything.count());
  const auto agreement = compare(*subject.method, inputs, results, everything);
  if (check_results(subject, agreement, results, record)) record.set("outcome", outcome::measured);
}

}  // namespace attnbench
