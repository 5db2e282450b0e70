// Implements the protocol decode: rounds of steps that begin from a state after query_len tokens, and the checks of states.
#include "harness/worker/protocols/decode.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/worker/checks/agreement.h"
#include "harness/worker/checks/selection.h"
#include "harness/worker/cpu/memory.h"
#include "harness/worker/methods/diagnostics.h"
#include "harness/worker/protocols/protocol.h"
#include "harness/worker/subject.h"
#include "harness/worker/timing/timing.h"

namespace attnbench {
namespace {

constexpr int64_t kTimedSteps = kStepsPerRound - kWarmupSteps;

std::string state_text(const attn::DecodingState& state) {
  return "the decoding state holds " + std::to_string(state.bytes()) + " bytes after " + std::to_string(state.position()) +
         " tokens";
}

// A decoding state that has taken in the first query_len tokens of the inputs, and the tokens for the steps that follow.
class Round {
 public:
  // Does not hold on to the inputs, which can be as large as the largest states and are not part of the measurement. The tokens
  // of the steps are copied into memory of their own, because a model would compute them one by one.
  Round(const Subject& subject, const CallInputs& inputs, int64_t steps) : method_(*subject.method) {
    const auto position = subject.problem.query_len;
    setup_s_ = subject.device->time([&] { state_ = decode_up_to(method_, inputs, position); }).wall_s;
    for (int64_t i = 0; i < steps; ++i) {
      auto& token = tokens_.emplace_back(inputs.tokens(position + i, 1));
      for (const auto& spec : attn::kInputs)
        if (auto& x = token.*spec.member; x.defined()) x = x.clone(at::MemoryFormat::Contiguous);
    }
  }

  at::Tensor step() { return method_.step(*state_, tokens_.at(next_++)); }

  const attn::DecodingState& state() const { return *state_; }
  double setup_s() const { return setup_s_; }
  int64_t token_bytes() const { return bytes_of(tokens_.front()); }

