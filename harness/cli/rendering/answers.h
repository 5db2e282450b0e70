// What records answer, in sentences: which method is faster, by how much, how sure that is, and from which length on.
#pragma once

#include <string>
#include <vector>

#include "harness/analysis/growth.h"
#include "harness/analysis/speedups.h"
#include "harness/schema/record.h"

namespace attnbench {

// Three digits, and all those before the decimal point.
std::string speed_text(double speed);
// How many times as fast as the baseline the case is: the baseline's time divided by the case's.
double speed_of(const Speedup& speedup);
// The interval of speed_of(), such as "92.1 … 96.0", after "range" if it is that; "–" for one process.
std::string interval_text(const Speedup& speedup);

// A sentence for each setting about the longest length at which the baseline can be compared with another method, such as
//   forward: linear is 94.1 × as fast as sdpa at N = 65536 (95 %: 92.1 … 96.0), and faster at every measured N from 512 on.
// It is about the fastest method besides the baseline. A line in place of those beyond the first few says how many there are.
// With `growth`, each sentence also says how the times of both methods grow with the length. Empty if nothing can be compared.
std::vector<std::string> speed_answers(const std::vector<Record>& records, const std::string& baseline, double within,
                                       const Growth* growth = nullptr);
// The same relative to default_baseline(), with the growth of the times.
std::vector<std::string> speed_answers(const std::vector<Record>& records);

// Prints sentences, each on a line of its own that is wrapped to the terminal, and an empty line below them. Prints nothing if
// there are none.
void print_answers(const std::vector<std::string>& sentences);

}  // namespace attnbench
