// Bounds times by bandwidth and arithmetic rate, and corrects the bound by cases that were measured.
#include "harness/sweep/prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/text/units.h"

namespace attnbench {
namespace {

// The min number of calls of the method that a case makes, and how many of them are timed, from the worker's plan. Plans of older
// builds do not say; then each sample counts as one call.
struct MinCalls {
  double all, timed;
};
MinCalls min_calls(const Record& planned) {
  if (planned.has("min_calls")) return {planned.number("min_calls"), planned.number("min_timed_calls")};
  return {planned.number("min_samples"), planned.number("min_samples")};
}

}  // namespace

double DeviceCeilings::rate_gflop_s(const std::string& dtype) const {
  const auto found = gflop_s.find(dtype);
  return found == gflop_s.end() ? std::nan("") : found->second;
}

Ceilings Ceilings::from_json(const Json& json) {
  Ceilings machine;
  const auto number = [](const Json& from, const std::string& name) { return from.value(name, 0.0); };
  machine.devices_["cpu"] = {
      std::max(number(json, "read_gb_s"), number(json, "copy_gb_s")),
      number(json, "array_bytes"),
      {{"float32", number(json, "fma_float32_gflop_s")}, {"float64", number(json, "fma_float64_gflop_s")}}};
  if (!json.contains("gpu") || json["gpu"].contains("unavailable")) return machine;
  const auto& gpu = json["gpu"];
  DeviceCeilings cuda{number(gpu, "copy_gb_s"), number(gpu, "array_bytes"), {}};
  for (const std::string dtype : {"float64", "float32", "float16", "bfloat16"})
    if (const auto rate = number(gpu, "matmul_" + dtype + "_gflop_s"); rate > 0) cuda.gflop_s[dtype] = rate;
  machine.devices_["cuda"] = std::move(cuda);
  return machine;
}

Ceilings Ceilings::nominal(int64_t threads) {
  const auto cores = double(threads);
  Ceilings machine;
  machine.devices_["cpu"] = {10 * cores, 0, {{"float32", 100 * cores}, {"float64", 50 * cores}}};
  machine.devices_["cuda"] = machine.devices_["cpu"];
  return machine;
}

const DeviceCeilings* Ceilings::of(const Record& record) const {
  const auto found = devices_.find(record.text("device"));
  return found == devices_.end() ? nullptr : &found->second;
}

double TimePredictor::bound_ms(const Record& record) const {
  const auto* const device = ceilings_.of(record);
  if (!device) return std::nan("");
  // A dtype whose rate was not measured counts as float32. Its rate may be higher, but it is not known by how much.
  auto rate = device->rate_gflop_s(record.text("dtype"));
  if (std::isnan(rate)) rate = device->rate_gflop_s("float32");
  const auto transfer = record.number("min_bytes") / device->bandwidth_gb_s / 1e6;
  // A method in Python need not say how many operations it takes.
  return record.has("flops") ? std::max(record.number("flops") / rate / 1e6, transfer) : transfer;
}

std::optional<double> TimePredictor::slowdown_of(const Record& record) const {
  constexpr double kMaxRatio = 100;
  const auto found = learned_.find(group(record));
  if (found == learned_.end()) return std::nullopt;
  const auto bound = bound_ms(record);
  std::optional<double> smallest;
  for (const auto& learned : found->second)
    if (!(learned.bound_ms * kMaxRatio < bound)) smallest = std::min(smallest.value_or(learned.slowdown), learned.slowdown);
  return smallest;
}

double TimePredictor::predict(const Record& record) const { return bound_ms(record) * slowdown_of(record).value_or(1); }

void TimePredictor::learn(const Record& measured) {
  const auto bound = bound_ms(measured), ratio = measured.number("time_median_ms") / bound;
  if (std::isfinite(ratio) && ratio > 0) learned_[group(measured)].push_back({bound, ratio});
}

std::string TimePredictor::group(const Record& record) {
  std::string name;
  for (const auto& field : fields())
    if (field.role == FieldRole::axis && field.kind == AxisKind::execution) name += record.get(field.name).dump() + " ";
  return name;
}

namespace {

double element_bytes(const std::string& dtype) { return dtype == "float64" ? 8 : dtype == "float32" ? 4 : 2; }

// The gigabytes of the inputs that a process draws; those of decode are the tokens before the one that is timed.
double inputs_gb(const Record& planned) {
  const auto queries = planned.number("query_len"), keys = planned.number("key_len");
  const auto head_dim = planned.number("head_dim"), value_dim = planned.number("value_dim");
  auto row = queries * head_dim + keys * (head_dim + value_dim);
  if (planned.text("protocol") == "forward_backward") row += queries * value_dim;
  return planned.number("batch") * planned.number("heads") * row * element_bytes(planned.text("dtype")) / 1e9;
}

double call_s(const Record& planned) {
  const auto ms = planned.number("predicted_time_ms");
  return std::isnan(ms) ? 0 : ms / 1e3;
}

// The number of samples after which the noise target is typically reached. The narrower the interval has to be, the more samples
// it takes.
double typical_samples(double noise_target) {
  constexpr double kFewest = 8, kScatter = 0.003;
  return noise_target > 0 ? kFewest + kScatter / (noise_target * noise_target) : std::numeric_limits<double>::infinity();
}

// The seconds in which a process starts.
double start_s(const Record& planned) {
  const auto& costs = kProcessCosts;
  return costs.start_s + (planned.has("python") ? costs.python_s : 0) + (planned.get("sets_up") == true ? costs.setup_s : 0);
}

double inputs_s(const Record& planned) { return kProcessCosts.inputs_s_per_gb * inputs_gb(planned); }

// The seconds in which the first process compares its results with the reference. Later ones find that theirs have the same bits.
double reference_s(const Record& planned) {
  const bool has_causal_gradients = planned.get("causal") == true && planned.text("protocol") == "forward_backward";
  return (kProcessCosts.reference_s_per_gb + (has_causal_gradients ? kProcessCosts.causal_gradients_s_per_gb : 0)) *
         inputs_gb(planned);
}

// The seconds of the calls that are no samples: the first call, the warm-up, the memory pass and so on.
double seconds_of_other_calls(const Record& planned) {
  const auto calls = min_calls(planned);
  const auto warmup_calls_s = std::max(planned.number("warmup_s"), call_s(planned));
  const auto others = std::max(0.0, calls.all - calls.timed - 1);  // without that of the warm-up
  const auto intermediate_gb = planned.number("predicted_peak_bytes") / 1e9 - inputs_gb(planned);
  return others * call_s(planned) + (calls.all > calls.timed ? warmup_calls_s : 0) +
         (intermediate_gb > 0 ? kProcessCosts.pages_s_per_gb * intermediate_gb : 0);
}

constexpr double kMinSampleS = 1e-3;  // shorter calls are repeated within a sample

double sampling_s(const Record& planned) {
  const auto min_s = min_calls(planned).timed * call_s(planned);
  const auto noise_s = typical_samples(planned.number("noise_target")) * std::max(kMinSampleS, call_s(planned));
  return std::max(min_s, std::min(planned.number("time_budget_s"), noise_s));
}

// The seconds in which a case and its baseline take their samples in turns, until one of them has spent its time budget.
double sampling_in_turns_s(const Record& planned, const Record& baseline) {
  constexpr double kMinTurnS = 0.01;
  const auto turn_s = std::max(kMinTurnS, call_s(planned)), other_turn_s = std::max(kMinTurnS, call_s(baseline));
  const auto turns = planned.number("time_budget_s") / std::max(turn_s, other_turn_s);
  return (1 + std::max(planned.number("min_samples"), turns)) * (turn_s + other_turn_s);  // the first turn of each warms up
}

double process_s(const Record& planned, const Record* baseline) {
  const auto own_s = start_s(planned) + inputs_s(planned) + seconds_of_other_calls(planned);
  if (!baseline || baseline->has("outcome")) return own_s + sampling_s(planned);
  // The two start side by side, and what each does before and after its turns takes its processors from the other.
  return std::max(start_s(planned), start_s(*baseline)) + kProcessCosts.beside_baseline_s + inputs_s(planned) +
         inputs_s(*baseline) + seconds_of_other_calls(planned) + seconds_of_other_calls(*baseline) +
         sampling_in_turns_s(planned, *baseline);
}

double process_count(const Record& planned) {
  return std::max(1.0, planned.has("processes") ? planned.number("processes") : 1.0);
}

}  // namespace

double predicted_case_s(const Record& planned, const Record* baseline) {
  if (planned.has("outcome")) return 0;
  const auto seeds = planned.has("quality_seeds") ? planned.number("quality_seeds") : 0;
  const bool has_baseline = baseline && !baseline->has("outcome");
  const auto first_s = kProcessCosts.small_check_s + kProcessCosts.quality_s_per_gb * seeds * inputs_gb(planned) +
                       reference_s(planned) + (has_baseline ? reference_s(*baseline) : 0);
  return process_count(planned) * std::min(process_s(planned, baseline), planned.number("deadline_s")) + first_s;
}

double predicted_sweep_s(const std::vector<Record>& planned, const std::vector<const Record*>& baselines) {
  double sum_s = 0, rounds = 0;
  for (size_t i = 0; i < planned.size(); ++i) {
    sum_s += predicted_case_s(planned[i], baselines[i]);
    if (!planned[i].has("outcome")) rounds = std::max(rounds, process_count(planned[i]));
  }
  return sum_s + rounds * kProcessCosts.ceilings_s;
}

double predicted_need_bytes(const Record& planned) {
  const auto setup = planned.number("predicted_setup_bytes");
  return std::isnan(setup) ? planned.number("predicted_peak_bytes") : std::max(planned.number("predicted_peak_bytes"), setup);
}

void predict(Record& planned, const TimePredictor& predictor) {
  if (planned.has("outcome")) return;
  const auto call_ms = predictor.predict(planned);
  planned.set("predicted_time_ms", call_ms);
  const auto need = predicted_need_bytes(planned), budget = planned.number("memory_limit_bytes");
  if (need > budget)
    return planned.set_skipped(kind::predicted_oom, fmt::format("needs {} by prediction, but its memory budget is {}",
                                                                format_bytes(need), format_bytes(budget)));
  // A predicted time can be wrong by a factor, so a case is only skipped if it would take more than twice its deadline.
  const auto min_s = min_calls(planned).all * call_ms / 1e3, deadline_s = planned.number("deadline_s");
  if (min_s > 2 * deadline_s)
    planned.set_skipped(kind::predicted_timeout, fmt::format("takes at least {} by prediction, but its deadline is {}",
                                                             format_seconds(min_s), format_seconds(deadline_s)));
}

}  // namespace attnbench
