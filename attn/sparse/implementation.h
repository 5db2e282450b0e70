// The definition of softmax attention over the keys that a pattern leaves visible, and SparseImplementation, the interface of
// what computes it, with its registry.
//
// With i and j the positions of a query and a key, and U the number of heads of the output (attn/problem.h says how heads are
// shared):
//   log_sum_exp[i] = log(e^sink + Σ_j e^(scale · q[i]·k[j]))     output[i] = Σ_j e^(scale · q[i]·k[j] − log_sum_exp[i]) v[j]
// over the keys j that the query sees (attn/pattern.h, attn/mask.h). A query that sees none has the output 0 and the log-sum-exp
// of the sink alone, or −∞. Sums are computed in float64 for float64 tensors, and in float32 for others.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "attn/implementations.h"
#include "attn/pattern.h"
#include "attn/problem.h"
#include "attn/sparse/visible_parts.h"

namespace attn {

// The checked arguments. Tensors may have any strides; q, k and v have one dtype and one device.
struct SparseArguments {
  at::Tensor q, k, v;  // [B,H,N,D], [B,G,L,D], [B,W,L,M]
  bool causal = false;
  Pattern pattern;
  double scale = 1;
  std::optional<at::Tensor> key_lengths;  // int64 [B]: the number of valid keys of each batch entry
  // int64 [S+1]: every batch entry packs S sequences, one after the other, which begin and end at these positions, and whose
  // queries see keys of their own sequence. Then N = L, and there are no key lengths.
  std::optional<at::Tensor> cu_seqlens;
  std::optional<at::Tensor> sinks;  // [U], in the accumulator dtype: the score of a key without a value, which every query sees

  // int64 [B,C,N,K], where C divides U: for each query and each of C groups of neighbouring heads, the numbers of the K blocks of
  // `block` keys that it sees, in any order; −1 for none. Then the pattern is `all`, and there is no cu_seqlens.
  std::optional<at::Tensor> chosen_blocks;
  int64_t block = 64;

  int64_t output_heads() const { return std::max({q.size(1), k.size(1), v.size(1)}); }
};

struct SparseResults {
  at::Tensor output;       // [B,U,N,M] in the dtype of q
  at::Tensor log_sum_exp;  // [B,U,N] in the accumulator dtype
};

// In the dtypes of the inputs; `sinks` is undefined without sinks.
struct SparseGradients {
  at::Tensor q, k, v, sinks;
};

class SparseImplementation {
 public:
  virtual ~SparseImplementation() = default;
  virtual std::string name() const = 0;
  virtual SparseResults forward(const SparseArguments& arguments) const = 0;
  // Gradients of results may be undefined, which stands for zeros.
  virtual SparseGradients backward(const SparseArguments& arguments, const SparseResults& results, const at::Tensor& grad_output,
                                   const at::Tensor& grad_log_sum_exp) const = 0;

  // The predicted peak memory beside the inputs, the output and the log-sum-exp, in bytes. `joins_parts` says whether some rows
  // have keys in several parts.
  virtual double working_bytes(const Problem& problem, bool joins_parts, bool backward) const = 0;
};

// The implementations for the CPU are "avx512", "avx2", "neon" and "portable"; attn/sparse/cpu/implementation.cpp registers them.
// There are none for GPUs.
using SparseRegistry = ImplementationRegistry<SparseImplementation, ImplementationRequest>;
SparseRegistry& sparse_implementations();

// The parts of the visible pairs of each batch entry. Without key lengths they are the same for all entries, and the result has
// one element.
std::vector<std::vector<VisibleParts>> visible_parts_of(const SparseArguments& arguments);

}  // namespace attn
