// Which of two series needs less time or memory, and from which length on.
//
// Each pair of series that differ in one compared axis is compared at the lengths that both measured with the same batch size, by
// log(one / other), the logarithm of the ratio of their values, and its 95 % interval. That rests on the best that the records
// hold: on the ratios of each process to a baseline that both share, from which the drift of the machine cancels; on the medians
// of the processes of the same rounds; or on the intervals of the two records. The intervals are not widened for the number of
// pairs. A row that says that one series needs less at every length is wrong with a probability of at most 2.5 %, however many
// lengths there are, because the interval has to exclude zero, which stands for equal values, at every one of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/analysis/series.h"

namespace attnbench {

enum class CrossoverVerdict {
  crosses,      // one needs less from some length on, and the other below that length
  never,        // one needs less at every common length
  equal,        // both need the same memory at every common length
  cannot_tell,  // the records do not support any of these
};
std::string_view verdict_name(CrossoverVerdict verdict);  // "crosses", "never crosses", "equal", "cannot tell"

// Why a comparison cannot tell.
enum class Doubt {
  none,
  wide,        // the interval of the crossover covers a factor of two or more, or has no end
  equal_work,  // the two methods declare the same order, and their numbers of operations differ by at most 5 % at each length
  returns,     // at a length after the crossover, the interval of the ratio contains 1 again
  noise        // the interval of the ratio contains 1 at a length, and the curves do not cross
};
std::string_view reason_of(Doubt doubt);  // as the end of a sentence

// What the intervals of a comparison rest on, from the worst to the best.
enum class RatioBasis { records, processes, baseline, counted };
std::string_view basis_name(RatioBasis basis);

struct Crossover {
  const Series *one = nullptr, *other = nullptr;
  std::string quantity;
  std::vector<std::string> differs;  // the axes in which the two differ, each of which has Field::compared set
  double from = 0, to = 0;           // the shortest and the longest common length
  // The first length at which both need the same, interpolated between measured lengths; nothing where the curves do not cross.
  std::optional<double> length;
  Interval interval;                       // 95 % interval of `length`
  Interval between;                        // the last measured length below `length`, and the first that is not below it
  bool other_needs_less_at_first = false;  // whether `other` needs less at the shortest common length
  CrossoverVerdict verdict = CrossoverVerdict::cannot_tell;
  Doubt doubt = Doubt::none;  // for cannot_tell
  RatioBasis basis = RatioBasis::records;

  // The series that needs less at the longest lengths, and the other one. For never, the first needs less at every length.
  const Series& winner() const { return *(other_needs_less_at_first == length.has_value() ? one : other); }
  const Series& loser() const { return &winner() == one ? *other : *one; }
};

// All pairs that differ in the method alone, in other compared axes alone, or in the method and the pattern where one sees all
// keys, and that have at least two lengths in common. `methods`
// is the array that the worker's command `describe` returns. The result points to elements of `series`.
std::vector<Crossover> crossovers_of(const std::vector<Series>& series, const Json& methods);

Json json_of(const Crossover& crossover);

}  // namespace attnbench
