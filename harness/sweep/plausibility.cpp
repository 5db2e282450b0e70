// Compares a time with the ceilings, and with the times of the two neighbouring lengths.
#include "harness/sweep/plausibility.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/text/units.h"

namespace attnbench {
void mark_too_fast(Record& record, const Ceilings& machine) {
  const auto* const found = machine.of(record);
  if (!found) return;
  const auto& ceilings = *found;
  constexpr double slack = 0.9;  // because the measured ceilings have an error, too
  const auto time_ms = record.number("time_median_ms");
  const auto refuse_below = [&](double min_ms, const std::string& ceiling) {
    if (time_ms < slack * min_ms)
      record.set("implausible", fmt::format("{} is below the {} that {} allows", format_ms(time_ms), format_ms(min_ms), ceiling));
  };
  // Data that fits into the caches can move faster than the bandwidth of main memory allows.
  if (record.number("min_bytes") > ceilings.array_bytes)
    refuse_below(record.number("min_bytes") / ceilings.bandwidth_gb_s / 1e6,
                 fmt::format("the measured bandwidth of {:.1f} GB/s", ceilings.bandwidth_gb_s));
  const auto rate = ceilings.rate_gflop_s(record.text("dtype"));
  refuse_below(record.number("flops") / rate / 1e6, fmt::format("the measured arithmetic rate of {:.0f} GFLOP/s", rate));
}

std::vector<Record> too_slow(const std::vector<Record>& records, const Ceilings& ceilings) {
  constexpr double kMaxFactor = 2.5;  // the data outgrow a cache between two lengths, but then the longer one is slow, too
  struct Point {
    const Record* record;
    double length, slowdown;
  };
  const TimePredictor bounds(ceilings);  // without learned slowdowns, it predicts the lower bound
  std::map<std::string, std::vector<Point>> curves;
  for (const auto& record : records) {
    if (!record.measured() || record.has("external_source")) continue;
    const auto slowdown = record.number("time_median_ms") / bounds.predict(record);
    if (slowdown > 0) curves[record.series_key()].push_back({&record, record.number("query_len"), slowdown});
  }
  std::vector<Record> marked;
  for (auto& [key, points] : curves) {
    std::stable_sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.length < b.length; });
    for (size_t i = 1; i + 1 < points.size(); ++i) {
      const auto &before = points[i - 1], &here = points[i], &after = points[i + 1];
      const auto factor = here.slowdown / std::max(before.slowdown, after.slowdown);
      if (factor < kMaxFactor || here.record->has("implausible")) continue;
      auto& record = marked.emplace_back(*here.record);
      record.set("implausible", fmt::format("{} is {:.1f} times as long as the neighbours at N = {:.0f} and {:.0f} suggest",
                                            format_ms(record.number("time_median_ms")), factor, before.length, after.length));
    }
  }
  return marked;
}

}  // namespace attnbench
