// How a request for an implementation is read, resolved and refused.
#include "attn/implementations.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

namespace attn {
namespace {

// "a", "a or b", "a, b or c", each word between quotation marks.
std::string alternatives(const std::vector<std::string>& words, const char* quote) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + (quote + words[i] + quote);
  return text;
}

}  // namespace

OptionSpec implementation_option(const std::vector<std::string>& names) {
  std::vector<std::string> choices{kAutoImplementation};
  choices.insert(choices.end(), names.begin(), names.end());
  choices.emplace_back(kComposedImplementation);
  return {"implementation", std::string(kAutoImplementation),
          "instruction set of the CPU, or kernels for CUDA; auto: the best available one; composed: ATen operations",
          std::move(choices)};
}

std::optional<ElementType> element_type_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat: return ElementType::float32;
    case at::kDouble: return ElementType::float64;
    case at::kBFloat16: return ElementType::bfloat16;
    case at::kHalf: return ElementType::float16;
    default: return std::nullopt;
  }
}

bool records_gradients(at::TensorList tensors) {
  return at::GradMode::is_enabled() &&
         std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& x) { return x.requires_grad(); });
}

std::string detail::refusal_of_implementation(const std::string& operator_name, const std::string& wanted,
                                              const std::string& reason, std::vector<std::string> others) {
  others.emplace_back(kComposedImplementation);
  return operator_name + ": implementation '" + wanted + "' " + reason + "; use " + alternatives(others, "'");
}

std::string detail::unknown_implementation(const std::string& operator_name, const std::string& wanted, c10::DeviceType device,
                                           std::vector<std::string> known, bool is_loaded) {
  known.insert(known.begin(), kAutoImplementation);
  known.emplace_back(kComposedImplementation);
  const auto* const library = is_loaded ? "" : "; the kernels for CUDA are in libattn-cuda.so, which is not loaded";
  return operator_name + ": there is no implementation '" + wanted + "' for " + c10::DeviceTypeName(device, /*lower_case=*/true) +
         ", expected " + alternatives(known, "") + library;
}

}  // namespace attn
