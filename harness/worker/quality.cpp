#include "harness/worker/quality.h"

#include <ATen/ATen.h>

#include <cmath>

namespace attnbench {

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
  return quality;
}

}  // namespace attnbench
