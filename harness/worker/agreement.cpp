#include "harness/worker/agreement.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "harness/worker/foreign_method.h"

namespace attnbench {
namespace {

// The largest absolute entry.
double max_entry(const at::Tensor& x) { return x.numel() == 0 ? 0 : x.abs().max().item<double>(); }

Agreement compare_tensor(const std::string& name, const at::Tensor& result, const at::Tensor& reference, double min_scale) {
  Agreement agreement;
  agreement.worst = name;
  if (reference.numel() == 0) return agreement;
  const auto scale = std::max(max_entry(reference), min_scale);
  agreement.max_abs_error = max_entry(result.to(at::kDouble) - reference);
  agreement.max_rel_error = agreement.max_abs_error / (scale > 0 ? scale : 1);
  agreement.finite = std::isfinite(agreement.max_abs_error);
  return agreement;
}

bool all_finite(const at::Tensor& x) {
  if (!x.defined() || x.numel() == 0) return true;
  const auto [min, max] = at::aminmax(x.detach());  // a NaN anywhere makes both NaN
  return std::isfinite(min.item<double>()) && std::isfinite(max.item<double>());
}

// Compares the gradients of q, k and v with those of the reference, whose output is `reference`.
Agreement compare_gradients(const Excerpt& excerpt, const at::Tensor& reference, const CallInputs& inputs, const Results& results,
                            const Selection& selection) {
  const auto grad_output = selection.select_from(inputs.grad_output).index_select(2, excerpt.rows).to(at::kDouble);
  const std::vector<at::Tensor> leaves = {excerpt.inputs.q, excerpt.inputs.k, excerpt.inputs.v};
  auto expected = torch::autograd::grad({reference}, leaves, {grad_output}, /*retain_graph=*/std::nullopt,
                                        /*create_graph=*/false, /*allow_unused=*/true);
  double max_of_all = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!expected[i].defined()) expected[i] = at::zeros_like(leaves[i]);
    max_of_all = std::max(max_of_all, max_entry(expected[i]));
  }
  Agreement agreement;
  agreement.include(compare_tensor("gradient of q", selection.select_from(results.grad_q), expected[0], max_of_all / 10));
  agreement.include(compare_tensor("gradient of k", selection.select_from(results.grad_k), expected[1], max_of_all / 10));
  agreement.include(compare_tensor("gradient of v", selection.select_from(results.grad_v), expected[2], max_of_all / 10));
  return agreement;
}

Agreement compare_excerpt(const attn::AttentionMethod& method, const Excerpt& excerpt, const CallInputs& inputs,
                          const Results& results, const Selection& selection) {
  const bool has_gradients = inputs.grad_output.defined();
  for (const auto member : attn::kInputTensors)
    if (const auto& x = excerpt.inputs.*member; x.defined()) x.set_requires_grad(has_gradients);
  const at::AutoGradMode with_gradients(has_gradients);
  const auto reference = method.reference(excerpt.inputs, excerpt.rows);
  auto agreement = compare_tensor("output", excerpt.output, reference.detach(), 0);
  if (has_gradients) agreement.include(compare_gradients(excerpt, reference, inputs, results, selection));
  return agreement;
}

}  // namespace

void Agreement::include(const Agreement& other) {
  finite = finite && other.finite;
  verified = verified && other.verified;
  max_abs_error = std::max(max_abs_error, other.max_abs_error);
  if (worst.empty() || !(other.max_rel_error <= max_rel_error)) {
    max_rel_error = other.max_rel_error;
    worst = other.worst;
  }
}

bool Agreement::set_columns(Record& record, double tolerance) const {
  if (verified) {
    record.set("max_abs_error", max_abs_error);
    record.set("max_rel_error", max_rel_error);
    record.set("error_tolerance", tolerance);
  } else {
    record.set("unverified", true);
  }
  if (within(tolerance)) return true;
  record.set_failed(kind::invalid, finite ? worst + " disagrees with the float64 reference: relative error " +
                                                Json(max_rel_error).dump() + ", accepted " + Json(tolerance).dump()
                                          : "NaN or infinity in the results");
  return false;
}

Agreement compare(const attn::AttentionMethod& method, const CallInputs& inputs, const Results& results,
                  const Selection& selection) {
  Agreement agreement;
  const auto* const other = foreign(&method);
  agreement.verified = !other || other->has_reference();
  if (agreement.verified) {
    for (const auto& excerpt : excerpts(inputs, results, selection))
      agreement.include(compare_excerpt(method, excerpt, inputs, results, selection));
  }
  for (const auto* result : {&results.output, &results.grad_q, &results.grad_k, &results.grad_v})
    agreement.finite = agreement.finite && all_finite(*result);
  return agreement;
}

}  // namespace attnbench
