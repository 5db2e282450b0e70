// How much faster than a baseline method the other methods of the same records are.
#pragma once

#include <string>
#include <vector>

#include "harness/schema/record.h"
#include "harness/statistics/equivalence.h"

namespace attnbench {

// Which measurements a speedup comes from.
enum class SpeedupSource {
  turns,   // the baseline took turns with the case, and each process measured the ratio of both
  ratios,  // both methods have ratios to a common third baseline, from different processes
  times,   // the absolute times of processes of both methods
};
std::string source_name(SpeedupSource source);

// One case and the case of the baseline that is equal in all axes but the method.
struct Speedup {
  const Record* record = nullptr;
  const Record* baseline = nullptr;  // null: the records have none, although it may have taken turns with this case
  bool is_known = false;  // whether both have plausible times of the same hosts; otherwise the members below mean nothing
  SpeedupSource source = SpeedupSource::times;
  RatioEstimate ratio = {};  // log(time of the case / time of the baseline)
  double baseline_ms = 0;    // median time of the baseline, beside the case if it took turns
  // The finding for this case by itself, from the 95 % interval without an adjustment over the cases. It is cannot_tell if the
  // interval is a range, because there is no verdict then.
  Finding finding = Finding::cannot_tell;

  bool has_verdict() const { return is_known && ratio.scope == IntervalScope::across_processes; }
};

// The methods that can be the baseline of speedups(): those of the records, and those that took turns with one of them.
std::vector<std::string> baseline_methods(const std::vector<Record>& records);

// One speedup for each record of another method than `baseline`, in order. `baseline` is the text of a method as records have it,
// with its options. `within` is that of EquivalenceCriteria. The result points to the records. Throws UsageError, which names the
// methods that there are, for an unknown baseline.
std::vector<Speedup> speedups(const std::vector<Record>& records, const std::string& baseline,
                              double within = EquivalenceCriteria{}.within);

// Of each series, which is the records that differ only in axes of kind `length`, the known speedup at the longest query_len.
std::vector<Speedup> at_longest_lengths(const std::vector<Speedup>& all);

// The method that a sweep's results are shown relative to: the method of the column `baseline` if it can be the baseline of
// speedups(); otherwise, if there are two methods or more, sdpa, which is what users of PyTorch have, or the method of the first
// record if sdpa is not among them; otherwise empty text.
std::string default_baseline(const std::vector<Record>& records);

}  // namespace attnbench
