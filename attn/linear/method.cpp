#include "attn/linear/method.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "attn/cpu/call.h"
#include "attn/cpu/instruction_set.h"
#include "attn/linear/cuda/splits.h"
#include "attn/linear/reference.h"
#include "attn/reference.h"

namespace attn {
namespace {

constexpr int64_t kAbsorbedAtOnce = 1024;

class ComposedState : public DecodingState {
 public:
  ComposedState(std::unique_ptr<const FeatureMap> feature_map, const Problem& p) : map(std::move(feature_map)) {
    const auto options = at::TensorOptions(map->sum_dtype(p.dtype)).device(p.device);
    state = LinearState::zeros(*map, p.batch * p.heads, p.head_dim, p.value_dim, options);
  }
  std::unique_ptr<const FeatureMap> map;
  LinearState state;

 protected:
  std::vector<at::Tensor> tensors() const override {
    if (!state.log_scale.defined()) return {state.sums};
    return {state.sums, state.log_scale};
  }
};

// As the kernels keep it.
class KernelState : public DecodingState {
 public:
  KernelState(const Problem& p, int64_t features, bool scales) {
    const auto options = at::TensorOptions(p.dtype == at::kDouble ? at::kDouble : at::kFloat).device(p.device);
    s = at::zeros({p.batch, p.heads, features, p.value_dim}, options);
    z = at::zeros({p.batch, p.heads, features + (scales ? 1 : 0)}, options);
    if (scales) z.narrow(2, features, 1).fill_(kernels::kNoScale);
  }
  at::Tensor s, z;

