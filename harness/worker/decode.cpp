#include "harness/worker/decode.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "harness/worker/memory.h"
#include "harness/worker/timing.h"

namespace attnbench {
namespace {

attn::Inputs part(const attn::Inputs& inputs, int64_t begin, int64_t length) {
  return {
      inputs.q.narrow(2, begin, length), inputs.k.narrow(2, begin, length), inputs.v.narrow(2, begin, length), {}, inputs.mask};
}

// A state that has taken in the first query_len tokens, and some that follow.
class Round {
 public:
  // Does not keep the inputs: they are as large as the largest states, and no part of what is measured. Tokens are laid out each
  // for itself, as a model would make them.
  Round(const Subject& subject, const attn::Inputs& inputs, int64_t tokens) : method_(*subject.method) {
    const auto position = subject.problem.query_len;
    setup_s_ = subject.device->time([&] { state_ = attn::decode_up_to(method_, inputs, position); }).wall_s;
    for (int64_t i = 0; i < tokens; ++i) {
      auto& token = tokens_.emplace_back(part(inputs, position + i, 1));
      for (auto* tensor : {&token.q, &token.k, &token.v}) *tensor = tensor->clone(at::MemoryFormat::Contiguous);
    }
  }

  at::Tensor step() {
    const auto& token = tokens_.at(next_++);
    return method_.step(*state_, token.q, token.k, token.v);
  }

  const attn::DecodingState& state() const { return *state_; }
  double setup_s() const { return setup_s_; }
  int64_t token_bytes() const {
    const auto& token = tokens_.front();
    return bytes_of({token.q, token.k, token.v});
  }

