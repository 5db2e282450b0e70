// The tensors of one call of linear attention, and the parameters of each head in them.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "attn/implementations.h"
#include "attn/linear/cpu/kernels.h"
#include "attn/linear/feature_map.h"

namespace attn::cpu {

// Heads are counted over the batch: index = batch entry · H + head.
class LinearHeads {
 public:
  // q, k and v whose rows are not contiguous are copied.
  LinearHeads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& key_lengths,
              const FeatureMapSpec& map, double epsilon);

  // Sets the contiguous tensors that the kernels write or, in the backward pass, read. Undefined tensors are neither read nor
  // written.
  void set_results(const at::Tensor& output, const at::Tensor& normalizer) { output_ = output, normalizer_ = normalizer; }
  void set_gradients(const at::Tensor& grad_output, const at::Tensor& grad_normalizer, const at::Tensor& grad_q,
                     const at::Tensor& grad_k, const at::Tensor& grad_v);

  // Sets the numbers that the backward pass subtracts from each column of v, [B,H,M] (attn/linear/value_shift.h).
  void set_value_shift(const at::Tensor& shift);

  int64_t count() const { return q_.size(0) * q_.size(1); }
  int64_t query_len() const { return q_.size(2); }
  int64_t key_len() const { return k_.size(2); }
  bool scales() const { return has_scales(common_.update); }
  int64_t padded_features() const { return padded(common_.feature_count); }
  int64_t padded_values() const { return padded(common_.value_dim); }
  // The parameters that all heads share. Rows, normalizers and visible_keys are not set.
  const LinearHeadParams& common() const { return common_; }
  // The options of states and normalizers: the accumulator dtype, on the device of q.
  at::TensorOptions accumulator() const { return q_.options().dtype(accumulator_dtype(q_.scalar_type())); }

  // The parameters of one head, which point into the tensors.
  LinearHeadParams head(int64_t index) const;

 private:
  void set_projection(const at::Tensor& directions);

  LinearHeadParams common_{};
  at::Tensor projection_, projection_transposed_;
  at::Tensor q_, k_, v_, key_lengths_, output_, normalizer_, grad_output_, grad_normalizer_, grad_q_, grad_k_, grad_v_,
      value_shift_;
};

}  // namespace attn::cpu
