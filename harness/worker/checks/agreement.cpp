// Computes the errors of outputs and gradients, and the part of the errors that rounding makes unavoidable.
#include "harness/worker/checks/agreement.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "harness/worker/methods/foreign_method.h"

namespace attnbench {
namespace {

// The largest absolute entry.
double max_entry(const at::Tensor& x) { return x.numel() == 0 ? 0 : x.abs().max().item<double>(); }

// What is compared: the output and, if the call computed them, the gradients, of one excerpt.
struct Compared {
  at::Tensor output;
  attn::Inputs gradients = {};
};

// The relative errors of one tensor as Agreement defines them.
struct Errors {
  double absolute = 0, relative = 0, of_row = 0;
};

// `min_scale` is the smallest divisor of the differences of a tensor, and `min_row_scale` that of the differences of a row.
Errors errors_of(const at::Tensor& result, const at::Tensor& reference, double min_scale, double min_row_scale) {
  Errors errors;
  if (reference.numel() == 0) return errors;
  const auto scale = std::max(max_entry(reference), min_scale);
  const auto difference = result.to(at::kDouble) - reference;
  errors.absolute = max_entry(difference);
  errors.relative = errors.absolute / (scale > 0 ? scale : 1);
  const auto rows = reference.abs().amax(-1);
  const auto not_zero = rows.masked_select(rows > 0);
  const auto median = not_zero.numel() == 0 ? 0 : not_zero.median().item<double>();
  const auto smallest = std::max(median / 100, min_row_scale);
  errors.of_row = max_entry(difference.abs().amax(-1) / rows.clamp_min(smallest > 0 ? smallest : 1));
  return errors;
}

// The unavoidable error is so many times the error of the reference with changed inputs, because the rounding errors of sums of
// many terms add up.
constexpr double kSensitivityFactor = 16;

// `changed` is the reference for inputs that are changed by `change` rounding errors, and has no tensors if the inputs are not
// ill-conditioned.
Agreement agreement_of(const std::vector<attn::InputSpec>& specs, const Compared& results, const Compared& reference,
                       const Compared& changed, double change) {
  double max_of_gradients = 0;
  for (const auto& spec : specs)
    if (const auto& gradient = reference.gradients.*spec.member; gradient.defined())
      max_of_gradients = std::max(max_of_gradients, max_entry(gradient));
  Agreement all;
  const auto include = [&](const std::string& name, const at::Tensor& result, const at::Tensor& expected,
                           const at::Tensor& of_changed, double scale) {
    const auto errors = errors_of(result, expected, scale / 10, scale / 1000);
    Agreement one{errors.absolute, errors.relative, name, std::isfinite(errors.absolute)};
    one.max_row_error = errors.of_row;
    Errors unavoidable;
    if (of_changed.defined()) unavoidable = errors_of(of_changed, expected, scale / 10, scale / 1000);
    one.excess_error = errors.relative - kSensitivityFactor * unavoidable.relative / change;
    one.excess_row_error = errors.of_row - kSensitivityFactor * unavoidable.of_row / change;
    all.include(one);
  };
  include("output", results.output, reference.output, changed.output, 0);
  for (const auto& spec : specs)
    if (const auto& expected = reference.gradients.*spec.member; expected.defined())
      include("gradient of " + std::string(spec.name), results.gradients.*spec.member, expected, changed.gradients.*spec.member,
              max_of_gradients);
  return all;
}

bool all_finite(const at::Tensor& x) {
  if (!x.defined() || x.numel() == 0) return true;
  const auto [min, max] = at::aminmax(x.detach());  // a NaN anywhere makes both NaN
  return std::isfinite(min.item<double>()) && std::isfinite(max.item<double>());
}

// The results of the method's reference. If `grad_output` is defined, also computes the gradients.
Compared reference_of(const attn::AttentionMethod& method, const attn::Inputs& inputs, const at::Tensor& rows,
                      const at::Tensor& grad_output) {
  const bool has_gradients = grad_output.defined();
  for (const auto& spec : method.inputs())
    if (const auto& x = inputs.*spec.member; x.defined()) x.set_requires_grad(has_gradients && spec.differentiable);
  const at::AutoGradMode with_gradients(has_gradients);
  const auto output = method.reference(inputs.with_all_heads(), rows);
  Compared reference{output.detach()};
  if (!has_gradients) return reference;
  reference.gradients = gradients_of(output, grad_output, inputs, method.inputs());
  return reference;
}

// Half the distance between 1 and the next number of the dtype.
double unit_roundoff(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble: return std::ldexp(1.0, -53);
    case at::kFloat: return std::ldexp(1.0, -24);
    case at::kHalf: return std::ldexp(1.0, -11);
    default: return std::ldexp(1.0, -8);  // bfloat16
  }
}

// x with each entry changed by one part in 1e9, up or down at random. The change is so small that it moves no entry of the
// inputs of LSH attention to another bucket, and so large that float64 shows what it does to the results.
constexpr double kChange = 1e-9;
at::Tensor slightly_changed(const at::Tensor& x, uint64_t seed) {
  if (!x.defined()) return x;
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto signs = at::empty(x.sizes(), at::kDouble).bernoulli_(0.5, generator).mul_(2).sub_(1).to(x.device());
  return x.detach() * (signs * kChange + 1);
}

Agreement compare_excerpt(const attn::AttentionMethod& method, const Excerpt& excerpt, const CallInputs& inputs,
                          const Results& results, const Selection& selection) {
  Compared compared{excerpt.output};
  at::Tensor grad_output;
  if (inputs.grad_output.defined()) {
    grad_output = selection.select_from(inputs.grad_output).index_select(2, excerpt.rows).to(at::kDouble);
    for (const auto& spec : method.inputs())
      if (const auto& gradient = results.gradients.*spec.member; gradient.defined())
        compared.gradients.*spec.member = selection.select_from(gradient, spec);
  }
  const auto reference = reference_of(method, excerpt.inputs, excerpt.rows, grad_output);
  Compared changed;
  if (inputs.ill_conditioned) {
    auto changed_inputs = excerpt.inputs;
    uint64_t seed = 1;
    for (const auto& spec : method.inputs()) changed_inputs.*spec.member = slightly_changed(excerpt.inputs.*spec.member, seed++);
    changed = reference_of(method, changed_inputs, excerpt.rows, slightly_changed(grad_output, seed));
  }
  return agreement_of(method.inputs(), compared, reference, changed, kChange / unit_roundoff(inputs.q.scalar_type()));
}

}  // namespace

