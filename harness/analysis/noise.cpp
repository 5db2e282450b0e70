// Turns repetitions of work that is always the same into spreads, and into advice to whoever measures on the machine.
#include "harness/analysis/noise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/statistics/disturbance.h"
#include "harness/statistics/statistics.h"

namespace attnbench {
namespace {

constexpr double kWindowMs = 1000;

double spread_of(std::vector<double> values) {
  if (values.size() < 2) return std::nan("");
  std::sort(values.begin(), values.end());
  return (quantile(values, 0.95) - quantile(values, 0.05)) / 2 / quantile(values, 0.5);
}

std::vector<std::string> advice_of(const NoiseReport& report) {
  std::vector<std::string> advice;
  const auto percent = [](double share) { return fmt::format("{:.1f} %", 100 * share); };
  if (report.run_delay_share > 0.01)
    advice.push_back(
        fmt::format("Other programs use these processors ({} of the time was spent waiting for them). End them, or leave "
                    "them a processor with --set threads=N.",
                    percent(report.run_delay_share)));
  if (report.steal_share > 0.005)
    advice.push_back(
        fmt::format("The hypervisor gave {} of the processor time to other machines. Only another machine, or another "
                    "hour, helps against that.",
                    percent(report.steal_share)));
  if (report.windows_spread > 0.03)
    advice.push_back(
        fmt::format("Absolute times of single processes differ by about ±{}. Compare ratios: name a baseline in the sweep, such "
                    "as baseline = "
                    "\"sdpa\", which makes them differ by about ±{}.",
                    percent(report.windows_spread), percent(report.ratios_spread)));
  if (report.windows_spread > 0.01) advice.emplace_back("Use processes = 8 or more, so that slow phases spread over all cases.");
  if (report.disturbed_share > 0.2)
    advice.push_back(
        fmt::format("{} of the samples were disturbed. Use a longer timing.time_budget_s, so that enough others remain.",
                    percent(report.disturbed_share)));
  if (std::isnan(report.windows_spread))
    advice.emplace_back("This was too short to tell how far the times of processes differ. Measure for at least ten seconds.");
  if (advice.empty()) advice.emplace_back("The machine is quiet. Absolute times can be compared.");
  return advice;
}

}  // namespace

NoiseReport noise_of(const Record& record) {
  const auto times = record.numbers("time_samples_ms");
  const auto shares = record.numbers("sample_disturbances");
  const auto max_share = record.number("max_disturbance");
  NoiseReport report;
  report.samples = times.size();
  report.median_ms = median(times);
  report.disturbed_share = 1 - double(undisturbed(times, shares, max_share).size()) / double(times.size());
  report.samples_spread = spread_of(times);
  std::vector<double> medians, kept_medians, ratios;
  double run_ms = 0;
  for (size_t begin = 0; begin < times.size();) {
    std::vector<double> window, window_shares, odd, even;
    size_t end = begin;
    for (double length_ms = 0; end < times.size() && length_ms < kWindowMs; ++end) {
      length_ms += times[end];
      window.push_back(times[end]);
      window_shares.push_back(shares.at(end));
      (end % 2 == 0 ? even : odd).push_back(times[end]);
      run_ms = shares[end] > max_share ? run_ms + times[end] : 0;
      report.longest_s = std::max(report.longest_s, run_ms / 1e3);
    }
    medians.push_back(median(window));
    if (const auto kept = undisturbed(window, window_shares, max_share); kept.size() >= kMinUndisturbed)
      kept_medians.push_back(median(kept));
    if (!odd.empty() && !even.empty()) ratios.push_back(median(counted_ratios(even, {}, odd, {}, max_share).values));
    begin = end;
  }
  report.windows_spread = spread_of(medians);
  report.kept_spread = kept_medians.size() * 2 < medians.size() ? std::nan("") : spread_of(kept_medians);
  report.ratios_spread = spread_of(ratios);
  report.run_delay_share = record.number("run_delay_share");
  report.steal_share = record.number("steal_share");
  report.system_share = record.number("system_share");
  report.load = record.number("load");
  report.advice = advice_of(report);
  return report;
}

}  // namespace attnbench
