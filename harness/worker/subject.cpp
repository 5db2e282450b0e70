#include "harness/worker/subject.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "attn/registry.h"

namespace attnbench {
namespace {

// Not a multiple of any chunk, so that the last one is partial.
constexpr int64_t kSmallLength = 300;

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

void set_predictions(const Subject& subject, Record& record) {
  const auto cost = subject.method->cost(subject.problem, subject.protocol);
  record.set("flops", cost.flops);
  record.set("min_bytes", cost.min_bytes);
  record.set("predicted_peak_bytes", cost.peak_bytes);
  if (subject.protocol == attn::Protocol::prefill)
    record.set("predicted_state_bytes", subject.method->state_bytes(subject.problem, subject.problem.query_len));
  if (subject.protocol != attn::Protocol::decode) return;
  const auto whole = extended(subject.problem, kDecodedTokens);
  const auto state_bytes = subject.method->state_bytes(whole, whole.query_len);
  record.set("predicted_state_bytes", state_bytes);
  record.set("predicted_setup_bytes", state_bytes + whole.input_bytes());
}

std::string bytes_text(double bytes) { return std::to_string(int64_t(bytes)); }

std::string state_text(const attn::DecodingState& state) {
  return "the decoding state takes " + bytes_text(double(state.bytes())) + " bytes after " + std::to_string(state.position()) +
         " tokens";
}

}  // namespace

std::optional<Subject> prepare(const Case& c, Record& record) {
  const auto found = find_device(c.device);
  Subject subject{attn::make_method(c.method),
                  problem_of(c),
                  attn::parse_protocol(c.protocol),
                  attn::parse_input_distribution(c.inputs),
                  uint64_t(c.seed),
                  found.device};
  std::string reason = found.why_none;
  if (found.device) {
    subject.problem.device = found.device->torch_device().type();
    reason = found.device->why_unsupported(c);
    if (reason.empty() && c.injected_slowdown_percent > 0 && found.device->has_own_clock())
      reason = "an injected slowdown is of the CPU: it would waste the host's time, not the device's";
    if (c.causal && c.key_len != c.query_len) reason = "causal needs key_len = query_len";
    else if (reason.empty()) reason = subject.method->why_unsupported(subject.problem, subject.protocol).value_or("");
  }
  if (!reason.empty()) {
    record.set_skipped(kind::unsupported, reason);
    return std::nullopt;
  }
  subject.problem.validate();
  subject.device->set_columns(record);
  if (c.memory_limit_bytes == 0) record.set("memory_limit_bytes", subject.device->available_bytes());
  set_predictions(subject, record);
  return subject;
}

attn::Problem extended(attn::Problem problem, int64_t more) {
  problem.query_len += more;
  problem.key_len += more;
  return problem;
}

attn::Problem small_problem(attn::Problem p) {
  p.batch = std::min<int64_t>(p.batch, 2);
  p.heads = std::min<int64_t>(p.heads, 2);
  p.query_len = std::min(p.query_len, kSmallLength);
  p.key_len = std::min(p.key_len, kSmallLength);
  p.key_lengths.length = std::min(p.key_lengths.length, p.key_len);
  return p;
}

int64_t bytes_of(std::initializer_list<at::Tensor> tensors) {
  int64_t bytes = 0;
  for (const auto& tensor : tensors)
    if (tensor.defined()) bytes += int64_t(tensor.nbytes());
  return bytes;
}

bool set_agreement(Record& record, const attn::Agreement& agreement, double tolerance) {
  record.set("max_abs_error", agreement.max_abs_error);
  record.set("max_rel_error", agreement.max_rel_error);
  record.set("error_tolerance", tolerance);
  if (agreement.within(tolerance)) return true;
  record.set_failed(kind::invalid, agreement.finite
                                       ? agreement.worst + " disagrees with the float64 reference: relative error " +
                                             Json(agreement.max_rel_error).dump() + ", accepted " + Json(tolerance).dump()
                                       : "NaN or infinity in the results");
  return false;
}

bool check_state(Record& record, const attn::AttentionMethod& method, const attn::DecodingState& state) {
  const auto expected = method.state_bytes(state.problem(), state.position());
  if (double(state.bytes()) == expected) return true;
  record.set_failed(kind::invalid, state_text(state) + ", by the method's formula " + bytes_text(expected));
  return false;
}

bool check_kept(Record& record, const attn::DecodingState& state, int64_t kept_bytes) {
  if (kept_bytes <= state.bytes()) return true;
  record.set_failed(kind::invalid, state_text(state) + " as it says, but keeps " + std::to_string(kept_bytes) + " alive");
  return false;
}

void set_times(Record& record, const Subject& subject, double first_s, const Samples& samples) {
  record.set("time_first_ms", first_s * 1e3);
  record.set("time_samples_ms", samples.ms);
  if (subject.device->has_own_clock()) record.set("wall_samples_ms", samples.wall_ms);
  record.set("samples", int64_t(samples.ms.size()));
  record.set("calls_per_sample", samples.calls_per_sample);
  record.set("warmup_calls", samples.warmup_calls);
  record.set("stop_reason", samples.stop_reason);
}

void set_memory(Record& record, const Subject& subject, const MemoryMeter& meter, int64_t input_bytes, int64_t extra_bytes) {
  record.set("input_bytes", input_bytes);
  record.set("peak_extra_bytes", extra_bytes);
  record.set("peak_allocated_bytes", input_bytes + extra_bytes);
  record.set("peak_extra_bytes_per_sample", double(extra_bytes) / double(std::max<int64_t>(1, subject.problem.batch)));
  meter.set_columns(record);
}

void set_quality(Record& record, const attn::Quality& quality) {
  if (quality.approximation_error) record.set("approximation_error", *quality.approximation_error);
  for (const auto& [column, value] : quality.diagnostics) record.set(column, value);
}

}  // namespace attnbench