 private:
  attn::AttentionMethod& method_;
  std::unique_ptr<attn::DecodingState> state_;
  std::vector<attn::Inputs> tokens_;
  size_t next_ = 0;
  double setup_s_ = 0;
};

// The inputs of a round: the problem's tokens, followed by those of the steps.
CallInputs round_inputs(const Subject& subject) { return subject.make_inputs(extended(subject.problem, kStepsPerRound)); }

// Selects the `count` steps that follow the problem's tokens, in all batch entries and heads.
Selection all_steps(const attn::Problem& problem, int64_t count) {
  auto selection = Selection::everything(problem);
  selection.rows = at::arange(problem.query_len, problem.query_len + count, selection.rows.options());
  return selection;
}

bool check_small(const Subject& subject, Agreement& agreement, Record& record) {
  const auto problem = small_problem(subject);
  const auto inputs = subject.make_inputs(extended(problem, kStepsPerRound));
  const auto results = decode_from(*subject.method, inputs, problem.query_len);
  agreement.include(compare(*subject.method, inputs, results, all_steps(problem, kStepsPerRound)));
  return agreement.set_columns(record, subject.tolerance()) && check_state(record, *subject.method, *results.state);
}

// Captures the next `count` steps of a round in a graph; each call of the result makes all of them. A replay starts with the
// state as the previous replay left it, and writes its tokens to the same positions again. This does not change the work of a
// step.
std::function<void()> captured_steps(const Subject& subject, Round& round, int64_t count,
                                     std::vector<at::Tensor>* outputs = nullptr) {
  return subject.device->capture([&] {
    for (int64_t i = 0; i < count; ++i) {
      auto output = round.step();
      if (outputs) outputs->push_back(std::move(output));
    }
  });
}

// The wall times and the number of steps of the check round.
struct CheckRound {
  double first_s = 0;  // of the first step
  double total_s = 0;  // of all steps and of filling the state
  int64_t steps = 0;
};

// Makes the steps of the check round and returns their results. Returns nothing if the state has the wrong size, which the record
// then says.
std::optional<Results> run_check_round(const Subject& subject, const CallInputs& inputs, CheckRound& done, Record& record) {
  const auto& c = subject.c;
  auto& device = *subject.device;
  const auto range = device.range("check round");
  const auto bound = device.bound_memory(c.memory_limit_bytes - bytes_of(inputs));
  Round round(subject, inputs, kStepsPerRound);
  std::function<void()> replay;  // the graph, which owns the memory of the outputs
  std::vector<at::Tensor> outputs;
  double steps_s = 0;
  if (c.graph) {
    replay = captured_steps(subject, round, kStepsPerRound, &outputs);
    steps_s = device.time(replay).wall_s;
    done.steps = kStepsPerRound;
    done.first_s = steps_s / double(kStepsPerRound);
  }
  while (done.steps < kCheckedSteps || (done.steps < kStepsPerRound && steps_s < c.warmup_s)) {
    const auto seconds = device.time([&] { outputs.push_back(round.step()); }).wall_s;
    if (done.steps++ == 0) done.first_s = seconds;
    steps_s += seconds;
  }
  done.total_s = round.setup_s() + steps_s;
  record.set("implementation", subject.method->implementation());
  if (!check_state(record, *subject.method, round.state())) return std::nullopt;
  Results results;
  results.output = at::cat(outputs, 2);
  results.decoded = true;
  return results;
}

// Makes and compares the steps of the check round. Returns nothing if a check fails, which the record then says.
std::optional<CheckRound> check_round(const Subject& subject, Agreement& agreement, Record& record) {
  auto inputs = round_inputs(subject);
  CheckRound done;
  const auto results = run_check_round(subject, inputs, done, record);
  if (!results) return std::nullopt;
  if (subject.were_compared(*results, record)) return done;

  const auto position = subject.problem.query_len;
  static_cast<attn::Inputs&>(inputs) = inputs.tokens(0, position + done.steps);
  auto selection =
      Selection::random(extended(subject.problem, done.steps), 1, subject.seed(), subject.need_of_reference(bytes_of(inputs)));
  selection.rows = at::linspace(double(position), double(position + done.steps - 1), kCheckedSteps, at::kDouble)
                       .round()
                       .to(selection.rows.options());
  agreement.include(compare(*subject.method, inputs, *results, selection));
  if (agreement.verified) record.set("rows_checked", selection.count());
  if (!agreement.set_columns(record, subject.tolerance())) return std::nullopt;
  set_diagnostics(record, *subject.method, inputs, *results, selection);
  return done;
}

// The timed rounds.
struct Rounds {
  Samples samples;            // of single steps
  double setup_s = 0;         // wall time spent filling the states of all rounds
  std::optional<Round> last;  // the last round, whose state is checked
};

void time_rounds(const Subject& subject, const Sampling& sampling, Rounds& rounds) {
  const auto& c = subject.c;
  auto& device = *subject.device;
  const auto range = device.range("samples");
  const auto begin_round = [&] {
    rounds.last.reset();  // frees the old state first, so that there are never two states
    rounds.last.emplace(subject, round_inputs(subject), kStepsPerRound);
    rounds.setup_s += rounds.last->setup_s();
  };
  const auto stopwatch = device.make_sample_stopwatch();
  SamplingPlan plan{0, c.min_samples, c.noise_target, c.time_budget_s, 0, sampling.turns, sampling.watch};
  if (c.graph) {
    begin_round();
    // What flushes the cache before each sample must run before each step, so that the graph then has a single step.
    const auto steps = sampling.before_sample ? 1 : kStepsPerRound;
    const auto replay = captured_steps(subject, *rounds.last, steps);
    plan.warmup_s = c.warmup_s;
    if (!sampling.before_sample) plan.min_sample_ms = 1;
    rounds.samples = take_samples(plan, stopwatch, replay, sampling.before_sample);
    rounds.samples.divide_calls(steps);
  } else {
    rounds.samples = take_rounds(
        plan, stopwatch, {kWarmupSteps, kTimedSteps}, begin_round, [&] { rounds.last->step(); }, sampling.before_sample);
  }
}

// Measures the memory of one step. The inputs are freed before the step. If the state holds views of them instead of copies, they
// stay in memory, and the meter counts them as the state's.
bool memory_pass(const Subject& subject, Record& record) {
  const auto range = subject.device->range("memory");
  const auto meter = subject.device->make_meter();
  Round round(subject, round_inputs(subject), 1);
  const auto token_bytes = round.token_bytes();
  meter->reset_peak();
  const bool can_reset = reset_peak_resident_bytes();
  record.set("rss_before_bytes", resident_bytes());
  at::Tensor output;
  const auto seconds = subject.device->time([&] { output = round.step(); }).wall_s;
  add_measured_s(record, round.setup_s() + seconds);
  record.set("output_bytes", bytes_of(output));
  record.set("saved_bytes", int64_t{0});
  set_memory_columns(record, *meter, token_bytes, meter->peak_bytes() - token_bytes, subject.problem.batch);
  if (can_reset) record.set("peak_rss_bytes", peak_resident_bytes());
  output.reset();
  return check_held_bytes(record, round.state(), meter->current_bytes() - token_bytes);
}

class Decode final : public MeasuringProtocol {
 public:
  attn::Protocol id() const override { return attn::Protocol::decode; }

  Results call(attn::AttentionMethod&, const CallInputs&) const override {
    TORCH_CHECK_VALUE(false, "protocol decode has no call on whole sequences, only steps of a decoding state");
  }