 protected:
  std::vector<at::Tensor> tensors() const override { return {s, z}; }
};

// Numbers of all splits' states on a GPU of this many multiprocessors, an H100's.
double cuda_states(const Problem& p) {
  const auto heads = p.batch * p.heads;
  const auto splits = cuda::split_positions(heads, std::max(p.query_len, p.key_len), 132).count;
  const auto dim = cuda::padded_dim(p.head_dim, p.value_dim);
  if (dim == 0 || p.dtype == at::kDouble) return double(heads) * double(p.head_dim * (p.value_dim + 1));
  return double(heads * splits * cuda::state_numbers(dim));
}

at::Tensor merged(const at::Tensor& x, at::ScalarType dtype) { return x.flatten(0, 1).to(dtype); }

}  // namespace

LinearMethod::LinearMethod(std::string feature_map, int64_t chunk, std::string kernel)
    : feature_map_(std::move(feature_map)), chunk_(chunk), kernel_(std::move(kernel)) {
  if (kernel_ != "composed" && !kernel_.starts_with("cuda")) kernels::choose_instruction_set(kernel_);
}

std::optional<std::string> LinearMethod::why_unsupported(const Problem& p, Protocol protocol) const {
  if (auto reason = AttentionMethod::why_unsupported(p, protocol)) return reason;
  if (auto reason = kernels::why_no_kernel(label(), kernel_, p.dtype, p.device)) return reason;
  return kernels::refusal(label(), [&] { implementation_for(p); });
}

Capabilities LinearMethod::capabilities() const {
  Capabilities can;
  can.decoding = true;
  // The tensor cores multiply whole tiles, with zeros for what is hidden.
  can.nan_reaches_its_rows_only = kernel_ != "cuda" && kernel_ != "cuda-tf32";
  return can;
}

double LinearMethod::error_tolerance(at::ScalarType dtype) const {
  // TF32 has float16's digits.
  return AttentionMethod::error_tolerance(kernel_ == "cuda-tf32" && dtype == at::kFloat ? at::kHalf : dtype);
}

Cost LinearMethod::cost(const Problem& p, Protocol protocol) const {
  const auto map = map_for(p.head_dim);
  const double rows = double(p.batch) * double(p.heads), features = double(map->count(p.head_dim)),
               values = double(p.value_dim + 1);
  const double number = double(c10::elementSize(map->sum_dtype(p.dtype))), widening = number / p.element_bytes();
  const double state = features * values, state_number_bytes = rows * state * number;
  // A projection takes as many again a position; other maps a few operations a feature.
  const double mapping = map->scales() ? 2 * features * double(p.head_dim) : 4 * features;
  if (protocol == Protocol::decode) {
    const auto token = (p.input_bytes() + p.output_bytes()) / double(p.query_len);
    return {rows * (4 * state + 2 * mapping), 2 * state_number_bytes + token,
            token + state_number_bytes + rows * number * 4 * (features + values)};
  }
  if (implementation_for(p)) return kernel_cost(p, protocol);
  const double stretch = double(std::min(p.causal ? chunk_ : int64_t{1024}, p.query_len));
  const double pairs = p.causal ? stretch * (features + values) * double(p.query_len) : 0;
  const double forward = rows * ((2 * state + mapping) * double(p.key_len + p.query_len) + 2 * pairs);
  const double least = p.input_bytes() + p.output_bytes();
  const bool backward = protocol == Protocol::forward_backward;
  // Beside the results: the state, a number or two a row, and one stretch of features, products and, causal, scores. How many of
  // them are alive at once is counted on the composition.
  const bool wide_map = features > 4 * double(p.head_dim);
  const double dims = double(p.head_dim);
  double part = 0;
  if (p.causal) {
    const double copies = map->scales() ? 6 : wide_map ? 7.5 : 3;
    part = stretch * (copies * features + (widening > 1 ? 3 : 1.5) * dims + (backward ? 5 : 4) * values) +
           stretch * stretch * (backward ? 3 : 2.5) * (map->scales() ? 2 : 1);
  } else {
    const double copies = map->scales() ? 4 : wide_map ? (backward ? 5 : 4) : 1.3;
    part = stretch * (copies * features + (widening > 1 ? dims : 0) + (backward ? 2.5 : 2) * values);
  }
  const double kept = state * (backward ? 2 : 1) + double(p.query_len) * (map->scales() ? 2 : 1) + part;
  const double results = p.output_bytes() + (backward ? p.output_bytes() + p.input_bytes() : 0);
  return {backward ? 3.5 * forward : forward, backward ? 2 * least + p.input_bytes() : least,
          p.input_bytes() + results + rows * number * kept};
}

// The recurrence alone; that the kernels do more, inside a chunk, is their affair.
Cost LinearMethod::kernel_cost(const Problem& p, Protocol protocol) const {
  const bool backward = protocol == Protocol::forward_backward;
  const auto map = map_for(p.head_dim);
  const double rows = double(p.batch) * double(p.heads), dim = double(map->count(p.head_dim)), values = double(p.value_dim);
  const double product = 2 * dim * values, projection = map->scales() ? 2 * dim * double(p.head_dim) : 0;
  const double forward = rows * (product + projection) * double(p.key_len + p.query_len);
  const double results = p.output_bytes() + (backward ? p.output_bytes() + p.input_bytes() : 0);
  const double number = p.dtype == at::kDouble ? 8 : 4;
  const double normalizers = map->scales() ? 2 : 1;
  const double states = p.device == kernels::cuda_device() ? cuda_states(p) : rows * dim * values;
  const double kept = number * (rows * double(p.query_len) * (backward ? 1 + normalizers : normalizers) +
                                states * (backward && p.device != kernels::cuda_device() ? 2 : 1));
  const double least = p.input_bytes() + p.output_bytes();
  return {backward ? 3.5 * forward : forward, backward ? 2 * least + p.input_bytes() : least, p.input_bytes() + results + kept};
}

at::Tensor LinearMethod::reference(const Inputs& inputs, const at::Tensor& rows) const {
  return reference::linear(inputs, rows, *map_for(inputs.q.size(3)), kLinearEpsilon);
}

double LinearMethod::state_bytes(const Problem& p, int64_t) const {
  const auto map = map_for(p.head_dim);
  const double numbers = double(map->count(p.head_dim)) * double(p.value_dim + 1) + (map->scales() ? 1 : 0);
  return double(p.batch) * double(p.heads) * numbers * double(c10::elementSize(map->sum_dtype(p.dtype)));
}

at::Tensor LinearMethod::attend(const Inputs& inputs) {
  const auto &q = inputs.q, &k = inputs.k, &v = inputs.v;
  const auto& mask = inputs.mask;
  const auto* own = implementation_for(k, v);
  ran(own ? "kernel/" + own->name() : mask.causal ? "aten/chunked" : "aten/sums");
  return linear_attention(q, k, v,
                          {mask.causal, mask.key_lengths, feature_map_, kLinearEpsilon, projection(q.size(3)), chunk_, kernel_});
}

std::unique_ptr<DecodingState> LinearMethod::make_state(const Problem& problem) const {
  auto map = map_for(problem.head_dim);
  if (implementation_for(problem)) return std::make_unique<KernelState>(problem, map->count(problem.head_dim), map->scales());
  return std::make_unique<ComposedState>(std::move(map), problem);
}

void LinearMethod::absorb(DecodingState& state, const Inputs& tokens) {
  const auto &k = tokens.k, &v = tokens.v;
  if (const auto* own = implementation_for(k, v)) {
    auto& kept = static_cast<KernelState&>(state);
    return own->add(k, v, kept.s, kept.z, {feature_map_, projection(k.size(3))});
  }
  auto& kept = static_cast<ComposedState&>(state);
  const auto dtype = kept.state.sums.scalar_type();
  for (int64_t begin = 0; begin < k.size(2); begin += kAbsorbedAtOnce) {
    const auto size = std::min(kAbsorbedAtOnce, k.size(2) - begin);
    kept.state.add(*kept.map, merged(k.narrow(2, begin, size), dtype), merged(v.narrow(2, begin, size), dtype));
  }
}

at::Tensor LinearMethod::decode(DecodingState& state, const Inputs& token) {
  const auto &q = token.q, &k = token.k, &v = token.v;
  if (const auto* own = implementation_for(k, v)) {
    ran("kernel/" + own->name());
    auto& kept = static_cast<KernelState&>(state);
    return own->step(q, k, v, kept.s, kept.z, {feature_map_, projection(q.size(3))}, kLinearEpsilon);
  }
  ran("aten/recurrent");
  auto& kept = static_cast<ComposedState&>(state);
  const auto dtype = kept.state.sums.scalar_type();
  kept.state.add(*kept.map, merged(k, dtype), merged(v, dtype));
  return read(kept.state, *kept.map, merged(q, dtype), kLinearEpsilon).output.to(q.scalar_type()).view(v.sizes());
}

std::optional<at::Tensor> RandomFeatureMethod::approximated(const Inputs& inputs, const at::Tensor& rows) const {
  return reference::softmax(inputs, rows);
}

std::optional<at::Tensor> RandomFeatureMethod::projection(int64_t head_dim) const {
  auto& drawn = drawn_[head_dim];
  if (!drawn.defined()) drawn = draw_orthogonal_directions(count_, head_dim, seed_);
  return drawn;
}

}  // namespace attn
