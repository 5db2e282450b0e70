// The implementation of LSH attention for CUDA, called "cuda" in options and records. It uses tensor cores: products of bfloat16
// as they are, products of float16 as TF32, and products of float32 as three TF32 products. Head and value dimensions are at most
// 128, and a row is a multiple of 16 bytes. Other problems are composed of ATen operations, as are all on a device without the
// shared memory that the kernels need.
#include "attn/lsh/implementation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "attn/cuda/gpu.h"
#include "attn/cuda/tensors.h"
#include "attn/lsh/cuda/run.h"

namespace attn::cuda {
namespace {

using at::Tensor;

// The inputs of one call with aligned rows, and the parameters of its kernels, which point into them.
struct LshTensors {
  Tensor qk, v, key_lengths;
  LshParams params{};

  LshTensors(const LshArguments& a, int64_t rounds)
      : qk(with_aligned_rows(a.qk)),
        v(with_aligned_rows(a.v)),
        key_lengths(a.key_lengths ? a.key_lengths->contiguous() : Tensor()) {
    TORCH_CHECK_VALUE(qk.size(2) < std::numeric_limits<int32_t>::max(), "lsh_attention: qk has length ", qk.size(2),
                      ", expected less than 2^31 - 1");
    params.batch = qk.size(0);
    params.heads = qk.size(1);
    params.length = qk.size(2);
    params.rounds = rounds;
    params.chunk = std::min(a.chunk, params.length);
    params.chunks = params.length > 0 ? (params.length + params.chunk - 1) / params.chunk : 0;
    params.head_dim = int(qk.size(3));
    params.value_dim = int(v.size(3));
    params.causal = a.causal;
    params.trax = a.trax;
    if (key_lengths.defined()) params.key_lengths = key_lengths.const_data_ptr<int64_t>();
    params.qk = strided(qk);
    params.v = strided(v);
  }

  int64_t heads() const { return params.batch * params.heads; }
};

class CudaLsh final : public LshImplementation {
 public:
  std::string name() const override { return "cuda"; }

  LshForward forward(const LshArguments& a, const Tensor& rotations, at::OptionalIntArrayRef bucket_factors) const override {
    const GpuGuard guard(a.qk);
    LshTensors tensors(a, rotations.size(1));
    auto& params = tensors.params;
    const std::vector<int64_t> per_round{a.qk.size(0), a.qk.size(1), params.rounds, params.length};
    const auto order = at::empty(per_round, a.qk.options().dtype(at::kLong)),
               log_sum_exp = at::empty(per_round, a.qk.options().dtype(at::kDouble)),
               output = at::empty({a.qk.size(0), a.qk.size(1), params.length, a.v.size(3)}, a.qk.options());
    params.order = order.data_ptr<int64_t>();
    params.log_sum_exp = log_sum_exp.data_ptr<double>();
    params.output = strided(output);
    if (order.numel() == 0) return {output, log_sum_exp, order};
    hash_and_sort(tensors, rotations, bucket_factors);
    Tensor partial_output, merged;
    if (params.rounds > 1) {
      partial_output = at::empty({tensors.heads(), params.length, params.value_dim}, a.qk.options().dtype(at::kFloat));
      params.partial_output = partial_output.data_ptr<float>();
    }
    if (params.rounds > 1 && a.trax) {
      merged = at::empty({tensors.heads(), params.length, 2}, a.qk.options().dtype(at::kDouble));
      params.merged = merged.data_ptr<double>();
    }
    run(tensors, Pass::forward);
    return {output, log_sum_exp, order};
  }

  std::tuple<Tensor, Tensor> backward(const LshArguments& a, const Tensor& grad_output, const LshForward& result,
                                      const Tensor& shares) const override {
    const GpuGuard guard(a.qk);
    const auto grad_qk = at::empty(a.qk.sizes(), a.qk.options()), grad_v = at::empty(a.v.sizes(), a.v.options());
    if (result.order.numel() == 0) return {grad_qk, grad_v};
    LshTensors tensors(a, result.order.size(2));
    auto& params = tensors.params;
    const auto output = with_aligned_rows(result.output), aligned_grad_output = with_aligned_rows(grad_output);
    const auto order = result.order.contiguous(), log_sum_exp = result.log_sum_exp.contiguous(),
               float_shares = shares.to(at::kFloat).contiguous();
    const auto zeros = [&](int64_t rows, int64_t dim) {
      return at::zeros({tensors.heads(), rows, dim}, a.qk.options().dtype(at::kFloat));
    };
    const auto length = params.length, head_dim = int64_t{params.head_dim}, value_dim = int64_t{params.value_dim};
    const auto grad_query = zeros(length, head_dim), grad_key = zeros(length, head_dim), grad_value = zeros(length, value_dim),
               grad_key_before = zeros(length, head_dim), grad_value_before = zeros(length, value_dim);
    Tensor wrapped_key, wrapped_value;
    if (params.wraps()) {
      wrapped_key = zeros(params.chunk, head_dim);
      wrapped_value = zeros(params.chunk, value_dim);
      params.wrapped_key = wrapped_key.data_ptr<float>();
      params.wrapped_value = wrapped_value.data_ptr<float>();
    }
    params.order = order.data_ptr<int64_t>();
    params.log_sum_exp = log_sum_exp.data_ptr<double>();
    params.shares = float_shares.const_data_ptr<float>();
    params.output = strided(output);
    params.grad_output = strided(aligned_grad_output);
    params.grad_qk = strided(grad_qk);
    params.grad_v = strided(grad_v);
    params.grad_query = grad_query.data_ptr<float>();
    params.grad_key = grad_key.data_ptr<float>();
    params.grad_value = grad_value.data_ptr<float>();
    params.grad_key_before = grad_key_before.data_ptr<float>();
    params.grad_value_before = grad_value_before.data_ptr<float>();
    run(tensors, Pass::backward);
    return {grad_qk, grad_v};
  }