  std::function<void()> repeated(const Subject& subject, int64_t most) const override {
    const auto round = std::make_shared<Round>(subject, subject.make_inputs(extended(subject.problem, most)), most);
    return [round] {
      const at::NoGradGuard no_grad;
      round->step();
    };
  }

  attn::Problem largest_problem(const attn::Problem& problem) const override { return extended(problem, kStepsPerRound); }

  // There are only whole rounds. The calls that are not timed are their warm-up, the steps of the check round and that of the
  // memory pass.
  MinCalls min_calls(int64_t min_samples) const override {
    const auto rounds = std::max<int64_t>(1, (min_samples + kTimedSteps - 1) / kTimedSteps);
    return {rounds * kTimedSteps, rounds * kWarmupSteps + kCheckedSteps + 1};
  }

  void predict(const Subject& subject, Record& record) const override {
    const auto whole = extended(subject.problem, kStepsPerRound);
    const auto state_bytes = subject.method->state_bytes(whole, whole.query_len);
    record.set("predicted_state_bytes", state_bytes);
    record.set("predicted_setup_bytes", state_bytes + whole.input_bytes());
  }

  void verify(const Subject& subject, Record& record) const override {
    const auto inputs = subject.make_inputs(extended(subject.problem, kCheckedSteps));
    const auto results = decode_from(*subject.method, inputs, subject.problem.query_len);
    record.set("implementation", subject.method->implementation());
    const auto steps = all_steps(subject.problem, kCheckedSteps);
    record.set("rows_checked", steps.count());
    const auto agreement = compare(*subject.method, inputs, results, steps);
    if (agreement.set_columns(record, subject.tolerance()) && check_state(record, *subject.method, *results.state))
      record.set("outcome", outcome::measured);
  }

  void measure(const Subject& subject, const Sampling& sampling, Record& record) const override {
    const at::NoGradGuard no_grad;
    const auto settings = ProcessSettings::now();
    Agreement agreement;
    if (subject.checks_small && !check_small(subject, agreement, record)) return;
    const auto checked = check_round(subject, agreement, record);
    if (!checked) return;

    const auto bound = subject.device->bound_memory(subject.c.memory_limit_bytes);
    Rounds rounds;
    {
      const auto cached = subject.device->cache_memory(subject.c, /*input_bytes=*/0);
      time_rounds(subject, sampling, rounds);
      rounds.samples.warmup_calls += checked->steps;
      if (!check_state(record, *subject.method, rounds.last->state())) return;
      record.set("state_bytes", rounds.last->state().bytes());
      rounds.last.reset();
    }
    record.set("measured_s", checked->total_s + rounds.setup_s + rounds.samples.total_s);
    if (!memory_pass(subject, record)) return;
    if (!check_settings(settings, sampling.turns, record)) return;
    // Times are set last, so that a record of a wrong result never carries a time.
    set_times(record, subject, checked->first_s, rounds.samples, sampling.watch);
    if (subject.takes_quality && subject.c.quality_seeds > 0)
      record.set("quality_not_scored", "a decoding step has few rows; the protocols forward and prefill score the same method");
    record.set("outcome", outcome::measured);
  }
};

}  // namespace

const MeasuringProtocol& decode_protocol() {
  static const Decode protocol;
  return protocol;
}

std::unique_ptr<attn::DecodingState> decode_up_to(attn::AttentionMethod& method, const CallInputs& inputs, int64_t position) {
  const at::NoGradGuard no_grad;
  auto state = method.begin_decoding(attn::problem_of(inputs, method.inputs()));
  if (position > 0) method.extend(*state, inputs.tokens(0, position));
  return state;
}

Results decode_from(attn::AttentionMethod& method, const CallInputs& inputs, int64_t position) {
  const at::NoGradGuard no_grad;
  Results results;
  results.decoded = true;
  results.state = decode_up_to(method, inputs, position);
  std::vector<at::Tensor> outputs;
  for (auto i = position; i < inputs.q.size(2); ++i) outputs.push_back(method.step(*results.state, inputs.tokens(i, 1)));
  results.output = at::cat(outputs, 2);
  return results;
}

bool check_state(Record& record, const attn::AttentionMethod& method, const attn::DecodingState& state) {
  const auto expected = method.state_bytes(state.problem(), state.position());
  if (std::isnan(expected) || double(state.bytes()) == expected) return true;
  record.set_failed(kind::invalid, state_text(state) + ", but the method's formula gives " + std::to_string(int64_t(expected)));
  return false;
}

bool check_held_bytes(Record& record, const attn::DecodingState& state, int64_t held_bytes) {
  if (held_bytes <= state.bytes()) return true;
  record.set_failed(kind::invalid,
                    state_text(state) + " by its own account, but keeps " + std::to_string(held_bytes) + " in use");
  return false;
}

}  // namespace attnbench
