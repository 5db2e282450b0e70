// Linear attention on CUDA. These implementations have the names that options and records use:
//
//   cuda        tensor cores: bfloat16 without conversion, float16 as TF32, float32 as three TF32 products (an error of
//               about 2⁻²¹); head_dim and value_dim up to 128, with rows of a multiple of 16 bytes
//   cuda-plain  no tensor cores: any dimension, also float64
//   cuda-tf32   tensor cores: float32 rounded to TF32; dimensions as for cuda
//
// "auto" chooses cuda if it can compute the problem and the device has the shared memory that it needs, and cuda-plain otherwise.
// Where gradients are wanted, it chooses one implementation for both passes.
#include <ATen/ATen.h>

#include <algorithm>

#include "attn/cuda/gpu.h"
#include "attn/cuda/tensors.h"
#include "attn/linear/cuda/run.h"
#include "attn/linear/cuda/splits.h"
#include "attn/linear/implementation.h"
#include "attn/linear/value_shift.h"

namespace attn::cuda {
namespace {

using at::Tensor;

// The tensors of one call, and the parameters of its kernels, which point into the tensors.
struct LinearTensors {
  Tensor q, k, v, key_lengths, grad_output, value_shift;
  LinearParams params{};
  std::vector<Tensor> states;

  LinearTensors(const Tensor& given_q, const Tensor& given_k, const Tensor& given_v, bool causal,
                const std::optional<Tensor>& lengths, FeatureMapKind map, double epsilon)
      : q(with_aligned_rows(given_q)), k(with_aligned_rows(given_k)), v(with_aligned_rows(given_v)) {
    params.batch = q.size(0);
    params.heads = q.size(1);
    params.query_len = q.size(2);
    params.key_len = k.size(2);
    params.head_dim = int(q.size(3));
    params.value_dim = int(v.size(3));
    params.causal = causal;
    params.map = map;
    params.epsilon = float(epsilon);
    if (lengths) {
      key_lengths = lengths->contiguous();
      params.key_lengths = key_lengths.const_data_ptr<int64_t>();
    }
    params.q = strided(q);
    params.k = strided(k);
    params.v = strided(v);
    params.split_len = std::max<int64_t>({64, params.query_len, params.key_len});
    params.splits = 1;
  }
  explicit LinearTensors(const LinearArguments& a)
      : LinearTensors(a.q, a.k, a.v, a.causal, a.key_lengths, a.map.kind, a.epsilon) {}

  // Sets what the backward pass takes off v.
  void set_value_shift() {
    constexpr int64_t kMaxTileDim = 128;
    auto shift = attn::value_shift(v, key_lengths.defined() ? std::optional(key_lengths) : std::nullopt,
                                   accumulator_dtype(v.scalar_type()));
    // The kernels subtract it from pairs of bfloat16 numbers.
    if (v.scalar_type() == at::kBFloat16) shift = shift.to(at::kBFloat16).to(shift.scalar_type());
    const auto columns = shift.size(2), width = (columns + kMaxTileDim - 1) / kMaxTileDim * kMaxTileDim;
    value_shift = at::zeros({shift.size(0), shift.size(1), width}, shift.options());
    value_shift.narrow(2, 0, columns).copy_(shift);
    params.value_shift = value_shift.const_data_ptr();
    params.value_shift_stride = width;
  }

  at::TensorOptions accumulator() const { return q.options().dtype(accumulator_dtype(q.scalar_type())); }

  // Allocates uninitialised states of the splits of a group of heads, for the kernels with tensor cores.
  float* split_states(int64_t dim) {
    states.push_back(at::empty({params.heads_at_once, params.splits, state_numbers(dim)}, accumulator()));
    return states.back().data_ptr<float>();
  }
  // Allocates a state of zeros for each head, for the plain kernels.
  void* plain_states() {
    states.push_back(
        at::zeros({params.batch * params.heads, int64_t(params.head_dim) * params.value_dim + params.head_dim}, accumulator()));
    return states.back().data_ptr();
  }
};

class CudaLinear final : public LinearImplementation {
 public:
  enum class Kind { tensor_cores, tf32, plain };
  explicit CudaLinear(Kind kind) : kind_(kind) {}

  std::string name() const override {
    return kind_ == Kind::tensor_cores ? "cuda" : kind_ == Kind::tf32 ? "cuda-tf32" : "cuda-plain";
  }

