// Linear attention on CUDA, as attn's operators and methods call it. Names as in records:
//
//   cuda        tensor cores: bfloat16 as it is, float16 as TF32, float32 as three TF32 products (an error of about 2⁻²¹);
//               head and value dimensions up to 128, in whole 16 bytes
//   cuda-tf32   float32 rounded to TF32
//   cuda-plain  any dimension, float64 too; a block a head, one position after the other
//
// "auto" takes the first that can. Feature maps: elu, elu0.1, relu.
#include <ATen/ATen.h>

#include <algorithm>

#include "attn/linear/feature_map.h"
#include "attn/cuda/current_gpu.h"
#include "attn/cuda/tensors.h"
#include "attn/linear/implementation.h"

namespace attn::cuda {
namespace {

using at::Tensor;

std::optional<LinearMapKind> kind_of(const std::string& map) {
  if (map == "elu") return LinearMapKind::elu;
  if (map == "elu0.1") return LinearMapKind::elu01;
  if (map == "relu") return LinearMapKind::relu;
  return std::nullopt;
}

// The tensors of one call, and the call as kernels take it.
struct Call {
  Tensor q, k, v, key_lengths, gradient;
  LinearCall c{};
  std::vector<Tensor> kept;  // states

  Call(const Tensor& of_q, const Tensor& of_k, const Tensor& of_v, bool causal, const std::optional<Tensor>& lengths,
       const kernels::LinearMap& map, double epsilon)
      : q(with_aligned_rows(of_q)), k(with_aligned_rows(of_k)), v(with_aligned_rows(of_v)) {
    c.batch = q.size(0), c.heads = q.size(1), c.query_len = q.size(2), c.key_len = k.size(2);
    c.head_dim = int(q.size(3)), c.value_dim = int(v.size(3)), c.causal = causal;
    c.map = *kind_of(map.name), c.epsilon = float(epsilon);
    if (lengths) key_lengths = lengths->contiguous(), c.key_lengths = key_lengths.const_data_ptr<int64_t>();
    c.q = rows_of(q), c.k = rows_of(k), c.v = rows_of(v);
    c.split_len = std::max<int64_t>({64, c.query_len, c.key_len}), c.splits = 1;
  }
  at::TensorOptions sums() const { return q.options().dtype(q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat); }

  float* states(int64_t dim) {
    kept.push_back(at::empty({c.batch * c.heads, c.splits, state_numbers(dim)}, sums()));
    return kept.back().data_ptr<float>();
  }
  void* plain_states() {
    kept.push_back(at::zeros({c.batch * c.heads, int64_t(c.head_dim) * c.value_dim + c.head_dim}, sums()));
    return kept.back().data_ptr();
  }
};

class CudaLinear final : public kernels::LinearImplementation {
 public:
  enum class Kind { tensor_cores, tf32, plain };
  explicit CudaLinear(Kind kind) : kind_(kind) {}

  std::string name() const override {
    return kind_ == Kind::tensor_cores ? "cuda" : kind_ == Kind::tf32 ? "cuda-tf32" : "cuda-plain";
  }

  // Why this cannot, or nothing.
  std::string why_not(const kernels::LinearRequest& r) const {
    if (!kind_of(r.feature_map)) return "does not compute feature map '" + r.feature_map + "'";
    const auto element = element_of(r.dtype);
    if (!element) return std::string("does not compute in ") + c10::toString(r.dtype);
    if (kind_ == Kind::plain) return "";
    if (*element == ElementKind::float64) return "does not compute in Double; 'cuda-plain' does";
    if (kind_ == Kind::tf32 && *element != ElementKind::float32) return "is for float32";
    const auto problem = why_not_tiles(r.dtype, r.head_dim, r.value_dim);
    return problem.empty() ? "" : problem + "; 'cuda-plain' takes these";
  }

  std::tuple<Tensor, Tensor> forward(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                     const std::optional<Tensor>& key_lengths, const kernels::LinearMap& map,
                                     double epsilon) const override {
    const OnGpuOf gpu(q);
    Call call(q, k, v, causal, key_lengths, map, epsilon);
    const auto output = at::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
    const auto normalizer = at::empty({q.size(0), q.size(1), q.size(2), 1}, call.sums());
    call.c.output = rows_of(output), call.c.normalizer = normalizer.data_ptr();
    run(call, Pass::forward);
    return {output, normalizer};
  }

