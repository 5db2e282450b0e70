// LSH attention on CUDA, as attn's operators and methods call it; "cuda" in records. Tensor cores: bfloat16 as it is, float16 as
// TF32, float32 as three TF32 products; head and value dimensions up to 128, in whole 16 bytes. Other problems are composed.
#include "attn/lsh/implementation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "attn/cuda/current_gpu.h"
#include "attn/cuda/tensors.h"

namespace attn::cuda {
namespace {

using at::Tensor;

LshCall call_of(const Tensor& qk, const Tensor& v, const Tensor& key_lengths, int64_t rounds, int64_t chunk, bool causal,
                bool trax) {
  TORCH_CHECK_VALUE(qk.size(2) < std::numeric_limits<int32_t>::max(), "lsh_attention: qk has length ", qk.size(2),
                    ", expected less than 2^31 - 1");
  LshCall c{};
  c.batch = qk.size(0), c.heads = qk.size(1), c.length = qk.size(2), c.rounds = rounds;
  c.chunk = std::min(chunk, c.length), c.chunks = c.length > 0 ? (c.length + c.chunk - 1) / c.chunk : 0;
  c.head_dim = int(qk.size(3)), c.value_dim = int(v.size(3)), c.causal = causal, c.trax = trax;
  if (key_lengths.defined()) c.key_lengths = key_lengths.const_data_ptr<int64_t>();
  c.qk = rows_of(qk), c.v = rows_of(v);
  return c;
}

void run(const LshCall& call, at::ScalarType dtype, Pass pass) {
  const auto stream = current_stream();
  const int dim = padded_dim(call.head_dim, call.value_dim);
  if (dtype == at::kFloat) return run_lsh_float32(call, dim, pass, stream);
  if (dtype == at::kBFloat16) return run_lsh_bfloat16(call, dim, pass, stream);
  run_lsh_float16(call, dim, pass, stream);
}

class CudaLsh final : public kernels::LshImplementation {
 public:
  std::string name() const override { return "cuda"; }

  std::tuple<Tensor, Tensor, Tensor> forward(const Tensor& qk, const Tensor& v, const Tensor& rotations, int64_t chunk,
                                             bool causal, const std::optional<Tensor>& key_lengths, bool trax,
                                             at::OptionalIntArrayRef bucket_factors) const override {
    const OnGpuOf gpu(qk);
    const auto x = with_aligned_rows(qk), values = with_aligned_rows(v);
    const auto lengths = key_lengths ? key_lengths->contiguous() : Tensor();
    auto c = call_of(x, values, lengths, rotations.size(1), chunk, causal, trax);
    const std::vector<int64_t> per_round{qk.size(0), qk.size(1), c.rounds, c.length};
    const auto order = at::empty(per_round, qk.options().dtype(at::kLong)),
               log_sum_exp = at::empty(per_round, qk.options().dtype(at::kDouble)),
               output = at::empty({qk.size(0), qk.size(1), c.length, v.size(3)}, qk.options());
    c.order = order.data_ptr<int64_t>(), c.log_sum_exp = log_sum_exp.data_ptr<double>(), c.output = rows_of(output);
    if (order.numel() == 0) return {output, log_sum_exp, order};
    sort(c, qk, rotations, bucket_factors);
    Tensor sums, merged;
    if (c.rounds > 1) {
      sums = at::empty({c.batch * c.heads, c.length, c.value_dim}, qk.options().dtype(at::kFloat));
      merged = at::empty({c.batch * c.heads, c.length, 2}, qk.options().dtype(at::kDouble));
      c.sums = sums.data_ptr<float>(), c.merged = merged.data_ptr<double>();
    }
    run(c, qk.scalar_type(), Pass::forward);
    return {output, log_sum_exp, order};
  }

