// Makes the method, the problem and the device of a case, and refuses a case that makes no sense.
#include "harness/worker/subject.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

#include "attn/refusal.h"
#include "harness/worker/checks/digest.h"
#include "harness/worker/methods/foreign_method.h"
#include "harness/worker/methods/methods.h"
#include "harness/worker/methods/ranks.h"
#include "harness/worker/timing/injected_slowdown.h"

namespace attnbench {
namespace {

// This is not a multiple of a usual chunk size, so that the last chunk is partial.
constexpr int64_t kSmallLength = 300;

// The pattern of a case. `strided:sqrt` has the stride that Sparse Transformers take: the square root of the number of keys,
// rounded.
attn::Pattern pattern_of(const Case& c) {
  if (c.pattern != "strided:sqrt") return attn::Pattern::parse(c.pattern);
  return {.kind = attn::Pattern::Kind::strided, .size = std::max<int64_t>(1, std::llround(std::sqrt(double(c.key_len))))};
}

attn::Problem problem_of(const Case& c) {
  attn::Problem p;
  p.batch = c.batch;
  p.heads = c.heads;
  p.kv_heads = c.kv_heads;
  p.value_heads = c.value_heads;
  p.query_len = c.query_len;
  p.key_len = c.key_len;
  p.head_dim = c.head_dim;
  p.value_dim = c.value_dim;
  p.dtype = attn::parse_dtype(c.dtype);
  p.device = c10::Device(c.device).type();
  p.causal = c.causal;
  p.key_lengths = attn::KeyLengthDistribution::parse(c.key_lengths);
  p.pattern = pattern_of(c);
  p.packed = attn::PackedSequences::parse(c.packed);
  p.sinks = c.sinks;
  return p;
}

void set_predictions(const Subject& subject, Record& record) {
  const auto cost = subject.method->cost(subject.problem, subject.protocol->id());
  record.set("flops", cost.flops);
  record.set("min_bytes", cost.min_bytes);
  record.set("predicted_peak_bytes", cost.peak_bytes);
  const auto calls = subject.protocol->min_calls(subject.c.min_samples);
  record.set("min_calls", calls.timed + calls.other);
  record.set("min_timed_calls", calls.timed);
  subject.protocol->predict(subject, record);
}

// The largest length of the method's small problems.
int64_t small_length(const attn::AttentionMethod& method) {
  const auto multiple = method.capabilities().length_multiple;
  return std::max(multiple, kSmallLength - kSmallLength % multiple);
}

// Does `work` with the file of the inputs. If it throws c10::ValueError, the axis is refused.
template <class Work>
auto naming_inputs(const Case& c, const Work& work) {
  try {
    return work();
  } catch (const c10::ValueError& error) {
    throw attn::Refusal(attn::Refusal::Kind::wrong, "inputs",
                        c10::str("problem: inputs = ", c.inputs, ": ", error.what_without_backtrace()));
  }
}

// Where the inputs of the case come from. Sets the digest of a file.
InputSource source_of(const Case& c, const attn::AttentionMethod& method, const WorkerContext& context, Record& record) {
  return naming_inputs(c, [&] {
    auto source = InputSource::of(c, method.inputs(), context);
    if (source.file) record.set("inputs_digest", source.file->digest());
    return source;
  });
}

// The reason why the case cannot run on its device; empty if it can.
std::string why_unsupported(const Subject& subject) {
  const auto& c = subject.c;
  if (auto reason = subject.device->why_unsupported(c); !reason.empty()) return reason;
  if (auto reason = subject.method->why_unsupported(subject.problem, subject.protocol->id())) return *reason;
  return c.ranks > 1 ? why_not_split(c) : "";
}

}  // namespace

ReferenceNeed Subject::need_of_reference(int64_t used_bytes) const {
  const auto* const other = foreign(method.get());
  return {.budget_bytes = double(c.memory_limit_bytes - used_bytes),
          .with_gradients = protocol->id() == attn::Protocol::forward_backward,
          .all_rows = other && other->reference_computes_all_rows()};
}

bool Subject::were_compared(const Results& results, Record& record) const {
  const auto digest = digest_of(results);
  record.set("results_digest", digest);
  return digest == compared_digest;
}

void restore_settings(const ProcessSettings& before, const std::string& what, Record& record) {
  const auto changes = before.changes(ProcessSettings::now());
  if (changes.empty()) return;
  before.restore();
  const auto earlier = record.text("settings_restored"), text = what + " changed " + changes;
  if (earlier.find(text) == std::string::npos)  // The setup runs twice, also for the small problem.
    record.set("settings_restored", (earlier.empty() ? "" : earlier + "; ") + text);
}

bool set_up(ForeignMethod& method, const attn::Problem& problem, attn::Protocol protocol, Record& record) {
  const auto settings = ProcessSettings::now();
  const bool prepared = method.set_up(problem, protocol);
  restore_settings(settings, "setup", record);
  return prepared;
}

bool check_settings(const ProcessSettings& before, const Turns* turns, Record& record) {
  const auto now = ProcessSettings::now();
  const auto changes = (turns ? before.with_processors_of(now) : before).changes(now);
  if (changes.empty()) return true;
  before.restore();
  record.set_failed(kind::invalid, "a call changed " + changes + ", but the record states the settings before");
  return false;
}

std::optional<Subject> prepare(const Case& c, const WorkerContext& context, Record& record) {
  const auto found = find_device(c.device);
  // A file with methods may change settings when it is imported. They are restored, so that the case runs with those that the
  // record states.
  const auto settings = ProcessSettings::now();
  auto made = make_method(c.method, context);
  restore_settings(settings, "the import", record);
  auto source = source_of(c, *made, context, record);
  Subject subject{c, std::move(made), problem_of(c), &find_protocol(c.protocol), std::move(source), found.device, context};
  if (const auto digest = method_digest(c.method); !digest.empty()) {
    record.set("method_digest", digest);
    record.set("python", python_version());
    const auto* const method = foreign(subject.method.get());
    if (const auto name = method->shown_name(); !name.empty()) record.set("method_label", name);
    record.set("sets_up", method->has_setup());
    record.set("time_order", method->time_order(subject.protocol->id()));
    record.set("memory_order", method->memory_order(subject.protocol->id()));
  }
  if (!found.device) {
    record.set_skipped(kind::unsupported, found.why_none);
    return std::nullopt;
  }
  subject.problem.device = found.device->torch_device().type();
  if (const auto reason = why_unsupported(subject); !reason.empty()) {
    record.set_skipped(kind::unsupported, reason);
    return std::nullopt;
  }
  subject.problem.validate();
  if (const auto& file = subject.source.file)
    naming_inputs(c, [&] { file->check(subject.protocol->largest_problem(subject.problem)); });
  subject.device->set_columns(record);
  if (c.memory_limit_bytes == 0) {
    subject.c.memory_limit_bytes = subject.device->available_bytes();
    record.set("memory_limit_bytes", subject.c.memory_limit_bytes);
  }
  set_predictions(subject, record);
  return subject;
}

attn::Problem extended(attn::Problem problem, int64_t more) {
  problem.query_len += more;
  problem.key_len += more;
  return problem;
}

attn::Problem small_problem(const Subject& subject) {
  auto p = problem_of(subject.c.small(small_length(*subject.method)));
  p.device = subject.problem.device;
  p.key_lengths.length = std::min(p.key_lengths.length, p.key_len);
  return p;
}

Case small_case(const Case& c, const WorkerContext& context) {
  std::shared_ptr<attn::AttentionMethod> method;
  try {
    method = make_method(c.method, context);
  } catch (const c10::Error&) {
    return c;  // verify() will report the error.
  }
  return c.small(small_length(*method));
}

void add_measured_s(Record& record, double seconds) { record.set("measured_s", record.number("measured_s") + seconds); }

void set_times(Record& record, const Subject& subject, double first_s, const Samples& samples, const SampleWatch* watch) {
  record.set("time_first_ms", first_s * 1e3);
  record.set("time_samples_ms", slowed_down(samples.ms, subject.c.injected_slowdown_percent));
  if (subject.device->has_own_clock()) {
    record.set("wall_samples_ms", slowed_down(samples.wall_ms, subject.c.injected_slowdown_percent));
    record.set("samples_with_launches", samples.with_launches);
  }
  record.set("samples", int64_t(samples.ms.size()));
  record.set("calls_per_sample", samples.calls_per_sample);
  record.set("warmup_calls", samples.warmup_calls);
  record.set("stop_reason", samples.stop_reason);
  if (!watch) return;
  record.set("sample_disturbances", watch->shares());
  watch->set_columns(record);
}

}  // namespace attnbench
