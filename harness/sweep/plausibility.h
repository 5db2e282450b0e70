// Finds times that cannot be right: too short for the machine, or far too long for the curve that they belong to.
#pragma once

#include <vector>

#include "harness/schema/record.h"
#include "harness/sweep/prediction.h"

namespace attnbench {

// Marks the record as implausible if its time is below what the machine's ceilings allow. Then something other than the method
// was timed.
void mark_too_fast(Record& record, const Ceilings& ceilings);

// Returns copies of the records whose time is far longer than those of the next shorter and of the next longer length suggest, by
// the cost of their calls, and marks the copies as implausible. The first and the last length of a curve have no two neighbours.
std::vector<Record> too_slow(const std::vector<Record>& records, const Ceilings& ceilings);

}  // namespace attnbench