void Agreement::include(const Agreement& other) {
  finite = finite && other.finite;
  verified = verified && other.verified;
  max_abs_error = std::max(max_abs_error, other.max_abs_error);
  const auto take_larger = [](double& one, double two) {
    if (!std::isnan(one) && !(two <= one)) one = two;  // a NaN is the largest of all
  };
  take_larger(max_row_error, other.max_row_error);
  take_larger(excess_error, other.excess_error);
  take_larger(excess_row_error, other.excess_row_error);
  const auto before = max_rel_error;
  take_larger(max_rel_error, other.max_rel_error);
  if (worst.empty() || (before != max_rel_error && !std::isnan(before))) worst = other.worst;
}

bool Agreement::set_columns(Record& record, double tolerance) const {
  if (verified) {
    record.set("max_abs_error", max_abs_error);
    record.set("max_rel_error", max_rel_error);
    record.set("max_row_error", max_row_error);
    record.set("excess_error", excess_error);
    record.set("error_tolerance", tolerance);
  } else {
    record.set("unverified", true);
  }
  if (within(tolerance)) return true;
  auto reason = worst + " disagrees with the float64 reference: relative error " + Json(max_rel_error).dump();
  if (excess_error != max_rel_error) reason += ", " + Json(excess_error).dump() + " more than the inputs explain";
  record.set_failed(kind::invalid, finite ? reason + ", accepted " + Json(tolerance).dump() : "NaN or infinity in the results");
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
  agreement.finite = agreement.finite && all_finite(results.output);
  for (const auto& spec : attn::kInputs) agreement.finite = agreement.finite && all_finite(results.gradients.*spec.member);
  return agreement;
}

}  // namespace attnbench
