// The tensors of one call of recurrent attention, the parameters of each head in them, and its sequences.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "attn/recurrent/cpu/kernels.h"
#include "attn/recurrent/implementation.h"

namespace attn::cpu {

// Heads of values are counted over the batch: index = batch entry · W + head.
class RecurrentHeads {
 public:
  // Tensors whose rows are not contiguous are copied.
  explicit RecurrentHeads(const RecurrentArguments& arguments);

  void set_output(const at::Tensor& output) { output_ = output; }
  // Makes the rows of q null, so that kernels compute no outputs.
  void omit_queries() { has_queries_ = false; }
  // Gradients have contiguous rows and the dtype of their inputs, except those of q and k, which have the accumulator dtype if
  // heads share q and k.
  void set_gradients(const at::Tensor& grad_output, const RecurrentGradients& gradients);

  int64_t count() const { return v_.size(0) * v_.size(1); }
  // How many neighbouring heads of values share a head of q and k.
  int64_t sharing() const { return q_.size(1) == 0 ? 1 : v_.size(1) / q_.size(1); }
  // The options of states: the accumulator dtype, on the device of q.
  at::TensorOptions accumulator() const { return q_.options().dtype(accumulator_dtype(q_.scalar_type())); }

  // The parameters that all heads share. Rows and gates are not set.
  const RecurrentHeadParams& common() const { return common_; }
  // The parameters of one head, which point into the tensors.
  RecurrentHeadParams head(int64_t index) const;

 private:
  RecurrentHeadParams common_{};
  bool has_queries_ = true;
  at::Tensor q_, k_, v_, g_, beta_, output_, grad_output_;
  RecurrentGradients gradients_;
};

// The sequences of a call: one for each batch entry, or those that cu_seqlens packs into one.
class RecurrentSequences {
 public:
  explicit RecurrentSequences(const RecurrentArguments& arguments);

  int64_t count() const { return int64_t(borders_.size()) - 1; }  // the number of sequences of a batch entry
  int64_t begin(int64_t sequence) const { return borders_[size_t(sequence)]; }
  int64_t end(int64_t sequence) const { return borders_[size_t(sequence) + 1]; }
  // The index of a sequence's first checkpoint among those of its head.
  int64_t first_checkpoint(int64_t sequence) const { return begin(sequence) / kCheckpoint + sequence; }

 private:
  std::vector<int64_t> borders_;
};

}  // namespace attn::cpu
