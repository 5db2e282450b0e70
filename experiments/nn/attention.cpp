// Projects the input to queries, keys, values and gates, and joins the heads of the output.
#include "experiments/nn/attention.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "attn/input_spec.h"
#include "attn/options.h"
#include "attn/registry.h"

namespace experiments {
namespace {

constexpr const char* kSeedOption = "seed";

// x [B,N,H·D] → [B,H,N,D], a view.
at::Tensor split_heads(const at::Tensor& x, int64_t heads, int64_t head_dim) {
  return x.view({x.size(0), x.size(1), heads, head_dim}).transpose(1, 2);
}

}  // namespace

bool has_seed(const std::string& method) {
  const auto& options = attn::find_method(attn::MethodSpec::parse(method).name).options;
  return std::any_of(options.begin(), options.end(), [](const attn::OptionSpec& option) { return option.name == kSeedOption; });
}

uint64_t layer_seed(uint64_t model_seed, int64_t layer) {
  // The mixing function of SplitMix64 (Steele, Lea & Flood 2014), by which neighbouring seeds and layers give unrelated numbers.
  uint64_t x = model_seed + (uint64_t(layer) + 1) * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return (x ^ (x >> 31)) % (uint64_t(attn::kMaxSeed) + 1);
}

MultiHeadAttentionImpl::MultiHeadAttentionImpl(AttentionOptions options) : options_(std::move(options)) {
  const auto check = [](const char* name, int64_t size) {
    TORCH_CHECK_VALUE(size >= 1, "MultiHeadAttention: ", name, " = ", size, ", expected at least 1");
  };
  check("width", options_.width);
  check("heads", options_.heads);
  check("head_dim", options_.head_dim);
  for (const auto& option : attn::MethodSpec::parse(options_.method).options)
    TORCH_CHECK_VALUE(option.first != kSeedOption, "MultiHeadAttention: the method '", options_.method,
                      "' sets the option seed, which belongs into the seed of the model, since each layer has a seed of its own");
  make_method();
  const auto inner = options_.heads * options_.head_dim;
  query = register_module("query", torch::nn::Linear(options_.width, inner));
  key = register_module("key", torch::nn::Linear(options_.width, inner));
  value = register_module("value", torch::nn::Linear(options_.width, inner));
  output = register_module("output", torch::nn::Linear(inner, options_.width));
  make_gates();
}

void MultiHeadAttentionImpl::make_gates() {
  const auto linear = [](int64_t in, int64_t out) { return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false)); };
  for (const auto& spec : method_->inputs()) {
    const std::string name(spec.name);
    if (name == "beta") beta = register_module("beta", linear(options_.width, options_.heads));
    if (name != "g") continue;
    const bool of_features = std::string(spec.shape).size() == 4;
    const auto count = of_features ? options_.heads * options_.head_dim : options_.heads;
    if (of_features) gate_rank = register_module("gate_rank", linear(options_.width, options_.head_dim));
    gate = register_module("gate", linear(of_features ? options_.head_dim : options_.width, count));
    log_decay = register_parameter("log_decay", at::empty({options_.heads}).uniform_(0.01, 16).log_());
    const auto steps = at::empty({count}).uniform_(std::log(0.001), std::log(0.1)).exp_();
    gate_bias = register_parameter("gate_bias", steps.expm1().log_());  // the inverse of softplus
  }
}

attn::Inputs MultiHeadAttentionImpl::inputs_of(const at::Tensor& x, const attn::Mask& mask) {
  TORCH_CHECK_VALUE(x.dim() == 3 && x.size(2) == options_.width, "MultiHeadAttention: x has shape ", x.sizes(),
                    ", expected [batch, length, ", options_.width, "]");
  const auto heads = [&](torch::nn::Linear& projection) { return split_heads(projection(x), options_.heads, options_.head_dim); };
  attn::Inputs inputs{heads(query), heads(key), heads(value), mask};
  // Gates are float32 also in models of smaller numbers.
  const auto wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  if (!beta.is_empty()) inputs.beta = at::sigmoid(beta(x).to(wide)).transpose(1, 2);
  if (!gate.is_empty()) {
    const auto steps = at::softplus(gate(gate_rank.is_empty() ? x : gate_rank(x)).to(wide) + gate_bias.to(wide));
    const auto speed = log_decay.to(wide).exp().neg();
    inputs.g = gate_rank.is_empty() ? (steps * speed).transpose(1, 2)
                                    : split_heads(steps, options_.heads, options_.head_dim) * speed.view({-1, 1, 1});
  }
  return inputs;
}

at::Tensor MultiHeadAttentionImpl::attend(const attn::Inputs& inputs) {
  if (inputs.mask.causal || method_->capabilities().full) return method_->forward(inputs);
  // Both directions. What follows a sequence's last position reaches no valid position of either.
  const auto reversed = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !inputs.mask.key_lengths) return tensor.defined() ? tensor.flip(2) : tensor;
    const auto position = at::arange(tensor.size(2), inputs.mask.key_lengths->options()).unsqueeze(0);
    const auto mirrored = inputs.mask.key_lengths->unsqueeze(1) - 1 - position;
    auto index = at::where(mirrored >= 0, mirrored, position).unsqueeze(1);  // [B,1,N]
    if (tensor.dim() == 4) index = index.unsqueeze(3);
    return tensor.gather(2, index.expand_as(tensor));
  };
  auto forwards = inputs;
  forwards.mask = attn::Mask{.causal = true};
  auto backwards = forwards;
  for (const auto& spec : attn::kInputs) backwards.*spec.member = reversed(inputs.*spec.member);
  return method_->forward(forwards) + reversed(method_->forward(backwards));
}

at::Tensor MultiHeadAttentionImpl::forward(const at::Tensor& x, const attn::Mask& mask) {
  const auto attended = attend(inputs_of(x, mask));
  return output(attended.transpose(1, 2).reshape({x.size(0), x.size(1), options_.heads * options_.head_dim}));
}

void MultiHeadAttentionImpl::set_seed(uint64_t seed) {
  if (!has_seed(options_.method)) return;
  options_.seed = seed;
  make_method();
}

void MultiHeadAttentionImpl::make_method() {
  auto text = options_.method;
  if (has_seed(text)) {
    TORCH_CHECK_VALUE(options_.seed <= uint64_t(attn::kMaxSeed), "MultiHeadAttention: seed = ", options_.seed,
                      ", expected at most ", attn::kMaxSeed);
    text += (text.find(':') == std::string::npos ? ":seed=" : ",seed=") + std::to_string(options_.seed);
  }
  method_ = attn::make_method(text);
}

}  // namespace experiments
