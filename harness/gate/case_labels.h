// Names of the cases of a gate's suite: full names, by which waivers and later gates find a case, and short ones for tables.
#pragma once

#include <string>
#include <vector>

#include "harness/schema/case.h"
#include "harness/schema/method_names.h"

namespace attnbench {

// The full names of these cases, such as "linear forward N=4096 causal": method, protocol, length, and every other axis that does
// not have its default. The number of threads, whose default depends on the machine, is named only if the cases differ in it.
std::vector<std::string> full_names(const std::vector<Case>& cases);

struct CaseLabels {
  std::vector<std::string> names;  // one for each case: the axes in which the cases differ
  std::string shared;              // the axes that all cases have in common, such as "N=4096, causal"
};
// A single case has its full name, and `shared` is empty. `methods` has the names by which methods are shown.
CaseLabels label_cases(const std::vector<Case>& cases, const MethodNames& methods = {});

}  // namespace attnbench
