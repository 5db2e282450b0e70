// Collects the lines of a history into series, and searches each for changes.
#include "harness/history/history_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "harness/process/interrupts.h"
#include "harness/text/json_numbers.h"

namespace attnbench {
namespace {

using SeriesKey = std::tuple<std::string, std::string, std::string>;  // name, measure and machine

HistoryReport::Point point_of(size_t commit, const std::vector<const HistoryLine*>& runs) {
  if (runs.size() == 1) return {commit, runs[0]->value, runs[0]->low, runs[0]->high};
  std::vector<double> values;
  for (const auto* run : runs) values.push_back(run->value);
  const auto interval = order_statistic_interval(values);
  return {commit, median(values), interval.low, interval.high};
}

}  // namespace

HistoryReport report_of(const std::vector<HistoryLine>& lines, const ChangeCriteria& criteria) {
  HistoryReport report{.criteria = criteria, .commits = {}, .series = {}};
  std::map<std::string, const HistoryLine*> by_commit;
  for (const auto& line : lines) by_commit.emplace(line.commit, &line);
  for (const auto& [id, line] : by_commit) report.commits.push_back({id, line->committed_at, line->subject});
  // Texts of times order as the times do.
  std::sort(report.commits.begin(), report.commits.end(),
            [](const auto& a, const auto& b) { return std::tie(a.committed_at, a.id) < std::tie(b.committed_at, b.id); });
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < report.commits.size(); ++i) places[report.commits[i].id] = i;

  std::map<SeriesKey, std::map<size_t, std::vector<const HistoryLine*>>> series;
  std::set<std::string> seen;
  for (const auto& line : lines)
    if (seen.insert(text_of(line)).second)
      series[{line.name, line.measure, line.machine}][places.at(line.commit)].push_back(&line);
  size_t tested = 0;
  for (const auto& [key, runs_by_commit] : series) {
    auto& made = report.series.emplace_back();
    std::tie(made.name, made.measure, made.machine) = key;
    const auto& first = *runs_by_commit.begin()->second.front();
    made.unit = first.unit;
    made.more_is_better = first.more_is_better;
    for (const auto& [commit, runs] : runs_by_commit) made.points.push_back(point_of(commit, runs));
    tested += made.points.size() - 1;
  }
  for (auto& one : report.series) {
    throw_if_interrupted();
    std::vector<double> costs;
    for (const auto& point : one.points) costs.push_back(one.more_is_better ? 1 / point.value : point.value);
    one.changes = change_points(costs, std::max<size_t>(1, tested), criteria);
  }
  return report;
}

Json json_of(const HistoryReport& report) {
  Json json = {{"alpha", report.criteria.alpha},
               {"min_shift", report.criteria.min_shift},
               {"commits", Json::array()},
               {"series", Json::array()}};
  for (const auto& commit : report.commits)
    json["commits"].push_back({{"commit", commit.id}, {"committed_at", commit.committed_at}, {"subject", commit.subject}});
  for (const auto& one : report.series) {
    Json item = {
        {"case", one.name},       {"measure", one.measure},  {"unit", one.unit},        {"more_is_better", one.more_is_better},
        {"machine", one.machine}, {"points", Json::array()}, {"changes", Json::array()}};
    for (const auto& [commit, value, low, high] : one.points)
      item["points"].push_back({commit, value, finite_or_null(low), finite_or_null(high)});
    for (const auto& change : one.changes)
      item["changes"].push_back({{"commit", one.points[change.at].commit},
                                 {"commit_before", one.points[change.at - 1].commit},
                                 {"log_ratio", finite_or_null(change.ratio.estimate)},
                                 {"interval", json_of(change.ratio.interval)},
                                 {"p", change.p}});
    json["series"].push_back(std::move(item));
  }
  return json;
}

}  // namespace attnbench