  // Why this implementation cannot compute the request; empty when it can.
  std::string why_not(const LinearRequest& r) const {
    if (auto problem = why_not_map(r, computes_feature_map(r.map)); !problem.empty()) return problem;
    const auto element = element_type_of(r.dtype);
    if (!element) return std::string("does not compute in ") + c10::toString(r.dtype);
    if (kind_ == Kind::plain) {
      return why_not_shared_memory(shared_bytes_of_linear_plain(r.head_dim, r.value_dim, *element),
                                   gpu_properties(r.device_index).shared_bytes_per_block, "forward");
    }
    if (*element == ElementType::float64) return "does not compute in Double";
    if (kind_ == Kind::tf32 && *element != ElementType::float32)
      return "computes in Float only, not in " + std::string(c10::toString(r.dtype));
    if (auto problem = why_not_tiles(r.dtype, r.head_dim, r.value_dim); !problem.empty()) return problem;
    const auto why_not_pass = [&](Pass pass, const char* name) {
      return why_not_shared_memory(tile_kernels(*element).shared_bytes(tile_dim(r.head_dim, r.value_dim), pass),
                                   gpu_properties(r.device_index).shared_bytes_per_block, name);
    };
    auto memory = why_not_pass(Pass::forward, "forward");
    if (memory.empty() && r.gradients) memory = why_not_pass(Pass::backward, "backward");
    return memory;
  }

  std::tuple<Tensor, Tensor> forward(const LinearArguments& a) const override {
    const GpuGuard guard(a.q);
    LinearTensors tensors(a);
    const auto output = at::empty({a.q.size(0), a.q.size(1), a.q.size(2), a.v.size(3)}, a.q.options());
    const auto normalizer = at::empty({a.q.size(0), a.q.size(1), a.q.size(2), 1}, tensors.accumulator());
    tensors.params.output = strided(output);
    tensors.params.normalizer = normalizer.data_ptr();
    run(tensors, Pass::forward);
    return {output, normalizer};
  }

  std::tuple<Tensor, Tensor, Tensor> backward(const LinearArguments& a, const Tensor& grad_output,
                                              const Tensor& normalizer) const override {
    const GpuGuard guard(a.q);
    LinearTensors tensors(a);
    const auto like = [](const Tensor& x) { return at::empty(x.sizes(), x.options()); };
    const auto grad_q = like(a.q), grad_k = like(a.k), grad_v = like(a.v);
    const auto dense_normalizer = normalizer.contiguous(), grad_normalizer = like(dense_normalizer);
    tensors.grad_output = with_aligned_rows(grad_output);
    auto& params = tensors.params;
    params.grad_output = strided(tensors.grad_output);
    params.grad_q = strided(grad_q);
    params.grad_k = strided(grad_k);
    params.grad_v = strided(grad_v);
    params.normalizer = dense_normalizer.data_ptr();
    params.grad_normalizer = grad_normalizer.data_ptr();
    tensors.set_value_shift();
    run(tensors, Pass::backward);
    return {grad_q, grad_k, grad_v};
  }

  // Composed of ATen operations, one product for each chunk of tokens; the features of a chunk are the only memory that it
  // allocates.
  void add(const Tensor& k, const Tensor& v, const LinearDecodingState& state, const FeatureMapSpec& map) const override {
    constexpr int64_t kTokensPerProduct = 4096;
    const auto features = make_feature_map(map);
    for (int64_t begin = 0; begin < k.size(2); begin += kTokensPerProduct) {
      const auto part = [&](const Tensor& x) {
        return x.narrow(2, begin, std::min(kTokensPerProduct, k.size(2) - begin)).to(state.s.scalar_type());
      };
      const auto kappa = features->apply(part(k).flatten(0, 1)).phi.view({k.size(0), k.size(1), -1, k.size(3)});
      state.s.add_(at::matmul(kappa.transpose(2, 3), part(v)));
      state.z.add_(kappa.sum(2));
    }
  }

  Tensor step(const Tensor& q, const Tensor& k, const Tensor& v, const LinearDecodingState& state, const FeatureMapSpec& map,
              double epsilon) const override {
    const GpuGuard guard(q);
    LinearTensors tensors(q, k, v, /*causal=*/true, {}, map.kind, epsilon);
    auto output = at::empty({q.size(0), q.size(1), 1, v.size(3)}, q.options());
    tensors.params.output = strided(output);
    run_linear_step(tensors.params, *element_type_of(q.scalar_type()), state.s.data_ptr(), state.z.data_ptr(), current_stream());
    return output;
  }