  std::tuple<Tensor, Tensor> backward(const Tensor& gradient, const Tensor& qk, const Tensor& v, const Tensor& output,
                                      const std::optional<Tensor>& key_lengths, const Tensor& log_sum_exp, const Tensor& order,
                                      const Tensor& shares, int64_t chunk, bool causal, bool trax) const override {
    const OnGpuOf gpu(qk);
    const auto x = with_aligned_rows(qk), values = with_aligned_rows(v), out = with_aligned_rows(output),
               of_output = with_aligned_rows(gradient);
    const auto lengths = key_lengths ? key_lengths->contiguous() : Tensor();
    auto c = call_of(x, values, lengths, order.size(2), chunk, causal, trax);
    const auto positions = order.contiguous(), log_sums = log_sum_exp.contiguous(), parts = shares.to(at::kFloat).contiguous();
    const auto of_qk = at::empty(qk.sizes(), qk.options()), of_v = at::empty(v.sizes(), v.options());
    if (order.numel() == 0) return {of_qk, of_v};
    const auto sums = [&](int64_t dim) { return at::zeros({c.batch * c.heads, c.length, dim}, qk.options().dtype(at::kFloat)); };
    const auto of_query = sums(c.head_dim), of_key = sums(c.head_dim), of_value = sums(c.value_dim);
    c.order = positions.data_ptr<int64_t>(), c.log_sum_exp = log_sums.data_ptr<double>(),
    c.shares = parts.const_data_ptr<float>();
    c.output = rows_of(out), c.gradient = rows_of(of_output), c.qk_gradient = rows_of(of_qk), c.v_gradient = rows_of(of_v);
    c.of_query = of_query.data_ptr<float>(), c.of_key = of_key.data_ptr<float>(), c.of_value = of_value.data_ptr<float>();
    run(c, qk.scalar_type(), Pass::backward);
    return {of_qk, of_v};
  }

 private:
  static void sort(const LshCall& c, const Tensor& qk, const Tensor& rotations, at::OptionalIntArrayRef factors) {
    const auto exact = rotations.detach().to(at::kDouble).permute({1, 0, 2}).contiguous(), rounded = exact.to(at::kFloat);
    LshRotations turned{exact.const_data_ptr<double>(), rounded.const_data_ptr<float>(),
                        int(factors ? (*factors)[0] / 2 : exact.size(2)), int(factors ? (*factors)[1] / 2 : 0), nullptr};
    const auto longest = at::linalg_vector_norm(exact, 2, at::IntArrayRef{1}).max().to(at::kFloat);
    turned.longest = longest.const_data_ptr<float>();
    const int64_t count = c.batch * c.heads * c.rounds * c.length;
    const auto keys = at::empty({2, count}, qk.options().dtype(at::kLong));
    const auto bytes = sort_bytes(count);
    const auto scratch = at::empty({int64_t(bytes)}, qk.options().dtype(at::kByte));
    auto* first = reinterpret_cast<uint64_t*>(keys.data_ptr<int64_t>());
    run_lsh_sort(c, turned, *element_of(qk.scalar_type()), first, first + count, scratch.data_ptr(), bytes, current_stream());
  }
};

const kernels::LshImplementation* find(const kernels::LshRequest& request) {
  static const CudaLsh cuda;
  TORCH_CHECK_VALUE(request.wanted == "auto" || request.wanted == "cuda", "lsh_attention: kernel '", request.wanted,
                    "' is not for CUDA; expected auto, cuda or composed");
  const auto element = element_of(request.dtype);
  const auto problem = !element || *element == ElementKind::float64
                           ? std::string("does not compute in ") + c10::toString(request.dtype)
                           : why_not_tiles(request.dtype, request.head_dim, request.value_dim);
  if (problem.empty()) return &cuda;
  TORCH_CHECK_VALUE(request.wanted == "auto", "lsh_attention: kernel 'cuda' ", problem, "; 'composed' does");
  return nullptr;
}

const bool known = (kernels::set_cuda_lsh(find), true);

}  // namespace
}  // namespace attn::cuda
