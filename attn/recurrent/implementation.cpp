// The registry of implementations of recurrent attention, and the sizes and layouts of its results.
#include "attn/recurrent/implementation.h"

#include <ATen/ATen.h>

#include "attn/recurrent/definition.h"

namespace attn {

// A sequence of n positions has at most n / kCheckpoint, rounded down, plus one checkpoints.
std::vector<c10::SymInt> checkpoint_sizes(const RecurrentArguments& a, bool gradients) {
  if (!gradients) return {0};
  const auto of_head = a.q.sym_size(2) / kCheckpoint + (a.cu_seqlens ? sequence_count(a) : c10::SymInt(1));
  return {a.v.sym_size(0), a.v.sym_size(1), of_head, checkpoint_numbers(a.q.size(3), a.v.size(3))};
}

at::Tensor empty_in_layout_of(const at::Tensor& like, c10::SymIntArrayRef sizes) {
  if (like.sym_stride(1) < like.sym_stride(2))
    return at::empty_symint({sizes[0], sizes[2], sizes[1], sizes[3]}, like.options()).transpose(1, 2);
  return at::empty_symint(sizes, like.options());
}

RecurrentRegistry& recurrent_implementations() {
  static RecurrentRegistry registry("recurrent_attention");
  return registry;
}

}  // namespace attn
