// What a sweep's records say together: how time and memory grow, where one series overtakes another, what fits a memory budget.
//
// A series is the records that differ in their lengths alone (query_len, and key_len and batch, which may follow from it). Times
// and memory are per sample, as figures show them. Records that are implausible take no part, but are listed.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/statistics/statistics.h"
#include "harness/schema/record.h"

namespace attnbench {

// One quantity of a series.
struct Point {
  double length = 0, value = 0;
  Interval interval;  // 95 %, within its process; of memory the value itself
  int64_t batch = 1;  // that was measured, of which the value is one sample's share
};

struct Series {
  std::string method;
  std::map<std::string, Json> setting;  // every other axis
  std::vector<const Record*> records;   // shortest first

  // Of measured records; the value above zero.
  std::vector<Point> points(const std::string& quantity) const;  // "time" or "memory"
};

// A growth with the length N: value ∝ N^exponent.
struct Order {
  const Series* series = nullptr;
  std::string quantity;
  double from = 0, to = 0;  // the lengths that were looked at
  LineFit fit;              // of logarithms; its slope is the exponent
  // As the method declares it: "O(N log N)", and the exponent that this has over those lengths. Empty for decoding, which
  // declared orders do not speak of.
  std::string declared;
  std::optional<double> declared_exponent;

  // Of samples a call at those lengths. A call's fixed costs are shared by fewer samples where it shrinks, and time a sample then
  // grows faster than the method does.
  int64_t batch_from = 0, batch_to = 0;

  // Beyond what noise and caches explain.
  bool contradicts() const;
};

struct Overtaking {
  const Series *one = nullptr, *other = nullptr;
  std::string quantity;
  std::vector<std::string> differs;  // in "method", "device", "graph": never in anything else
  // From this length on `other` needs less, for the first time; nothing where the order never changes. 95 %.
  std::optional<double> length;
  Interval interval;
  bool other_needs_less_at_first = false;  // then `one` needs less from `length` on
};

struct Fit {
  const Series* series = nullptr;
  double budget_bytes = 0;
  std::optional<int64_t> longest;  // whose peak was measured within the budget
  std::string limit;               // why no longer one is there: "measured at 8192: 12.0 GiB", "end of the sweep", …
};

struct Analysis {
  std::vector<Series> series;
  std::vector<Order> orders;
  std::vector<Overtaking> overtakings;
  std::vector<Fit> fits;
  std::vector<const Record*> implausible;

  Json to_json() const;
};

// `methods`: as the worker describes them, for the declared orders. The records must outlive the result.
Analysis analyse(const std::vector<Record>& records, const Json& methods, const std::vector<double>& budgets);

}  // namespace attnbench
