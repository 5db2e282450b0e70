// Asks the method for the diagnostics of its last excerpt, and refuses those that it has not declared.
#include "harness/worker/methods/diagnostics.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <stdexcept>

namespace attnbench {

void set_diagnostics(Record& record, const attn::AttentionMethod& method, const CallInputs& inputs, const Results& results,
                     const Selection& selection) {
  const at::NoGradGuard no_grad;
  const auto declared = method.diagnostic_specs();
  const auto last = excerpts(inputs, results, selection).back();
  auto diagnostics = Json::object();
  for (const auto& [name, value] : method.diagnostics(last.inputs, last.rows)) {
    if (std::none_of(declared.begin(), declared.end(), [&, &name = name](const auto& spec) { return spec.name == name; }))
      throw std::invalid_argument(method.label() + " reports the diagnostic '" + name + "', which it does not declare");
    diagnostics[name] = value;
  }
  record.set("diagnostics", diagnostics);
}

}  // namespace attnbench
