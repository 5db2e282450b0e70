#include "experiments/nn/attention.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

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
}

at::Tensor MultiHeadAttentionImpl::forward(const at::Tensor& x, const attn::Mask& mask) {
  TORCH_CHECK_VALUE(x.dim() == 3 && x.size(2) == options_.width, "MultiHeadAttention: x has shape ", x.sizes(),
                    ", expected [batch, length, ", options_.width, "]");
  const auto heads = [&](torch::nn::Linear& projection) { return split_heads(projection(x), options_.heads, options_.head_dim); };
  const auto attended = method_->forward(heads(query), heads(key), heads(value), mask);
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
