// Records many pairs of a suite, and estimates from them how often the gate gives each verdict.
#include "harness/gate/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "attn/former_options.h"
#include "harness/files/text_file.h"
#include "harness/gate/quick_gate.h"
#include "harness/schema/json.h"
#include "harness/statistics/statistics.h"
#include "harness/text/errors.h"
#include "harness/text/json_numbers.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 28;
// The lists of a case in calibration.json, and the members that hold them.
using OfCase = Recordings::OfCase;
constexpr std::pair<const char*, std::vector<double> OfCase::*> kLists[] = {
    {"process_medians_ms", &OfCase::medians_ms},
    {"slowed_process_medians_ms", &OfCase::slowed_medians_ms},
    {"log_ratios", &OfCase::log_ratios},
    {"slowed_log_ratios", &OfCase::slowed_log_ratios}};
constexpr const char* kEnvironment[] = {"revision", "cpu_model", "processors"};

void check_usable(const GateSuite& suite) {
  for (const auto& c : suite.cases())
    if (!c.unusable.empty()) throw WorkerError(c.name + ": " + c.unusable);
}

// Measures every case of a suite that was checked `count` times.
void measure_all(GateSuite& suite, int count) {
  std::vector<size_t> every(suite.cases().size());
  std::iota(every.begin(), every.end(), size_t{0});
  for (int n = 0; n < count; ++n) {
    suite.note(fmt::format("recording {} of {}", n + 1, count));
    suite.measure(every);
    check_usable(suite);
  }
}

double interquartile_range(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile(values, 0.75) - quantile(values, 0.25);
}

// The true slowdowns of one case, in percent, for which the results of a quick gate are estimated.
const std::vector<double> kSlowdownsOfQuickGate = {0, 3, 5, 10, 20};

std::string share_text(double share) { return fmt::format("{:.2f} %", 100 * share); }
std::string rounded_percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

// The relative slowdown that was measured on the slowed build.
double measured_slowdown(const OfCase& c) { return std::expm1(median(c.slowed_log_ratios)); }

// Returns json[name], which `holds` must accept. `where` says which part of the file `json` is.
const Json& member(const Json& json, const std::string& where, const char* name, const char* expected,
                   bool (*holds)(const Json&)) {
  if (!json.is_object() || !json.contains(name)) throw UsageError(fmt::format("{}: no {}, expected {}", where, name, expected));
  const auto& value = json[name];
  if (!holds(value)) throw UsageError(fmt::format("{}: {} is {}, expected {}", where, name, value.type_name(), expected));
  return value;
}

bool is_numbers(const Json& json) {
  return json.is_array() && !json.empty() && std::all_of(json.begin(), json.end(), [](const Json& x) { return x.is_number(); });
}

Json environment_of(const Record& record) {
  Json environment;
  for (const auto* name : kEnvironment) environment[name] = record.get(name);
  return environment;
}

}  // namespace

Recordings record_suite(const WorkerProgram& build, const SuiteOptions& options, const GatePlan& plan, int count,
                        double slowdown_percent) {
  MethodSuite suite(options, {{"base", build}, {"same", build}, {"slowed", build, slowdown_percent}});
  check_recordings(size_t(std::max(0, count)), suite.cases().size(), plan);
  return record(suite, plan, count, slowdown_percent);
}

Recordings record(GateSuite& suite, const GatePlan& plan, int count, double slowdown_percent) {
  suite.check();
  check_usable(suite);
  check_recordings(size_t(std::max(0, count)), suite.cases().size(), plan);
  for (const auto& c : suite.cases())
    if (c.measure && c.measure->unit != "s")
      throw UsageError(fmt::format("--measure {}: expected a measure of time for a calibration", c.measure->name));
  measure_all(suite, count);
  Recordings recordings{slowdown_percent, environment_of(suite.sides()[0].environment), {}};
  for (const auto& c : suite.cases()) {
    auto& of_case = recordings.cases.emplace_back(
        OfCase{c.name, c.sides[0].medians, c.sides[2].medians, c.sides[1].log_ratios, c.sides[2].log_ratios});
    // A command's times are in seconds.
    if (c.measure)
      for (auto* list : {&of_case.medians_ms, &of_case.slowed_medians_ms})
        for (auto& value : *list) value *= 1e3;
  }
  return recordings;
}

