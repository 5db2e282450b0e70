// Compares the records of two folders case by case, and renders the comparison as tables and JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/analysis/record_pairs.h"
#include "harness/cli/shared_options.h"
#include "harness/statistics/equivalence.h"

namespace attnbench {

// A case of both folders.
struct ComparedPair {
  RecordPair pair;
  std::optional<Quantity> quantity;  // what was compared; nothing if a side lacks it, or did not measure the case
  TwoSides values;                   // of that quantity
  CaseComparison comparison;
};

// A condition of the measurement in which the sides differ, with the values of both sides as text.
struct Difference {
  std::string column, a, b;
};

struct ComparisonReport {
  EquivalenceCriteria criteria;
  std::vector<std::string> apart;  // axes in which the two records of a case may differ
  std::vector<ComparedPair> cases;
  std::vector<Difference> differences;
  std::string a, b;  // the folders of the two sides

  // Of the cases that were compared.
  std::vector<Finding> findings() const;
};

// Compares the pairs by `quantity` or, if there is none, by the best quantity of each pair. Throws UsageError if every pair that
// was measured lacks the quantity, and Interrupted.
ComparisonReport compare_records(const std::vector<RecordPair>& pairs, const std::vector<std::string>& apart,
                                 std::optional<Quantity> quantity, const EquivalenceCriteria& criteria);

Json json_of(const ComparisonReport& report);
// Prints, except in CSV, the answer and the verdicts in a sentence, then the differences and the cases as tables. `format` is any
// but JSON.
void print_report(const ComparisonReport& report, Format format);
// Says that some case has too few processes to be found different, how many are needed, and how to add them; empty if all have
// enough.
std::string shortage_in_words(const ComparisonReport& report);

// The finding of a comparison of two folders in words, and as a tone.
std::string verdict_name(Finding finding);
Tone tone_of(Finding finding);

// A ratio with its logarithm given: "1.234×", or "–" if it is not finite.
std::string ratio_text(double log_ratio);

}  // namespace attnbench