  double peak_bytes(const Problem& p, const LshSettings& s, bool backward) const override {
    const double tokens = double(p.batch) * double(p.heads) * double(p.query_len), places = tokens * double(s.rounds);
    const double sorting = 24 * places;  // the keys, the sorted keys, and the scratch memory of the sort
    const double merging = s.rounds > 1 ? tokens * (4 * double(p.value_dim) + (s.trax() ? 16 : 0)) : 0;
    const double order_and_log_sum_exp = 16 * places;
    if (!backward) return p.output_bytes() + order_and_log_sum_exp + std::max(sorting, merging);
    // The accumulators by position and, where the first chunk of a round looks back at another round, those by place.
    const double accumulators = 4 * tokens * double(3 * p.head_dim + 2 * p.value_dim);
    const bool wraps = s.trax() && s.rounds > 1 && p.query_len > s.chunk;
    const double by_place =
        wraps ? 4 * double(p.batch) * double(p.heads) * double(s.chunk) * double(p.head_dim + p.value_dim) : 0;
    const double gradients = p.query_bytes() + p.value_bytes() + 4 * places + accumulators + by_place;
    return p.output_bytes() + order_and_log_sum_exp + std::max(std::max(sorting, merging), gradients);
  }

 private:
  static void run(const LshTensors& tensors, Pass pass) {
    const auto stream = current_stream();
    const auto& params = tensors.params;
    const int dim = tile_dim(params.head_dim, params.value_dim);
    const auto dtype = tensors.qk.scalar_type();
    if (dtype == at::kFloat) return run_lsh_float32(params, dim, pass, stream);
    if (dtype == at::kBFloat16) return run_lsh_bfloat16(params, dim, pass, stream);
    run_lsh_float16(params, dim, pass, stream);
  }

  static void hash_and_sort(const LshTensors& tensors, const Tensor& rotations, at::OptionalIntArrayRef factors) {
    const auto exact = rotations.detach().to(at::kDouble).permute({1, 0, 2}).contiguous(), rounded = exact.to(at::kFloat);
    const auto max_norm = at::linalg_vector_norm(exact, 2, at::IntArrayRef{1}).max().to(at::kFloat);
    const LshRotations columns{exact.const_data_ptr<double>(), rounded.const_data_ptr<float>(),
                               int(factors ? (*factors)[0] / 2 : exact.size(2)), int(factors ? (*factors)[1] / 2 : 0),
                               max_norm.const_data_ptr<float>()};
    const int64_t count = tensors.heads() * tensors.params.rounds * tensors.params.length;
    const auto keys = at::empty({2, count}, tensors.qk.options().dtype(at::kLong));
    const auto bytes = sort_bytes(count);
    const auto scratch = at::empty({int64_t(bytes)}, tensors.qk.options().dtype(at::kByte));
    auto* first = reinterpret_cast<uint64_t*>(keys.data_ptr<int64_t>());
    run_lsh_sort(tensors.params, columns, *element_type_of(tensors.qk.scalar_type()), first, first + count, scratch.data_ptr(),
                 bytes, current_stream());
  }
};

size_t shared_bytes(at::ScalarType dtype, int dim, Pass pass) {
  if (dtype == at::kFloat) return shared_bytes_of_lsh_float32(dim, pass);
  if (dtype == at::kBFloat16) return shared_bytes_of_lsh_bfloat16(dim, pass);
  return shared_bytes_of_lsh_float16(dim, pass);
}

// Why the kernels cannot compute the request; empty if they can.
std::string why_not(const ImplementationRequest& r) {
  const auto element = element_type_of(r.dtype);
  if (!element || *element == ElementType::float64) return std::string("does not compute in ") + c10::toString(r.dtype);
  if (auto problem = why_not_tiles(r.dtype, r.head_dim, r.value_dim); !problem.empty()) return problem;
  const int dim = tile_dim(r.head_dim, r.value_dim);
  const auto available = gpu_properties(r.device_index).shared_bytes_per_block;
  const auto problem = why_not_shared_memory(shared_bytes(r.dtype, dim, Pass::forward), available, "forward");
  if (!problem.empty() || !r.gradients) return problem;
  return why_not_shared_memory(shared_bytes(r.dtype, dim, Pass::backward), available, "backward");
}

const LshImplementation* cuda_lsh(const ImplementationRequest&) {
  static const CudaLsh cuda;
  return &cuda;
}

const bool registered =
    (lsh_implementations().register_gpu(kDeviceType, {{.name = "cuda", .why_not = why_not, .get = cuda_lsh}}), true);

}  // namespace
}  // namespace attn::cuda
