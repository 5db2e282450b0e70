// Takes the cross entropy of the selected predictions, and counts those that are right.
#include "experiments/losses/copy_loss.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

namespace experiments {
namespace {

constexpr int64_t kIgnored = -100;  // a target that at::cross_entropy_loss leaves out

void check_arguments(const char* function, const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& mask) {
  TORCH_CHECK_VALUE(logits.dim() == 3 && logits.is_floating_point(), function, ": logits are ", logits.scalar_type(), " ",
                    logits.sizes(), ", expected a floating-point tensor [batch, length, classes]");
  const auto check = [&](const char* name, const at::Tensor& tensor, at::ScalarType dtype) {
    TORCH_CHECK_VALUE(tensor.scalar_type() == dtype && tensor.sizes() == logits.sizes().slice(0, 2), function, ": ", name, " is ",
                      tensor.scalar_type(), " ", tensor.sizes(), ", expected ", dtype, " ", logits.sizes().slice(0, 2),
                      " as in the logits");
  };
  check("targets", targets, at::kLong);
  check("mask", mask, at::kBool);
}

// The number of selected positions, at least 1.
at::Tensor count_of(const at::Tensor& mask) { return mask.sum().clamp_min(1); }

}  // namespace

at::Tensor masked_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& mask) {
  check_arguments("masked_cross_entropy", logits, targets, mask);
  const auto selected = targets.masked_fill(mask.logical_not(), kIgnored);
  const auto total =
      at::cross_entropy_loss(logits.flatten(0, 1), selected.flatten(), /*weight=*/{}, at::Reduction::Sum, kIgnored);
  return total / count_of(mask);
}

at::Tensor masked_accuracy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& mask) {
  check_arguments("masked_accuracy", logits, targets, mask);
  const auto right = logits.argmax(-1).eq(targets).logical_and(mask).sum();
  return right.to(at::kDouble) / count_of(mask);
}

}  // namespace experiments
