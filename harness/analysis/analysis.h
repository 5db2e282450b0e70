// Analyses the records of a sweep together: how time and memory grow with the length, at which length two series cross, and up
// to which length the memory fits a budget.
//
// A series consists of the records that differ only in axes of kind `length`: query_len, and key_len and batch, which sweeps vary
// with it. Growth and crossovers are computed from values per sample, which are divided by the batch size as in the figures, and
// without implausible records, which are listed instead. A budget is compared with the peak memory of the whole batch.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/schema/record.h"
#include "harness/statistics/statistics.h"

namespace attnbench {

// One quantity of a series at one length: milliseconds or bytes, per sample.
struct Point {
  double length = 0, value = 0;
  Interval interval;  // the recorded 95 % interval of a time; for memory both ends are the value
  int64_t batch = 1;  // the batch size of the record, by which the value was divided
};

struct Series {
  std::string method;
  std::map<std::string, Json> setting;  // every axis that is not a length
  std::vector<const Record*> records;   // by ascending query_len

  // The points of the measured, plausible records whose value is above zero, by ascending length. `quantity` is "time" (the
  // median) or "memory" (the peak above the inputs).
  std::vector<Point> points(const std::string& quantity) const;
};

// How a quantity grows with the length N: value ∝ N^exponent.
struct Order {
  const Series* series = nullptr;
  std::string quantity;
  double from = 0, to = 0;  // the shortest and the longest length in the fit
  LineFit fit;              // a line through the logarithms of lengths and values; its slope is the exponent
  // The order that the method declares, such as "O(N log N)", and the exponent that it amounts to over these lengths. Both are
  // empty for decoding and for unknown methods, for which no order is declared.
  std::string declared;
  std::optional<double> declared_exponent;

  // The batch sizes at the shortest and the longest length. Where the batch shrinks, fewer samples share the fixed costs of a
  // call, and the time per sample grows faster than the method does.
  int64_t batch_from = 0, batch_to = 0;

  // Whether the whole 95 % interval of the exponent lies above the declared exponent, by more than a margin for the effect of
  // caches.
  bool contradicts() const;
};

// Which of two series needs less time or memory, and at which length that changes.
struct Crossover {
  const Series *one = nullptr, *other = nullptr;
  std::string quantity;
  std::vector<std::string> differs;  // the axes in which the two differ, each of which has Field::compared set
  // The first length at which both need the same, interpolated between measured lengths; nothing where the curves do not cross.
  std::optional<double> length;
  Interval interval;                       // 95 % interval of `length`
  bool other_needs_less_at_first = false;  // whether `other` needs less at the shortest common length
};

// The longest length that fits a memory budget.
struct BudgetFit {
  const Series* series = nullptr;
  double budget_bytes = 0;
  std::optional<int64_t> longest;  // the longest length whose measured peak is within the budget
  std::string limit;               // what prevents a longer one: "N = 8192 took 12.0 GiB", "end of the sweep", …
};

struct Analysis {
  std::vector<Series> series;
  std::vector<Order> orders;
  std::vector<Crossover> crossovers;
  std::vector<BudgetFit> fits;
  std::vector<const Record*> implausible;  // records whose time breaks a ceiling of the machine

  Json to_json() const;
};

// `methods` is the array that the worker's command `describe` returns, which holds the declared orders; `budgets` are in bytes.
// The result points to elements of `records`, which must outlive it.
Analysis analyse(const std::vector<Record>& records, const Json& methods, const std::vector<double>& budgets);

}  // namespace attnbench
