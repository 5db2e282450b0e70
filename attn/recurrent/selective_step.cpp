// The operator attn::selective_state_step, a decoding step of Mamba (https://arxiv.org/abs/2312.00752) and of Mamba-2
// (https://arxiv.org/abs/2405.21060, where A and dt are the same for all entries of a head):
//   δ = dt + dt_bias, or its softplus
//   state[p,n] ← e^(A[p,n] δ[p]) state[p,n] + δ[p] x[p] B[n]
//   output[p] = (Σ_n state[p,n] C[n] + D[p] x[p]) · silu(z[p])
// Reading and writing the state takes most of the time, so plain loops are enough.
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "attn/check_tensor.h"
#include "attn/implementations.h"
#include "attn/operators/declaration.h"
#include "attn/without_autocast.h"

namespace attn {
namespace {

using at::Tensor;

struct SelectiveStepArguments {
  Tensor state;                   // [R,H,P,N], R = B without indices
  Tensor x, dt;                   // [B,H,P]
  Tensor A;                       // [H,P,N]
  Tensor B, C;                    // [B,G,N], G divides H
  std::optional<Tensor> D;        // [H,P]
  std::optional<Tensor> z;        // [B,H,P]
  std::optional<Tensor> dt_bias;  // [H,P]
  bool dt_softplus = false;
  std::optional<Tensor> state_batch_indices;  // int64 [B]; negative: no row, and the output is 0
  std::string implementation;                 // "auto" or "composed"

  static constexpr auto list() {
    using S = SelectiveStepArguments;
    return std::tuple{argument("state", &S::state, nullptr, "Tensor(a!)"),
                      argument("x", &S::x),
                      argument("dt", &S::dt),
                      argument("A", &S::A),
                      argument("B", &S::B),
                      argument("C", &S::C),
                      argument("D", &S::D, "None"),
                      argument("z", &S::z, "None"),
                      argument("dt_bias", &S::dt_bias, "None"),
                      argument("dt_softplus", &S::dt_softplus, "False"),
                      argument("state_batch_indices", &S::state_batch_indices, "None"),
                      argument("implementation", &S::implementation, "\"auto\"")};
  }
};

// Throws c10::ValueError for invalid arguments. Tensors may have different floating dtypes.
void check_selective_step(const SelectiveStepArguments& a) {
  const std::string prefix = "selective_state_update: ";
  const auto check = [&](const char* name, const Tensor& x, const std::vector<c10::SymInt>& shape) {
    TORCH_CHECK_VALUE(x.is_floating_point(), prefix, name, " is ", x.scalar_type(), ", expected a floating dtype");
    check_tensor((prefix + name).c_str(), x, shape, x.scalar_type(), a.state);
  };
  TORCH_CHECK_VALUE(a.state.dim() == 4, prefix, "state has the shape ", a.state.sym_sizes(), ", expected 3 or 4 axes");
  TORCH_CHECK_VALUE(a.x.dim() == 3 && a.B.dim() == 3, prefix, "x has the shape ", a.x.sym_sizes(), " and B ", a.B.sym_sizes(),
                    ", expected [batch, heads, dim] and [batch, groups, states]");
  const auto batch = a.x.sym_size(0), heads = a.state.sym_size(1), dim = a.state.sym_size(2), states = a.state.sym_size(3);
  check("state", a.state, {a.state_batch_indices ? a.state.sym_size(0) : batch, heads, dim, states});
  check("x", a.x, {batch, heads, dim});
  check("dt", a.dt, {batch, heads, dim});
  check("A", a.A, {heads, dim, states});
  const auto groups = a.B.sym_size(1);
  TORCH_CHECK_VALUE(groups >= 1 && heads % groups == 0, prefix, "B has ", groups, " groups, expected a divisor of the ", heads,
                    " heads");
  check("B", a.B, {batch, groups, states});
  check("C", a.C, {batch, groups, states});
  if (a.D) check("D", *a.D, {heads, dim});
  if (a.z) check("z", *a.z, {batch, heads, dim});
  if (a.dt_bias) check("dt_bias", *a.dt_bias, {heads, dim});
  if (a.state_batch_indices)
    check_tensor((prefix + "state_batch_indices").c_str(), *a.state_batch_indices, {batch}, at::kLong, a.state);
  TORCH_CHECK_VALUE(a.implementation == kAutoImplementation || a.implementation == kComposedImplementation, prefix,
                    "implementation = '", a.implementation, "', expected 'auto' or 'composed'");
}

// The dtype in which the step is computed: float64 if the state or x is float64, otherwise float32.
at::ScalarType dtype_of_selective_step(const SelectiveStepArguments& a) {
  return a.state.scalar_type() == at::kDouble ? at::kDouble : accumulator_dtype(a.x.scalar_type());
}

// x converted to `dtype`. Expanded axes stay expanded, since an unexpanded copy of A would be as large as the state.
Tensor converted(Tensor x, at::ScalarType dtype) {
  if (x.scalar_type() == dtype) return x;
  const auto sizes = x.sizes().vec();
  for (int64_t axis = 0; axis < x.dim(); ++axis)
    if (x.stride(axis) == 0 && x.size(axis) > 1) x = x.narrow(axis, 0, 1);
  return x.to(dtype).expand(sizes);
}

// Reads elements of a tensor with up to three axes and any strides.
template <class N>
struct Elements {
  const N* data = nullptr;
  int64_t strides[3] = {0, 0, 0};

