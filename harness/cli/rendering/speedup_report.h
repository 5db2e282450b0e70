// Renders speedups against a baseline method as a table, as JSON and in words.
#pragma once

#include <string>
#include <vector>

#include "harness/analysis/speedups.h"
#include "harness/cli/shared_options.h"

namespace attnbench {

struct SpeedupReport {
  std::string baseline;
  double within = EquivalenceCriteria{}.within;
  std::vector<Speedup> speedups;
  std::vector<std::string> answers = {};  // the sentences of speed_answers()
};

Json json_of(const SpeedupReport& report);
// Prints the answers as text, a table and, except in CSV, what its columns mean. `format` is any but JSON.
void print_report(const SpeedupReport& report, Format format);

// A line for each method and setting at the longest length that it has in common with default_baseline(), such as
//   linear  12.3 × (11.9 … 12.8) as fast as softmax at N = 4096
// with a line in place of those beyond the first few. `folder` is named there. Empty if nothing can be compared.
std::string speedups_in_words(const std::vector<Record>& records, const std::string& folder);

}  // namespace attnbench