Recordings read_recordings(const std::string& path) {
  Json json;
  try {
    json = parse_json(read_text_file(path, kMaxFileBytes));
  } catch (const JsonError& error) {
    throw UsageError(fmt::format("{}: not JSON: {}", path, error.what()));
  }
  const auto is_number = [](const Json& x) { return x.is_number(); };
  const auto is_text = [](const Json& x) { return x.is_string(); };
  const auto is_object = [](const Json& x) { return x.is_object(); };
  const auto is_list = [](const Json& x) { return x.is_array() && !x.empty(); };
  Recordings recordings;
  recordings.slowdown_percent = member(json, path, "injected_slowdown_percent", "a number", is_number);
  recordings.environment = member(json, path, "environment", "an object", is_object);
  for (const auto& item : member(json, path, "cases", "a list of cases", is_list)) {
    auto& c = recordings.cases.emplace_back();
    const auto where = fmt::format("{}: case {}", path, recordings.cases.size());
    c.name = attn::with_current_options(member(item, where, "name", "text", is_text).get_ref<const std::string&>());
    for (const auto& [name, list] : kLists)
      c.*list = member(item, where, name, "a list of numbers", is_numbers).get<std::vector<double>>();
  }
  return recordings;
}

Calibration calibrate(Recordings recordings, const GatePlan& plan, int trials, uint64_t seed) {
  Calibration calibration{plan, trials, seed, std::move(recordings), {}, {}, {}, {}};
  const auto& cases = calibration.recordings.cases;
  std::vector<std::vector<double>> equal, slowed;
  for (const auto& c : cases) {
    check_recordings(std::min(c.log_ratios.size(), c.slowed_log_ratios.size()), cases.size(), plan);
    equal.push_back(c.log_ratios);
    slowed.push_back(c.slowed_log_ratios);
  }
  calibration.equal = resample_gate(equal, plan, trials, seed, Signs::either);
  calibration.slowed = resample_gate(slowed, plan, trials, seed + 1);
  if (plan.is_quick) calibration.suite_curve = suite_curve(equal, plan, kSlowdownsOfQuickGate, trials, seed + 2);
  else
    for (const auto& c : cases) calibration.curves.push_back(power_curve(c.log_ratios, cases.size(), plan, trials, seed + 2));
  return calibration;
}

Json json_of(const Calibration& calibration) {
  const auto& [plan, trials, seed, recordings, equal, slowed, curves, suites] = calibration;
  Json json = {{"recordings", recordings.cases.at(0).log_ratios.size()},
               {"trials", trials},
               {"seed", seed},
               {"injected_slowdown_percent", recordings.slowdown_percent},
               {"alpha", plan.criteria.alpha},
               {"min_shift", plan.criteria.min_shift},
               {"margin", plan.criteria.margin},
               {"pass_alpha", plan.pass_alpha},
               {"looks", looks_of(recordings.cases.size(), plan)},
               {"quick", plan.is_quick},
               {"false_alarms_a_suite", equal.any_regression},
               {"false_alarms_interval", json_of(share_interval(equal.any_regression, trials))},
               {"inconclusive_suites_of_equal_builds", equal.any_inconclusive},
               {"mean_pairs_of_equal_builds", equal.mean_pairs},
               {"mean_pairs_of_slowed_builds", slowed.mean_pairs},
               {"environment", recordings.environment},
               {"cases", Json::array()}};
  if (plan.is_quick)
    json["suites_with_one_slower_case"] = {{"slowdown_percent", suites.slowdown_percent},
                                           {"regression", suites.regression},
                                           {"pass", suites.pass},
                                           {"inconclusive", suites.inconclusive},
                                           {"mean_pairs", suites.mean_pairs}};
  for (size_t i = 0; i < recordings.cases.size(); ++i) {
    const auto& c = recordings.cases[i];
    Json item = {{"name", c.name},
                 {"false_alarms", equal.regression[i]},
                 {"inconclusive", equal.inconclusive[i]},
                 {"measured_slowdown_percent", 100 * measured_slowdown(c)}};
    if (!plan.is_quick) {
      item["caught"] = slowed.regression[i];
      item["inconclusive_when_slowed"] = slowed.inconclusive[i];
      item["power"] = {{"slowdown_percent", curves[i].slowdown_percent},
                       {"regression", curves[i].regression},
                       {"pass", curves[i].pass},
                       {"inconclusive", curves[i].inconclusive}};
    }
    for (const auto& [name, list] : kLists) item[name] = c.*list;
    json["cases"].push_back(std::move(item));
  }
  return json;
}

