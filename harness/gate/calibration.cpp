#include "harness/gate/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "harness/statistics/statistics.h"
#include "harness/text/errors.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

void check_usable(const GateSuite& suite) {
  for (const auto& c : suite.cases())
    if (!c.unusable.empty()) throw WorkerError(c.name + ": " + c.unusable);
}

// Checks the suite, and measures every case of it `recordings` times.
void record(GateSuite& suite, int recordings) {
  suite.check();
  check_usable(suite);
  std::vector<size_t> every(suite.cases().size());
  std::iota(every.begin(), every.end(), size_t{0});
  for (int n = 0; n < recordings; ++n) {
    suite.note(fmt::format("recording {} of {}", n + 1, recordings));
    suite.measure(every);
    check_usable(suite);
  }
}

double interquartile_range(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile(values, 0.75) - quantile(values, 0.25);
}

std::string percent(double share) { return fmt::format("{:.2f} %", 100 * share); }

}  // namespace

Calibration calibrate(const WorkerProgram& build, const SuiteOptions& suite_options, const GatePlan& plan,
                      const CalibrationOptions& options) {
  check_recordings(size_t(options.recordings), plan);
  GateSuite suite(suite_options, {{"base", build}, {"same", build}, {"slowed", build, options.slowdown_percent}});
  record(suite, options.recordings);
  Calibration calibration{options, plan, suite.sides()[0].environment, {}, {}, {}};
  std::vector<std::vector<double>> equal, slowed;
  for (const auto& c : suite.cases()) {
    calibration.cases.push_back({c.name, c.sides[0].medians, c.sides[2].medians, c.sides[1].log_ratios, c.sides[2].log_ratios});
    equal.push_back(c.sides[1].log_ratios);
    slowed.push_back(c.sides[2].log_ratios);
  }
  calibration.equal = resample_gate(equal, plan, options.trials, suite_options.seed);
  calibration.slowed = resample_gate(slowed, plan, options.trials, suite_options.seed + 1);
  return calibration;
}

Json json_of(const Calibration& calibration) {
  const auto& [options, plan, environment, cases, equal, slowed] = calibration;
  Json json = {{"recordings", options.recordings},
               {"trials", options.trials},
               {"injected_slowdown_percent", options.slowdown_percent},
               {"alpha", plan.criteria.alpha},
               {"min_shift", plan.criteria.min_shift},
               {"margin", plan.criteria.margin},
               {"looks", plan.looks},
               {"false_alarms_a_suite", equal.any_regression},
               {"inconclusive_suites_of_equal_builds", equal.any_inconclusive},
               {"mean_pairs_of_equal_builds", equal.mean_pairs},
               {"mean_pairs_of_slowed_builds", slowed.mean_pairs},
               {"environment",
                {{"revision", environment.get("revision")},
                 {"cpu_model", environment.get("cpu_model")},
                 {"processors", environment.get("processors")}}},
               {"cases", Json::array()}};
  for (size_t i = 0; i < cases.size(); ++i)
    json["cases"].push_back({{"name", cases[i].name},
                             {"false_alarms", equal.regression[i]},
                             {"inconclusive", equal.inconclusive[i]},
                             {"caught", slowed.regression[i]},
                             {"inconclusive_when_slowed", slowed.inconclusive[i]},
                             {"process_medians_ms", cases[i].medians_ms},
                             {"slowed_process_medians_ms", cases[i].slowed_medians_ms},
                             {"log_ratios", cases[i].log_ratios},
                             {"slowed_log_ratios", cases[i].slowed_log_ratios}});
  return json;
}

TextTable table_of(const Calibration& calibration) {
  TextTable table;
  table.add_column("case");
  for (const auto* header : {"median", "IQR of medians", "IQR of ratios", "false alarms", "inconclusive", "slowdown found",
                             "inconclusive when slowed"})
    table.add_column(header, TextTable::Align::right);
  for (size_t i = 0; i < calibration.cases.size(); ++i) {
    const auto& c = calibration.cases[i];
    const auto &equal = calibration.equal, &slowed = calibration.slowed;
    const double middle = median(c.medians_ms);
    table.add_row({c.name, format_ms(middle), percent(interquartile_range(c.medians_ms) / middle),
                   percent(interquartile_range(c.log_ratios)), percent(equal.regression[i]), percent(equal.inconclusive[i]),
                   percent(slowed.regression[i]), percent(slowed.inconclusive[i])});
  }
  return table;
}

std::string summary_of(const Calibration& calibration) {
  return fmt::format(
      "false alarms per suite: {}, of {} resampled suites of equal builds\n"
      "mean number of pairs per case: {:.1f} for equal builds, {:.1f} for builds slowed down by {:g} %\n",
      percent(calibration.equal.any_regression), calibration.options.trials, calibration.equal.mean_pairs,
      calibration.slowed.mean_pairs, calibration.options.slowdown_percent);
}

}  // namespace attnbench