  explicit Elements(const Tensor& x) : data(x.const_data_ptr<N>()) {
    for (int64_t axis = 0; axis < x.dim(); ++axis) strides[axis] = x.stride(axis);
  }
  const N* at(int64_t i, int64_t j) const { return data + i * strides[0] + j * strides[1]; }
  N operator()(int64_t i, int64_t j, int64_t k = 0) const { return at(i, j)[k * strides[2]]; }
};

// E is the dtype of the state, N that of all other tensors.
template <class E, class N>
void selective_step_loops(const SelectiveStepArguments& a, const Tensor& output) {
  const auto batch = a.x.size(0), heads = a.state.size(1), dim = a.state.size(2), states = a.state.size(3);
  const auto heads_of_group = heads / a.B.size(1);
  const Elements<N> x(a.x), dt(a.dt), A(a.A), B(a.B), C(a.C);
  const auto optional = [](const std::optional<Tensor>& t) { return t ? std::optional(Elements<N>(*t)) : std::nullopt; };
  const auto D = optional(a.D), z = optional(a.z), dt_bias = optional(a.dt_bias);
  const auto state_strides = a.state.strides();
  auto* const outputs = output.data_ptr<N>();
  const auto silu = [](N y) { return y / (1 + std::exp(-y)); };

  const auto head = [&](int64_t b, int64_t row, int64_t h) {
    const auto* const keys = B.at(b, h / heads_of_group);
    const auto* const queries = C.at(b, h / heads_of_group);
    const bool same_decay = A.strides[2] == 0;
    // The decay is computed only where A or δ change. In Mamba-2 they are the same for the whole head.
    N known = std::numeric_limits<N>::quiet_NaN(), decay = 0;
    const auto decay_of = [&](N exponent) {
      if (exponent != known) {
        known = exponent;
        decay = std::exp(exponent);
      }
      return decay;
    };
    N last_raw = std::numeric_limits<N>::quiet_NaN(), interval = 0;
    for (int64_t p = 0; p < dim; ++p) {
      const N raw = dt(b, h, p) + (dt_bias ? (*dt_bias)(h, p) : N(0));
      if (raw != last_raw) {
        last_raw = raw;
        interval = a.dt_softplus && raw <= 20 ? std::log1p(std::exp(raw)) : raw;
      }
      const N value = x(b, h, p), added = interval * value;
      auto* const s = a.state.data_ptr<E>() + row * state_strides[0] + h * state_strides[1] + p * state_strides[2];
      const N of_row = same_decay ? decay_of(A(h, p, 0) * interval) : N(0);
      N sum = 0;
      if (same_decay && state_strides[3] == 1 && B.strides[2] == 1 && C.strides[2] == 1) {
        constexpr int64_t kSums = 16;  // independent sums, so that the compiler can use vector instructions
        N sums[kSums] = {};
        int64_t n = 0;
        for (; n + kSums <= states; n += kSums) {
          N changed[kSums];
          for (int64_t i = 0; i < kSums; ++i) changed[i] = of_row * N(s[n + i]) + added * keys[n + i];
          for (int64_t i = 0; i < kSums; ++i) sums[i] += changed[i] * queries[n + i];
          for (int64_t i = 0; i < kSums; ++i) s[n + i] = E(changed[i]);
        }
        for (; n < states; ++n) {
          const N changed = of_row * N(s[n]) + added * keys[n];
          s[n] = E(changed);
          sum += changed * queries[n];
        }
        for (const N one : sums) sum += one;
      } else {
        for (int64_t n = 0; n < states; ++n) {
          auto& element = s[n * state_strides[3]];
          const N factor = same_decay ? of_row : decay_of(A(h, p, n) * interval);
          const N changed = factor * N(element) + added * keys[n * B.strides[2]];
          element = E(changed);
          sum += changed * queries[n * C.strides[2]];
        }
      }
      if (D) sum += (*D)(h, p) * value;
      if (z) sum *= silu((*z)(b, h, p));
      outputs[(b * heads + h) * dim + p] = sum;
    }
  };

  // With fewer elements of the state, one thread is done before another has started.
  constexpr int64_t kMinElementsForThreads = 1 << 17;
  const auto work = [&](int64_t begin, int64_t end) {
    for (auto task = begin; task < end; ++task) {
      const auto b = task / heads, h = task % heads;
      const auto row =
          a.state_batch_indices ? a.state_batch_indices->data_ptr<int64_t>()[b * a.state_batch_indices->stride(0)] : b;
      if (row >= 0) head(b, row, h);
      else std::fill_n(outputs + task * dim, dim, N(0));
    }
  };
  if (batch * heads * dim * states < kMinElementsForThreads) work(0, batch * heads);
  else at::parallel_for(0, batch * heads, 1, work);
}

Tensor selective_step_on_cpu(SelectiveStepArguments a) {
  const auto dtype = dtype_of_selective_step(a), result = a.x.scalar_type();
  if (a.state_batch_indices)
    for (int64_t b = 0; b < a.x.size(0); ++b) {
      const auto row = a.state_batch_indices->data_ptr<int64_t>()[b * a.state_batch_indices->stride(0)];
      TORCH_CHECK_VALUE(row < a.state.size(0), "selective_state_update: state_batch_indices contains ", row, ", but state has ",
                        a.state.size(0), " rows");
    }
  for (auto* one : {&a.x, &a.dt, &a.A, &a.B, &a.C}) *one = converted(*one, dtype);
  for (auto* one : {&a.D, &a.z, &a.dt_bias})
    if (*one) **one = converted(**one, dtype);
  const auto output = at::empty(a.x.sizes(), a.x.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, a.state.scalar_type(), "selective_state_update", [&] {
    if (dtype == at::kDouble) selective_step_loops<scalar_t, double>(a, output);
    else selective_step_loops<scalar_t, float>(a, output);
  });
  return output.to(result);
}

Tensor selective_step_composed(const SelectiveStepArguments& a) {
  const auto dtype = dtype_of_selective_step(a);
  const auto wide = [&](const Tensor& x) { return x.to(dtype); };
  const auto for_heads = [&](const Tensor& x) { return wide(x).repeat_interleave(a.x.size(1) / x.size(1), 1).unsqueeze(2); };
  auto interval = wide(a.dt);
  if (a.dt_bias) interval = interval + wide(*a.dt_bias);
  if (a.dt_softplus) interval = at::softplus(interval);
  const auto x = wide(a.x), rows = a.state_batch_indices ? a.state_batch_indices->clamp_min(0) : Tensor();
  const auto before = rows.defined() ? a.state.index_select(0, rows) : a.state;
  const auto state = (wide(a.A) * interval.unsqueeze(3)).exp() * wide(before) + (interval * x).unsqueeze(3) * for_heads(a.B);
  if (!rows.defined()) a.state.copy_(state);
  else {
    const auto kept = (*a.state_batch_indices >= 0).nonzero().squeeze(1);
    a.state.index_copy_(0, rows.index_select(0, kept), state.index_select(0, kept).to(a.state.scalar_type()));
  }
  auto output = (state * for_heads(a.C)).sum(3);
  if (a.D) output = output + wide(*a.D) * x;
  if (a.z) output = output * at::silu(wide(*a.z));
  if (rows.defined()) output = output.masked_fill((*a.state_batch_indices < 0).view({-1, 1, 1}), 0);
  return output.to(a.x.scalar_type());
}

std::tuple<Tensor> selective_step(const SelectiveStepArguments& a) {
  check_selective_step(a);
  const WithoutAutocast guard;
  // Autograd raises an error if a tensor that it saved for a backward pass has another version.
  if (!a.state.is_inference()) a.state.unsafeGetTensorImpl()->bump_version();
  const bool loops = a.implementation == kAutoImplementation && a.state.device().is_cpu();
  return (loops ? selective_step_on_cpu(a) : selective_step_composed(a)).contiguous();
}

std::tuple<Tensor> selective_step_meta(const SelectiveStepArguments& a) {
  check_selective_step(a);
  return at::empty_symint(a.x.sym_sizes(), a.x.options());
}

TORCH_LIBRARY_FRAGMENT(attn, library) { define<SelectiveStepArguments>(library, "selective_state_step", "Tensor"); }
TORCH_LIBRARY_IMPL(attn, CompositeExplicitAutograd, library) { library.impl("selective_state_step", kernel<selective_step>()); }
TORCH_LIBRARY_IMPL(attn, Meta, library) { library.impl("selective_state_step", kernel<selective_step_meta>()); }
TORCH_LIBRARY_IMPL(attn, Autograd, library) {
  library.impl("selective_state_step", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace attn
