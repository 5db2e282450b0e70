// What the records of a sweep say together: how time and memory grow, at which length two series cross, what fits a memory
// budget.
//
// A series is the records that differ only in axes of kind `length`: query_len, and key_len and batch, which sweeps vary with it.
// Times and memory are per sample, as in figures. Implausible records are listed and otherwise left out.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/schema/record.h"
#include "harness/statistics/statistics.h"

namespace attnbench {

// One quantity of a series at one length.
struct Point {
  double length = 0, value = 0;
  Interval interval;  // 95 % interval within the process; for memory both ends are the value
  int64_t batch = 1;  // the batch size of the record, by which the value was divided
};

struct Series {
  std::string method;
  std::map<std::string, Json> setting;  // every axis that is not a length
  std::vector<const Record*> records;   // by ascending query_len

  // The measured records whose value is above zero; `quantity` is "time" or "memory".
  std::vector<Point> points(const std::string& quantity) const;
};

// How a quantity grows with the length N: value ∝ N^exponent.
struct Order {
  const Series* series = nullptr;
  std::string quantity;
  double from = 0, to = 0;  // the shortest and the longest fitted length
  LineFit fit;              // a line through the logarithms; its slope is the exponent
  // The order that the method declares, such as "O(N log N)", and the exponent that it amounts to over these lengths. Empty for
  // decoding, for which methods declare no order.
  std::string declared;
  std::optional<double> declared_exponent;

  // The batch sizes at the shortest and the longest length. Where the batch shrinks, fewer samples share the fixed costs of a
  // call, and the time per sample grows faster than the method does.
  int64_t batch_from = 0, batch_to = 0;

  // Whether the exponent exceeds the declared one by more than noise and caches explain.
  bool contradicts() const;
};

// At which length the order of two series changes.
struct Crossover {
  const Series *one = nullptr, *other = nullptr;
  std::string quantity;
  std::vector<std::string> differs;  // the axes in which the two differ, all of which are declared to be compared
  // The first length from which the series needs less that needed more before; nothing where the order never changes.
  std::optional<double> length;
  Interval interval;                       // 95 % interval of the length
  bool other_needs_less_at_first = false;  // then `one` needs less from `length` on, otherwise `other`
};

// The longest length that fits a memory budget.
struct Fit {
  const Series* series = nullptr;
  double budget_bytes = 0;
  std::optional<int64_t> longest;  // the longest length whose measured peak is within the budget
  std::string limit;               // why no longer one is: "N = 8192 took 12.0 GiB", "end of the sweep", …
};

struct Analysis {
  std::vector<Series> series;
  std::vector<Order> orders;
  std::vector<Crossover> crossovers;
  std::vector<Fit> fits;
  std::vector<const Record*> implausible;

  Json to_json() const;
};

// `methods` is the worker's description of them, which has the declared orders. The result refers to the records.
Analysis analyse(const std::vector<Record>& records, const Json& methods, const std::vector<double>& budgets);

}  // namespace attnbench
