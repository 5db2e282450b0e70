// Pairs the records of one case on two sides, and says which of their values are compared.
//
// A record that a baseline took turns with holds a ratio for each process: its time divided by the baseline's time beside it. On
// a shared machine, absolute times drift from run to run by more than such ratios do. Ratios to different baselines have nothing
// in common, and a ratio does not show what slows the case and its baseline alike.
#pragma once

#include <string>
#include <vector>

#include "harness/schema/record.h"
#include "harness/statistics/comparison.h"

namespace attnbench {

// The records of one case on both sides. One of them may be missing.
struct RecordPair {
  const Record *a = nullptr, *b = nullptr;
  const Record& either() const { return a ? *a : *b; }
  // Whether this program measured both, so that their values can be compared.
  bool both_measured() const;
};

// What a record ended as: "measured", its failure_kind, "external" for an imported record, or "missing" for null.
std::string outcome_of(const Record* record);

// Whether the processes of both records ran on the same machines, or the records do not say where. Machines of one model still
// differ in speed, so that no times of two are divided.
bool on_same_hosts(const Record& a, const Record& b);

// The records of two sides.
struct Sides {
  const std::vector<Record>&a, &b;
  std::string name_a, name_b;  // for messages
};
// Pairs the records whose cases are equal in every axis but those in `apart`. The result points to the records. Throws UsageError
// if a side has several records that differ in these axes alone.
std::vector<RecordPair> pair_records(const Sides& sides, const std::vector<std::string>& apart);

// Which values of two records are compared.
enum class Quantity {
  ratio,  // process_ratios: time divided by the time of the baseline beside it
  time,   // process_medians_ms, or time_median_ms of a record of one process
};
std::string quantity_name(Quantity quantity);

// Whether both records have ratios to the same baseline.
bool have_common_baseline(const Record& a, const Record& b);
// One value for each process of a measured record. Throws UsageError, which names the record, for a value that is not positive.
std::vector<double> process_values(const Record& record, Quantity quantity);
// The ratios of both if they have a common baseline, their times otherwise.
Quantity best_quantity(const Record& a, const Record& b);

}  // namespace attnbench
