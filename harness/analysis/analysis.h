// Analyses the records of a sweep together: how time and memory grow with the length, at which length two series cross, and up
// to which length the memory fits a budget. Each statement has a verdict that says whether the records support it.
//
// Growth and crossovers are computed from values per sequence, which are divided by the batch size as in the figures, and without
// implausible records, which are listed instead. A budget is compared with the peak memory of the whole batch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/analysis/crossover.h"
#include "harness/analysis/growth.h"
#include "harness/analysis/series.h"
#include "harness/schema/record.h"

namespace attnbench {

// What limits a length that fits if no longer one was planned.
inline constexpr auto kEndOfSweep = "end of the sweep";

// The longest length that fits a memory budget.
struct BudgetFit {
  const Series* series = nullptr;
  double budget_bytes = 0;
  std::optional<int64_t> longest;  // the longest length whose measured peak is within the budget
  std::string limit;               // what prevents a longer one: "N = 8192 took 12.0 GiB", kEndOfSweep, …
};

struct Analysis {
  Analysis() = default;
  Analysis(Analysis&&) = default;
  Analysis& operator=(Analysis&&) = default;

  std::vector<Series> series;
  Growth growth;
  std::vector<Crossover> crossovers;
  std::vector<BudgetFit> fits;
  std::vector<const Record*> implausible;  // records whose time breaks a ceiling of the machine

  Json to_json() const;
};

// `methods` is the array that the worker's command `describe` returns, which holds the declared orders; `budgets` are in bytes.
// The result points to elements of `records`, which must outlive it, and to its own series: it may be moved, but not copied.
Analysis analyse(const std::vector<Record>& records, const Json& methods, const std::vector<double>& budgets);

}  // namespace attnbench