TextTable table_of(const Calibration& calibration) {
  TextTable table({"case", right("median"), right("IQR of medians"), right("IQR of ratios"), right("false alarms"),
                   right("inconclusive"), right("measured slowdown")});
  const bool is_quick = calibration.plan.is_quick;
  if (!is_quick) table.add_columns({right("slowdown found"), right("inconclusive when slowed")});
  for (size_t i = 0; i < calibration.recordings.cases.size(); ++i) {
    const auto& c = calibration.recordings.cases[i];
    const auto &equal = calibration.equal, &slowed = calibration.slowed;
    const double middle = median(c.medians_ms);
    std::vector<std::string> row = {c.name,
                                    format_ms(middle),
                                    share_text(interquartile_range(c.medians_ms) / middle),
                                    share_text(interquartile_range(c.log_ratios)),
                                    share_text(equal.regression[i]),
                                    share_text(equal.inconclusive[i]),
                                    share_text(measured_slowdown(c))};
    if (!is_quick) row.insert(row.end(), {share_text(slowed.regression[i]), share_text(slowed.inconclusive[i])});
    table.add_row(std::move(row));
  }
  return table;
}

namespace {

TextTable suite_table_of(const SuiteCurve& curve) {
  TextTable table({right("true slowdown"), right("regression"), right("pass"), right("inconclusive"), right("pairs")});
  for (size_t k = 0; k < curve.slowdown_percent.size(); ++k)
    table.add_row({fmt::format("{:g} %", curve.slowdown_percent[k]), rounded_percent(curve.regression[k]),
                   rounded_percent(curve.pass[k]), rounded_percent(curve.inconclusive[k]),
                   fmt::format("{:.0f}", curve.mean_pairs[k])});
  return table;
}

}  // namespace

TextTable power_table_of(const Calibration& calibration) {
  if (calibration.plan.is_quick) return suite_table_of(calibration.suite_curve);
  TextTable table(
      {right("true slowdown"), right("regression"), right("pass"), right("inconclusive"), right("regression in the cases")});
  const auto& curves = calibration.curves;
  for (size_t k = 0; k < curves.at(0).slowdown_percent.size(); ++k) {
    std::vector<double> regression;
    double pass = 0, inconclusive = 0;
    for (const auto& curve : curves) {
      regression.push_back(curve.regression[k]);
      pass += curve.pass[k] / double(curves.size());
      inconclusive += curve.inconclusive[k] / double(curves.size());
    }
    const auto [lowest, highest] = std::minmax_element(regression.begin(), regression.end());
    table.add_row({fmt::format("{:g} %", curves[0].slowdown_percent[k]),
                   rounded_percent(std::accumulate(regression.begin(), regression.end(), 0.0) / double(curves.size())),
                   rounded_percent(pass), rounded_percent(inconclusive),
                   rounded_percent(*lowest) + " … " + rounded_percent(*highest)});
  }
  return table;
}

std::string summary_of(const Calibration& calibration) {
  const auto interval = share_interval(calibration.equal.any_regression, calibration.trials);
  return fmt::format(
      "false alarms per suite: {} (95 % interval {:.2f} … {:.2f} %), of {} resampled suites of equal builds\n"
      "mean number of pairs per case: {:.1f} for equal builds, {:.1f} for builds slowed down by {:g} %\n"
      "\n{}:\n",
      share_text(calibration.equal.any_regression), 100 * interval.low, 100 * interval.high, calibration.trials,
      calibration.equal.mean_pairs, calibration.slowed.mean_pairs, calibration.recordings.slowdown_percent,
      calibration.plan.is_quick ? "results of suites with one case that is slower, another one in turn"
                                : "verdicts on a case that is slower while the others are not, as the mean of all cases");
}

}  // namespace attnbench
