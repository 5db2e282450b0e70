#include "harness/worker/quality.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace attnbench {

namespace {

void check_declared(const attn::AttentionMethod& method, const std::vector<std::pair<std::string, double>>& diagnostics) {
  const auto declared = method.diagnostic_specs();
  for (const auto& [name, value] : diagnostics)
    if (std::none_of(declared.begin(), declared.end(), [&, &name = name](const auto& spec) { return spec.name == name; }))
      throw std::invalid_argument(method.label() + " reports the diagnostic '" + name + "', which it does not declare");
}

}  // namespace

Quality assess(const attn::AttentionMethod& method, const CallInputs& inputs, const Results& results,
               const Selection& selection) {
  const at::NoGradGuard no_grad;
  Quality quality;
  const auto square_sum = [](const at::Tensor& x) { return x.square().sum().item<double>(); };
  double squared_distance = 0, squared_norm = 0;
  for (const auto& excerpt : excerpts(inputs, results, selection)) {
    if (const auto exact = method.approximated(excerpt.inputs, excerpt.rows)) {
      squared_distance += square_sum(excerpt.output.to(at::kDouble) - *exact);
      squared_norm += square_sum(*exact);
      quality.approximation_error = std::sqrt(squared_distance / (squared_norm > 0 ? squared_norm : 1));
    }
    quality.diagnostics = method.diagnostics(excerpt.inputs, excerpt.rows);
  }
  check_declared(method, quality.diagnostics);
  return quality;
}

}  // namespace attnbench