  std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& gradient, const Tensor& q, const Tensor& k, const Tensor& v,
                                              const Tensor& normalizer, bool causal, const std::optional<Tensor>& key_lengths,
                                              const kernels::LinearMap& map) const override {
    const OnGpuOf gpu(q);
    Call call(q, k, v, causal, key_lengths, map, 0);
    const auto like = [](const Tensor& x) { return at::empty(x.sizes(), x.options()); };
    const auto of_q = like(q), of_k = like(k), of_v = like(v), kept = normalizer.contiguous(), delta = like(kept);
    call.gradient = with_aligned_rows(gradient);
    call.c.gradient = rows_of(call.gradient), call.c.q_gradient = rows_of(of_q), call.c.k_gradient = rows_of(of_k);
    call.c.v_gradient = rows_of(of_v), call.c.normalizer = kept.data_ptr(), call.c.normalizer_gradient = delta.data_ptr();
    run(call, Pass::backward);
    return {of_q, of_k, of_v};
  }

  // A pass over all tokens at once, or over some thousands: what it takes beside them is their features.
  void add(const Tensor& k, const Tensor& v, const Tensor& s, const Tensor& z, const kernels::LinearMap& map) const override {
    constexpr int64_t kAtOnce = 4096;
    const auto features = make_feature_map(map.name);
    for (int64_t begin = 0; begin < k.size(2); begin += kAtOnce) {
      const auto part = [&](const Tensor& x) {
        return x.narrow(2, begin, std::min(kAtOnce, k.size(2) - begin)).to(s.scalar_type());
      };
      const auto kappa = features->apply(part(k).flatten(0, 1)).phi.view({k.size(0), k.size(1), -1, k.size(3)});
      s.add_(at::matmul(kappa.transpose(2, 3), part(v)));
      z.add_(kappa.sum(2));
    }
  }

  Tensor step(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& s, const Tensor& z, const kernels::LinearMap& map,
              double epsilon) const override {
    const OnGpuOf gpu(q);
    Call call(q, k, v, /*causal=*/true, {}, map, epsilon);
    auto output = at::empty({q.size(0), q.size(1), 1, v.size(3)}, q.options());
    call.c.output = rows_of(output);
    run_linear_step(call.c, *element_of(q.scalar_type()), s.data_ptr(), z.data_ptr(), current_stream());
    return output;
  }

 private:
  void run(Call& call, Pass pass) const {
    auto& c = call.c;
    const auto stream = current_stream();
    const auto element = *element_of(call.q.scalar_type());
    const bool backward = pass == Pass::backward;
    if (kind_ == Kind::plain) {
      auto* states = call.plain_states();
      return run_linear_plain(c, element, pass, states, backward ? call.plain_states() : nullptr, stream);
    }
    const auto splits = split_positions(c.batch * c.heads, std::max(c.query_len, c.key_len), multiprocessors());
    const int dim = padded_dim(c.head_dim, c.value_dim);
    c.split_len = splits.length, c.splits = splits.count;
    if (!c.causal || c.splits > 1) c.states = call.states(dim);
    if (kind_ == Kind::tf32) return run_linear_tf32(c, dim, pass, stream);
    if (element == ElementKind::float32) return run_linear_float32(c, dim, pass, stream);
    if (element == ElementKind::bfloat16) return run_linear_bfloat16(c, dim, pass, stream);
    run_linear_float16(c, dim, pass, stream);
  }

  Kind kind_;
};

const kernels::LinearImplementation* find(const kernels::LinearRequest& request) {
  static const CudaLinear all[] = {CudaLinear(CudaLinear::Kind::tensor_cores), CudaLinear(CudaLinear::Kind::plain),
                                   CudaLinear(CudaLinear::Kind::tf32)};
  for (const auto& one : all) {
    const auto problem = one.why_not(request);
    if (request.wanted == "auto") {
      if (problem.empty()) return &one;
      continue;
    }
    if (request.wanted != one.name()) continue;
    TORCH_CHECK_VALUE(problem.empty(), "linear_attention: kernel '", request.wanted, "' ", problem);
    return &one;
  }
  TORCH_CHECK_VALUE(request.wanted == "auto", "linear_attention: kernel '", request.wanted,
                    "' is not for CUDA; expected auto, cuda, cuda-tf32, cuda-plain or composed");
  return nullptr;
}

const bool known = (kernels::set_cuda_linear(find), true);

}  // namespace
}  // namespace attn::cuda
