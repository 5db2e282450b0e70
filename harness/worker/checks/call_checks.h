// Checks what comparing a single call with the reference does not show: that a call does not change its inputs, returns memory of
// its own, and computes each result from the inputs of this call. A method that is not compiled into this program could get any
// of this wrong.
#pragma once

#include <string>
#include <vector>

#include "attn/inputs.h"
#include "harness/worker/checks/agreement.h"
#include "harness/worker/subject.h"

namespace attnbench {

// Copies of small inputs, or sums of large ones, by which a change of the inputs is noticed after a call.
class InputState {
 public:
  explicit InputState(const CallInputs& inputs);
  // The name of the input that has changed since, such as "q" or "gradient of the output"; empty if none has.
  std::string changed(const CallInputs& inputs) const;

 private:
  std::vector<at::Tensor> copies_;  // empty if the inputs are large
  std::vector<double> sums_;
};

// Returns whether the output of a call is memory of its own and the inputs are as they were. If not, records the case as invalid
// and says why.
bool check_memory(const CallInputs& inputs, const InputState& before, const Results& results, Record& record);

// Calls the method four times on a small problem: with some inputs, with others, with the first ones again, and with the others'
// numbers written into the memory of the first ones. Compares the results with the reference. A method that returns a stored
// result disagrees with the reference in the second or the fourth call. Checks that the first three results are in different
// memory, and sets the column `nondeterminism` from the first and the third. Returns whether all checks pass; if not, records the
// case as invalid and says why.
bool check_repeated_calls(const Subject& subject, Agreement& agreement, Record& record);

}  // namespace attnbench
