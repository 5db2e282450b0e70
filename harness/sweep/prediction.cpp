#include "harness/sweep/prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/text/units.h"

namespace attnbench {
namespace {

// The seconds that any process takes to start, to check the agreement with the reference, and to draw the inputs.
constexpr double kOverheadS = 0.6;

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
  machine.devices_["cpu"] = {5 * cores, 0, {{"float32", 50 * cores}, {"float64", 25 * cores}}};
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

double predicted_case_s(const Record& planned, double call_ms) {
  if (planned.has("outcome")) return 0;
  const auto call_s = std::isnan(call_ms) ? 0 : call_ms / 1e3;
  const auto calls = min_calls(planned);
  const auto sampling_s = std::max(calls.timed * call_s, std::min(planned.number("time_budget_s"), 1000 * call_s));
  const auto processes = std::max(1.0, planned.has("processes") ? planned.number("processes") : 1.0);
  return processes * std::min(kOverheadS + (calls.all - calls.timed) * call_s + sampling_s, planned.number("deadline_s"));
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
