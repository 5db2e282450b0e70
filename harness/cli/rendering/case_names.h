// Names of cases: short ones that tell each from the others of a sweep, and a full description of one case.
#pragma once

#include <string>
#include <vector>

#include "harness/schema/method_names.h"
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
  MethodNames methods_;
  std::vector<std::string> others_;  // the axes besides those that every name has
};

// The whole case in a line: "linear forward: N = 1024, batch 1, 8 heads of 64, float32, not causal, 2 threads". Axes that the
// line has no word for follow where they do not have their default, such as "cache=cold".
std::string case_in_words(const Record& record);

// The command that measures the case of this record, with this method in place of its own.
std::string measure_command(const Record& record, const std::string& method);

}  // namespace attnbench
