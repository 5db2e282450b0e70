// The series of a history, and where they change.
#pragma once

#include <string>
#include <vector>

#include "harness/history/history_line.h"
#include "harness/statistics/change_points.h"

namespace attnbench {

struct HistoryReport {
  struct Commit {
    std::string id, committed_at, subject;
  };
  struct Point {
    size_t commit = 0;         // an index of `commits`
    double value = 0;          // the median of the runs
    double low = 0, high = 0;  // of a single run its interval, of several that of their median; NaN if there is none
  };
  struct Series {
    std::string machine, name, measure, unit;
    bool more_is_better = false;
    std::vector<Point> points;         // in the order of the commits
    std::vector<ChangePoint> changes;  // `at` is an index of `points`; a ratio above 1 is for the worse
  };
  ChangeCriteria criteria;
  std::vector<Commit> commits;  // by the time of the commit
  std::vector<Series> series;   // by name, measure and machine
};

// Throws Interrupted.
HistoryReport report_of(const std::vector<HistoryLine>& lines, const ChangeCriteria& criteria = {});

Json json_of(const HistoryReport& report);

}  // namespace attnbench
