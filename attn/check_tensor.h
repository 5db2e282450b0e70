// The checks that operators and methods make of their tensors, with messages in one wording.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>
#include <c10/util/Exception.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace attn {

// "batch", "heads", "length", "dim", … for the letters of a shape: B batch; H, G, W and U heads of queries, keys, values and
// the output; N queries, L keys; D dim of queries and keys, M dim of values; F features; R rounds; C columns.
const char* word_of_axis(char letter);

// "[batch, heads, length, dim]" for "BHND".
std::string text_of_shape(const char* shape);

// Checks that tensors fit together. Each has the device of the first one, and an axis has the size that it had in the first
// tensor with its letter. All functions throw c10::ValueError, whose message begins with `prefix` and names the tensor, what was
// found and what was expected.
class TensorChecks {
 public:
  explicit TensorChecks(const char* prefix = "") : prefix_(prefix) {}

  // A tensor of the shape with these letters, of a floating dtype: that of the first tensor unless `dtype` is given.
  void check(const char* name, const at::Tensor& x, const char* shape, std::optional<at::ScalarType> dtype = std::nullopt);
  // int64 [batch] on the device of the first tensor, after which it is called. Values are not read.
  void check_key_lengths(const at::Tensor& lengths);

 private:
  struct Axis {
    c10::SymInt size;
    const char* from = nullptr;  // the first tensor with this axis; null until there is one
  };

  const char* prefix_;
  const char* first_name_ = nullptr;
  std::optional<at::Device> device_;
  at::ScalarType dtype_ = at::kFloat;
  std::array<Axis, 26> axes_;  // by letter
};

// Checks the borders of packed sequences, int64 [sequences + 1] with a sequence or more, on the CPU or on the device of `like`.
// Throws c10::ValueError, which begins with `prefix`.
void check_cu_seqlens(const std::string& prefix, const at::Tensor& cu_seqlens, const at::Tensor& like);
// Checks that the borders rise from 0 to `length`, the length of the tensor called `name`. Reading values from a GPU would wait
// for all work that was queued before, so they are checked on the CPU only.
void check_values_of_cu_seqlens(const std::string& prefix, const at::Tensor& cu_seqlens, int64_t length, const char* name);

// Throws c10::ValueError, which begins with `name`, if the tensor has another shape or dtype, or is on another device than
// `like`.
inline void check_tensor(const char* name, const at::Tensor& x, const std::vector<c10::SymInt>& shape, at::ScalarType dtype,
                         const at::Tensor& like) {
  TORCH_CHECK_VALUE(x.sym_sizes() == c10::SymIntArrayRef(shape) && x.scalar_type() == dtype && x.device() == like.device(), name,
                    " is ", x.scalar_type(), " ", x.sym_sizes(), " on ", x.device(), ", expected ", dtype, " ",
                    c10::SymIntArrayRef(shape), " on ", like.device());
}

}  // namespace attn
