// Sums up the processes of models with the estimates for pairs that `attnbench compare` uses.
#include "harness/experiments/model_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "harness/text/json_numbers.h"

namespace attnbench {
namespace {

using Rounds = std::map<int, Json>;  // by round: the last record that was measured

Rounds rounds_of(const std::vector<Json>& records, const std::string& model, const std::string& phase,
                 const std::string& variant) {
  Rounds found;
  for (const auto& record : records) {
    const auto process = model_process_of(record);
    if (record.value("outcome", "") == outcome::measured && process.model == model && process.phase == phase &&
        process.variant == variant)
      found[process.round] = record;
  }
  return found;
}

std::optional<ModelTimes> times_of(const Rounds& rounds) {
  if (rounds.empty()) return {};
  ModelTimes times;
  std::vector<double> bytes;
  for (const auto& [round, record] : rounds) {
    times.seconds.push_back(number_in(record, "seconds"));
    bytes.push_back(number_in(record, "peak_extra_bytes"));
  }
  times.median_s = median(times.seconds);
  times.peak_extra_bytes = median(bytes);
  return times;
}

std::optional<RatioEstimate> ratio_of(const Rounds& a, const Rounds& b) {
  std::vector<double> logs;
  for (const auto& [round, record] : a)
    if (const auto other = b.find(round); other != b.end())
      logs.push_back(std::log(number_in(record, "seconds") / number_in(other->second, "seconds")));
  if (logs.empty()) return {};
  return estimate_paired_ratio(logs);
}

// The largest relative difference of two lists of losses, and how many were compared.
std::pair<double, size_t> difference_of_losses(const Rounds& a, const Rounds& b) {
  if (a.empty() || b.empty()) return {std::nan(""), 0};
  const auto &first = a.begin()->second.at("losses"), &second = b.begin()->second.at("losses");
  const auto count = std::min(first.size(), second.size());
  double largest = 0;
  for (size_t k = 0; k < count; ++k) {
    const double x = first[k].get<double>(), y = second[k].get<double>();
    largest = std::max(largest, std::abs(y - x) / std::abs(x));
  }
  return {largest, count};
}

// By part: the seconds forward and backward. The rest has the name "".
std::map<std::string, double> parts_of(const Rounds& rounds) {
  std::map<std::string, double> parts;
  if (rounds.empty()) return parts;
  const auto& record = rounds.begin()->second;
  double rest = number_in(record, "seconds");
  for (const auto& [name, times] : record.at("parts_s").items()) {
    parts[name] = number_in(times, "forward") + number_in(times, "backward");
    rest -= parts[name];
  }
  parts[""] = rest;
  return parts;
}

std::string ratio_text(const RatioEstimate& estimate) {
  const auto& [low, high] = estimate.ratio.interval;
  const auto value = fmt::format("{:.3g}", std::exp(estimate.ratio.estimate));
  if (estimate.scope == IntervalScope::none || !std::isfinite(low)) return value;
  return fmt::format("{} ({:.3g} to {:.3g})", value, std::exp(low), std::exp(high));
}

// An aim of a ratio: at least `bound` or, if `at_most`, at most that.
ModelAim aim_of(const std::string& text, const std::optional<RatioEstimate>& found, double bound, bool at_most = false) {
  if (!found) return {text, "–", "not measured"};
  const double sign = at_most ? -1 : 1, aim = sign * std::log(bound);
  const auto& [low, high] = found->ratio.interval;
  const double worst = at_most ? -high : low, estimate = sign * found->ratio.estimate;
  const bool is_sure = found->scope == IntervalScope::across_processes && worst >= aim;
  return {text, ratio_text(*found), estimate < aim ? "missed" : is_sure ? "reached" : "reached by the estimate alone"};
}

// That something is not slower, which is missed only where the whole interval says that it is.
ModelAim not_slower(const std::string& text, const std::optional<RatioEstimate>& found) {
  if (!found) return {text, "–", "not measured"};
  const bool is_slower = excludes_equality(*found) && found->ratio.estimate < 0;
  return {text, ratio_text(*found), is_slower ? "missed" : "reached"};
}

ModelAim at_most(const std::string& text, double found, double bound) {
  return {text, number_text(found, "{:.2g}"), std::isnan(found) ? "not measured" : found <= bound ? "reached" : "missed"};
}

Json json_of_estimate(const std::optional<RatioEstimate>& estimate) {
  if (!estimate) return {};
  const auto& [low, high] = estimate->ratio.interval;
  const bool is_known = std::isfinite(low) && std::isfinite(high);
  return {{"estimate", finite_or_null(std::exp(estimate->ratio.estimate))},
          {"low", is_known ? Json(std::exp(low)) : Json()},
          {"high", is_known ? Json(std::exp(high)) : Json()},
          {"processes", estimate->processes},
          {"scope", scope_name(estimate->scope)}};
}

Json json_of_times(const std::optional<ModelTimes>& times) {
  if (!times) return {};
  return {
      {"median_s", times->median_s}, {"seconds", times->seconds}, {"peak_extra_bytes", finite_or_null(times->peak_extra_bytes)}};
}

}  // namespace

const ModelPhaseSummary* ModelSummary::phase(const std::string& name) const {
  const auto found = std::find_if(phases.begin(), phases.end(), [&](const auto& phase) { return phase.name == name; });
  return found == phases.end() ? nullptr : &*found;
}

std::vector<ModelSummary> model_summaries(const std::vector<ModelEntry>& models, const std::vector<Json>& records) {
  std::vector<ModelSummary> summaries;
  for (const auto& model : models) {
    ModelSummary summary = {.model = model, .phases = {}, .parts = {}, .passed_on = Json::object()};
    bool is_measured = false;
    for (const auto& record : records) {
      if (record.value("outcome", "") != outcome::measured || model_process_of(record).model != model.name) continue;
      is_measured = true;
      summary.parameters = number_in(record, "parameters");
      if (model_process_of(record).variant != model_variant::attnbench) continue;
      const auto passed_on = record.value("passed_on", Json::object());
      for (const auto& [op, reasons] : passed_on.items())
        for (const auto& [reason, count] : reasons.items()) {
          auto& sum = summary.passed_on[op][reason];
          sum = (sum.is_null() ? 0 : sum.get<int64_t>()) + count.get<int64_t>();
        }
    }
    if (!is_measured) continue;
    const auto rounds = [&](const std::string& phase, const char* variant) {
      return rounds_of(records, model.name, phase, variant);
    };
    for (const auto& phase : model.phases) {
      if (!phase.is_timed) continue;
      const auto theirs = rounds(phase.name, model_variant::transformers);
      const auto ours = rounds(phase.name, model_variant::attnbench), floor = rounds(phase.name, model_variant::floor);
      summary.phases.push_back({.name = phase.name,
                                .transformers = times_of(theirs),
                                .attnbench = times_of(ours),
                                .floor = times_of(floor),
                                .speedup = ratio_of(theirs, ours),
                                .to_floor = ratio_of(ours, floor)});
    }
    const auto logits = rounds("logits", model_variant::attnbench);
    summary.logits_error = logits.empty() ? std::nan("") : number_in(logits.begin()->second, "max_rel_error");
    std::tie(summary.losses_error, summary.steps) =
        difference_of_losses(rounds("losses", model_variant::transformers), rounds("losses", model_variant::attnbench));
    const auto theirs = parts_of(rounds("profile", model_variant::transformers));
    const auto ours = parts_of(rounds("profile", model_variant::attnbench));
    for (const auto& [name, seconds] : theirs)
      if (const auto found = ours.find(name); found != ours.end()) summary.parts.push_back({name, seconds, found->second});
    std::sort(summary.parts.begin(), summary.parts.end(),
              [](const auto& a, const auto& b) { return a.transformers_s > b.transformers_s; });
    summaries.push_back(std::move(summary));
  }
  return summaries;
}

std::vector<ModelAim> model_aims(const std::vector<ModelSummary>& summaries) {
  std::vector<ModelAim> aims;
  const auto speedup = [](const ModelSummary& summary, const char* name) {
    const auto* const phase = summary.phase(name);
    return phase ? phase->speedup : std::nullopt;
  };
  for (const auto& summary : summaries) {
    const auto& name = summary.model.name;
    if (summary.model.op == "chunk_gated_delta_rule") {
      const auto* const step = summary.phase("step");
      aims.push_back(aim_of(name + ": a training step is at least 2 times as fast", speedup(summary, "step"), 2));
      aims.push_back(aim_of(name + ": the operator inside it is at least 12 times as fast", speedup(summary, "operator"), 12));
      aims.push_back(aim_of(name + ": a training step takes at most 1.3 times as long as with an operator that computes nothing",
                            step ? step->to_floor : std::nullopt, 1.3, /*at_most=*/true));
      aims.push_back(not_slower(name + ": a prefill is not slower", speedup(summary, "prefill")));
      aims.push_back(not_slower(name + ": generation is not slower", speedup(summary, "generation")));
      aims.push_back(aim_of(name + ": generation is at least 1.05 times as fast", speedup(summary, "generation"), 1.05));
    }
    aims.push_back(at_most(name + ": logits differ by at most 1e-4 of the largest", summary.logits_error, 1e-4));
    aims.push_back(
        at_most(fmt::format("{}: losses differ by at most 1e-3 of themselves at each of {} steps", name, summary.steps),
                summary.losses_error, 1e-3));
  }
  return aims;
}

Json to_json(const std::vector<ModelSummary>& summaries, const std::vector<ModelAim>& aims, const ModelSettings& settings) {
  Json models = Json::array();
  for (const auto& summary : summaries) {
    Json phases = Json::object(), parts = Json::array();
    for (const auto& phase : summary.phases)
      phases[phase.name] = {{"transformers", json_of_times(phase.transformers)},
                            {"attnbench", json_of_times(phase.attnbench)},
                            {"floor", json_of_times(phase.floor)},
                            {"speedup", json_of_estimate(phase.speedup)},
                            {"to_floor", json_of_estimate(phase.to_floor)}};
    for (const auto& part : summary.parts)
      parts.push_back({{"name", part.name}, {"transformers_s", part.transformers_s}, {"attnbench_s", part.attnbench_s}});
    models.push_back({{"name", summary.model.name},
                      {"shaped_like", summary.model.shaped_like},
                      {"operator", summary.model.op},
                      {"parameters", finite_or_null(summary.parameters)},
                      {"phases", phases},
                      {"logits_error", finite_or_null(summary.logits_error)},
                      {"losses_error", finite_or_null(summary.losses_error)},
                      {"steps", summary.steps},
                      {"parts", parts},
                      {"passed_on", summary.passed_on}});
  }
  Json aims_json = Json::array();
  for (const auto& aim : aims) aims_json.push_back({{"aim", aim.text}, {"found", aim.found}, {"verdict", aim.verdict}});
  return {{"settings", process_settings(settings)}, {"models", models}, {"aims", aims_json}};
}

}  // namespace attnbench