 private:
  attn::AttentionMethod& method_;
  std::unique_ptr<attn::DecodingState> state_;
  std::vector<attn::Inputs> tokens_;
  size_t next_ = 0;
  double setup_s_ = 0;
};

bool check_small(const Subject& subject, attn::Agreement& agreement, Record& record) {
  const auto problem = small_problem(subject.problem);
  const auto position = problem.query_len;
  const auto inputs = subject.make_inputs(extended(problem, kDecodedTokens));
  const auto results = attn::decode_from(*subject.method, inputs, position);
  auto selection = attn::Selection::everything(problem);
  selection.rows = at::arange(position, position + kDecodedTokens, selection.rows.options());
  agreement.include(attn::compare(*subject.method, inputs, results, attn::Protocol::decode, selection));
  return set_agreement(record, agreement, subject.method->error_tolerance(problem.dtype)) &&
         check_state(record, *subject.method, *results.state);
}

// The steps of a round, recorded in a graph: a call of it makes them all. A replay finds the state where the one before left it;
// that it goes on at the same positions changes nothing of what a step does.
std::function<void()> captured_steps(const Subject& subject, Round& round, std::vector<at::Tensor>* outputs = nullptr) {
  return subject.device->capture([&] {
    for (int64_t i = 0; i < kDecodedTokens; ++i) {
      auto output = round.step();
      if (outputs) outputs->push_back(std::move(output));
    }
  });
}

// What came of the check round.
struct Checked {
  double first_s = 0, total_s = 0;
  int64_t steps = 0;
};

// Nothing when the method is wrong; the record says so.
std::optional<Checked> check_round(const Case& c, const Subject& subject, attn::Agreement& agreement, Record& record) {
  const auto position = subject.problem.query_len;
  auto inputs = subject.make_inputs(extended(subject.problem, kDecodedTokens));
  Checked checked;
  attn::Results results;
  {
    auto& device = *subject.device;
    const auto range = device.range("check round");
    const auto bound = device.bound_memory(c.memory_limit_bytes - bytes_of({inputs.q, inputs.k, inputs.v}));
    Round round(subject, inputs, kDecodedTokens);
    std::function<void()> replay;  // the outputs live as long as it
    std::vector<at::Tensor> outputs;
    double steps_s = 0;
    if (c.graph) {
      replay = captured_steps(subject, round, &outputs);
      steps_s = device.time(replay).wall_s;
      checked.steps = kDecodedTokens;
      checked.first_s = steps_s / double(kDecodedTokens);
    }
    while (checked.steps < kCheckedSteps || (checked.steps < kDecodedTokens && steps_s < c.warmup_s)) {
      const auto seconds = device.time([&] { outputs.push_back(round.step()); }).wall_s;
      if (checked.steps++ == 0) checked.first_s = seconds;
      steps_s += seconds;
    }
    checked.total_s = round.setup_s() + steps_s;
    record.set("implementation", subject.method->implementation());
    if (!check_state(record, *subject.method, round.state())) return std::nullopt;
    results.output = at::cat(outputs, 2);
  }
  inputs = part(inputs, 0, position + checked.steps);
  auto selection = attn::Selection::random(extended(subject.problem, checked.steps), 1, subject.seed);
  selection.rows = at::linspace(double(position), double(position + checked.steps - 1), kCheckedSteps, at::kDouble)
                       .round()
                       .to(selection.rows.options());
  agreement.include(attn::compare(*subject.method, inputs, results, attn::Protocol::decode, selection));
  record.set("rows_checked", selection.count());
  if (!set_agreement(record, agreement, subject.method->error_tolerance(subject.problem.dtype))) return std::nullopt;
  set_quality(record, attn::assess(*subject.method, inputs, results, attn::Protocol::decode, selection));
  return checked;
}

// Inputs that the method took into its state without a copy would be seen as the state's.
bool memory_pass(const Subject& subject, Record& record) {
  const auto range = subject.device->range("memory");
  const auto meter = subject.device->make_meter();
  Round round(subject, subject.make_inputs(extended(subject.problem, kDecodedTokens)), 1);
  const auto token_bytes = round.token_bytes();
  meter->forget_peak();
  const bool can_reset = reset_peak_resident_bytes();
  record.set("rss_before_bytes", resident_bytes());
  at::Tensor output;
  const auto seconds = subject.device->time([&] { output = round.step(); }).wall_s;
  record.set("measured_s", record.number("measured_s") + round.setup_s() + seconds);
  record.set("output_bytes", bytes_of({output}));
  record.set("saved_bytes", int64_t{0});
  set_memory(record, subject, *meter, token_bytes, meter->peak_bytes() - token_bytes);
  if (can_reset) record.set("peak_rss_bytes", peak_resident_bytes());
  output.reset();
  return check_kept(record, round.state(), meter->current_bytes() - token_bytes);
}

}  // namespace

void measure_decode(const Case& c, const Subject& subject, const std::function<void()>& before_sample, Turns* turns,
                    Record& record) {
  const at::NoGradGuard no_grad;
  attn::Agreement agreement;
  if (!check_small(subject, agreement, record)) return;
  const auto checked = check_round(c, subject, agreement, record);
  if (!checked) return;

  auto& device = *subject.device;
  const auto bound = device.bound_memory(c.memory_limit_bytes);
  std::optional<Round> round;
  double setup_s = 0;
  const auto begin_round = [&] {
    round.reset();  // not two states at once
    round.emplace(subject, subject.make_inputs(extended(subject.problem, kDecodedTokens)), kDecodedTokens);
    setup_s += round->setup_s();
  };
  const auto stopwatch = [&](const auto& work) { return device.time(work); };
  const auto before_each = [&] {
    device.watch();
    if (before_sample) before_sample();
  };
  auto kept = device.keep_memory(c);
  Samples samples;
  {
    const auto range = device.range("samples");
    SamplingPlan sampling{0, c.min_samples, c.noise_target, c.time_budget_s, 0, turns};
    if (c.graph) {
      begin_round();
      const auto replay = slowed_down(captured_steps(subject, *round), c.injected_slowdown_percent);
      sampling.warmup_s = c.warmup_s;
      if (!before_sample) sampling.min_sample_ms = 1;
      samples = take_samples(sampling, stopwatch, replay, before_each);
      samples.divide_calls(kDecodedTokens);
    } else {
      samples = take_rounds(sampling, stopwatch, kDecodedTokens, begin_round,
                            slowed_down([&] { round->step(); }, c.injected_slowdown_percent), before_each);
    }
  }
  samples.warmup_calls += checked->steps;
  if (!check_state(record, *subject.method, round->state())) return;
  record.set("state_bytes", round->state().bytes());
  round.reset();
  kept.reset();
  record.set("measured_s", checked->total_s + setup_s + samples.total_s);
  if (!memory_pass(subject, record)) return;
  // Not before: what is wrong has no time.
  set_times(record, subject, checked->first_s, samples);
  record.set("outcome", outcome::measured);
}

void verify_decode(const Subject& subject, Record& record) {
  const auto position = subject.problem.query_len;
  const auto inputs = subject.make_inputs(extended(subject.problem, kCheckedSteps));
  const auto results = attn::decode_from(*subject.method, inputs, position);
  record.set("implementation", subject.method->implementation());
  auto steps = attn::Selection::everything(subject.problem);
  steps.rows = at::arange(position, position + kCheckedSteps, steps.rows.options());
  record.set("rows_checked", steps.count());
  const auto agreement = attn::compare(*subject.method, inputs, results, attn::Protocol::decode, steps);
  if (set_agreement(record, agreement, subject.method->error_tolerance(subject.problem.dtype)) &&
      check_state(record, *subject.method, *results.state))
    record.set("outcome", outcome::measured);
}

}  // namespace attnbench
