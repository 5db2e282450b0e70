// Short names of cases that tell each from the others of a sweep.
#pragma once

#include <string>
#include <vector>

#include "harness/schema/record.h"

namespace attnbench {

// Names cases by their method, their protocol and their length, whether they are causal, and by those other axes without which
// two of the cases would have the same name: "linear forward N=4096 causal dtype=bfloat16".
class CaseNames {
 public:
  // `all` are the cases that are to be told apart; only their axes count.
  explicit CaseNames(const std::vector<Record>& all);
  std::string of(const Record& record) const;

 private:
  std::vector<std::string> others_;  // the axes besides those that every name has
};

}  // namespace attnbench