  // Predicts for the current GPU, and for an H100 where there is no GPU.
  double state_numbers(const Problem& p, int64_t, bool backward) const override {
    const auto heads = p.batch * p.heads;
    const auto dim = tile_dim(p.head_dim, p.value_dim);
    if (kind_ == Kind::plain) return double(heads) * double(p.head_dim * (p.value_dim + 1)) * (backward ? 2 : 1);
    const auto bytes =
        bytes_read_twice(p.head_dim, p.value_dim, int64_t(c10::elementSize(p.dtype)), backward ? Pass::backward : Pass::forward);
    const auto splits = split_positions(heads, std::max(p.query_len, p.key_len), bytes,
                                        /*blocks_per_multiprocessor=*/backward ? 2 : 3, gpu_limits());
    return double(splits.heads_at_once * splits.count * cuda::state_numbers(dim) * (backward ? 2 : 1));
  }

 private:
  static GpuLimits gpu_limits() {
    const auto gpu = gpu_properties();
    return {gpu.multiprocessors, gpu.l2_bytes};
  }

  void run(LinearTensors& tensors, Pass pass) const {
    auto& params = tensors.params;
    const auto stream = current_stream();
    const auto element = *element_type_of(tensors.q.scalar_type());
    if (kind_ == Kind::plain) {
      auto* states = tensors.plain_states();
      return run_linear_plain(params, element, pass, states, pass == Pass::backward ? tensors.plain_states() : nullptr, stream);
    }
    const int dim = tile_dim(params.head_dim, params.value_dim);
    const auto kernels = tile_kernels(element);
    const auto bytes = bytes_read_twice(params.head_dim, params.value_dim, int64_t(tensors.q.element_size()), pass);
    const auto splits = split_positions(params.batch * params.heads, std::max(params.query_len, params.key_len), bytes,
                                        kernels.blocks_per_multiprocessor(dim, pass), gpu_limits());
    params.split_len = splits.length;
    params.splits = splits.count;
    params.heads_at_once = splits.heads_at_once;
    if (!params.causal || params.splits > 1) {
      params.states = tensors.split_states(dim);
      if (pass == Pass::backward) params.query_states = tensors.split_states(dim);
    }
    kernels.run(params, dim, pass, stream);
  }

  // The kernels for tensor cores of an element type.
  struct TileKernels {
    void (*run)(const LinearParams&, int dim, Pass, cudaStream_t);
    int64_t (*blocks_per_multiprocessor)(int dim, Pass);
    size_t (*shared_bytes)(int dim, Pass);
  };
  TileKernels tile_kernels(ElementType element) const {
    if (kind_ == Kind::tf32) return {run_linear_tf32, blocks_of_linear_tf32, shared_bytes_of_linear_tf32};
    if (element == ElementType::float32) return {run_linear_float32, blocks_of_linear_float32, shared_bytes_of_linear_float32};
    if (element == ElementType::bfloat16)
      return {run_linear_bfloat16, blocks_of_linear_bfloat16, shared_bytes_of_linear_bfloat16};
    return {run_linear_float16, blocks_of_linear_float16, shared_bytes_of_linear_float16};
  }
  // The bytes of a position of one head that should stay in the L2 cache between the kernels of a pass: q, k and v, and the
  // gradient of the output.
  static int64_t bytes_read_twice(int64_t head_dim, int64_t value_dim, int64_t element_size, Pass pass) {
    return (2 * head_dim + (pass == Pass::forward ? 1 : 2) * value_dim) * element_size;
  }

  Kind kind_;
};

std::vector<LinearRegistry::Named> all_for_cuda() {
  using Kind = CudaLinear::Kind;
  static const CudaLinear tensor_cores(Kind::tensor_cores), plain(Kind::plain), tf32(Kind::tf32);
  std::vector<LinearRegistry::Named> all;
  for (const auto* one : {&tensor_cores, &plain, &tf32})
    all.push_back({.name = one->name(),
                   .why_not = [one](const LinearRequest& request) { return one->why_not(request); },
                   .get = [one](const LinearRequest&) -> const LinearImplementation* { return one; },
                   // "auto" computes the same problems with cuda, which is more exact.
                   .only_by_name = one == &tf32,
                   .in_tf32 = one == &tf32});
  return all;
}

const bool registered = (linear_implementations().register_gpu(kDeviceType, all_for_cuda()), true);

}  // namespace
}  // namespace attn::cuda
