// The checks that operators and methods make of their tensors.
#include "attn/check_tensor.h"

#include <cstring>

#include "attn/problem.h"

namespace attn {

const char* word_of_axis(char letter) {
  switch (letter) {
    case 'B': return "batch";
    case 'H':
    case 'G':
    case 'W':
    case 'U': return "heads";
    case 'N':
    case 'L': return "length";
    case 'D':
    case 'M': return "dim";
    case 'F': return "features";
    case 'R': return "rounds";
    case 'C': return "columns";
    default: TORCH_INTERNAL_ASSERT(false, "no axis has the letter ", letter);
  }
}

std::string text_of_shape(const char* shape) {
  std::string text;
  for (const auto* letter = shape; *letter != '\0'; ++letter)
    text += (text.empty() ? "" : ", ") + std::string(word_of_axis(*letter));
  return "[" + text + "]";
}

void TensorChecks::check(const char* name, const at::Tensor& x, const char* shape, std::optional<at::ScalarType> dtype) {
  TORCH_CHECK_VALUE(x.defined(), prefix_, name, " is not defined");
  const auto axes = int64_t(std::strlen(shape));
  TORCH_CHECK_VALUE(x.dim() == axes, prefix_, name, " has shape ", x.sym_sizes(), ", expected ", text_of_shape(shape));
  if (!device_) {
    TORCH_CHECK_VALUE(at::isFloatingType(x.scalar_type()), prefix_, name, " is ", dtype_name(x.scalar_type()),
                      ", expected a floating dtype");
    first_name_ = name;
    device_ = x.device();
    dtype_ = x.scalar_type();
  }
  TORCH_CHECK_VALUE(x.device() == *device_, prefix_, name, " is on ", x.device(), " but ", first_name_, " is on ", *device_);
  TORCH_CHECK_VALUE(dtype || x.scalar_type() == dtype_, prefix_, name, " is ", dtype_name(x.scalar_type()), " but ", first_name_,
                    " is ", dtype_name(dtype_));
  TORCH_CHECK_VALUE(!dtype || x.scalar_type() == *dtype, prefix_, name, " is ", dtype_name(x.scalar_type()), ", expected ",
                    dtype_name(*dtype), " beside ", first_name_, " in ", dtype_name(dtype_));
  const auto sizes = x.sym_sizes();
  for (size_t i = 0; i < sizes.size(); ++i) {
    auto& axis = axes_.at(size_t(shape[i] - 'A'));
    if (!axis.from) axis = {sizes[i], name};
    TORCH_CHECK_VALUE(sizes[i] == axis.size, prefix_, name, " has ", word_of_axis(shape[i]), " ", sizes[i], ", expected ",
                      axis.size, " as in ", axis.from);
  }
}

void TensorChecks::check_key_lengths(const at::Tensor& lengths) {
  TORCH_CHECK_VALUE(lengths.scalar_type() == at::kLong, prefix_, "key_lengths is ", c10::toString(lengths.scalar_type()),
                    ", expected int64");
  const auto& batch = axes_.at('B' - 'A').size;
  TORCH_CHECK_VALUE(lengths.dim() == 1 && lengths.sym_size(0) == batch, prefix_, "key_lengths has shape ", lengths.sym_sizes(),
                    ", expected [batch] = [", batch, "]");
  TORCH_CHECK_VALUE(lengths.device() == *device_, prefix_, "key_lengths is on ", lengths.device(), " but ", first_name_,
                    " is on ", *device_);
}

void check_cu_seqlens(const std::string& prefix, const at::Tensor& cu_seqlens, const at::Tensor& like) {
  TORCH_CHECK_VALUE(cu_seqlens.scalar_type() == at::kLong && cu_seqlens.dim() == 1 && cu_seqlens.size(0) >= 2, prefix,
                    "cu_seqlens is ", cu_seqlens.scalar_type(), " ", cu_seqlens.sym_sizes(),
                    ", expected int64 [sequences + 1] with a sequence or more");
  TORCH_CHECK_VALUE(cu_seqlens.device().is_cpu() || cu_seqlens.device() == like.device(), prefix, "cu_seqlens is on ",
                    cu_seqlens.device(), ", expected ", like.device(), like.device().is_cpu() ? "" : " or cpu");
}

void check_values_of_cu_seqlens(const std::string& prefix, const at::Tensor& cu_seqlens, int64_t length, const char* name) {
  if (!cu_seqlens.device().is_cpu()) return;
  const auto borders = cu_seqlens.contiguous();
  const auto* const values = borders.const_data_ptr<int64_t>();
  const auto last = borders.numel() - 1;
  TORCH_CHECK_VALUE(values[0] == 0 && values[last] == length, prefix, "cu_seqlens goes from ", values[0], " to ", values[last],
                    ", expected 0 to ", length, ", the length of ", name);
  for (int64_t i = 0; i < last; ++i)
    TORCH_CHECK_VALUE(values[i] <= values[i + 1], prefix, "cu_seqlens falls from ", values[i], " to ", values[i + 1],
                      ", expected rising numbers");
}

}  // namespace attn
