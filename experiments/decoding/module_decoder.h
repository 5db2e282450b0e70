// ModuleDecoder: a decoder that computes a token with the model's modules. The decoders that compute parts of it in other ways
// are derived from it.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <vector>

#include "attn/decoding.h"
#include "attn/method.h"
#include "experiments/decoding/decoder.h"

namespace experiments {

inline attn::AttentionMethod& attention_method_of(const TransformerEncoderLayer& layer) { return layer->attention->method(); }

// Computes a token with the model's modules, and its attention from a state for each layer.
class ModuleDecoder : public Decoder {
 public:
  ModuleDecoder(const SequenceModel& model, const DecoderOptions& options) : Decoder(model, options) { make_states(); }
  std::string implementation() const override {
    return "modules + " + attention_method_of(model_->encoder->layers.front()).implementation();
  }
  int64_t state_bytes() const override {
    int64_t bytes = 0;
    for (const auto& state : states_) bytes += state->bytes();
    return bytes;
  }

 protected:
  void decode(const at::Tensor& tokens) override { output_ = step_from(model_->input->forward(tokens.unsqueeze(1), position())); }
  void prepare(const at::Tensor& tokens) override {
    output_ =
        run(model_->input->forward(tokens, position()), [](attn::AttentionMethod& method, attn::DecodingState& state,
                                                           const attn::Inputs& prefix) { return method.prefill(state, prefix); });
  }
  void clear() override { make_states(); }

  // Adds one token, whose embedding and position encoding are x [batch, 1, width], and returns the output.
  at::Tensor step_from(const at::Tensor& x) {
    return run(x, [](attn::AttentionMethod& method, attn::DecodingState& state, const attn::Inputs& token) {
      return method.step(state, token);
    });
  }

  std::vector<std::unique_ptr<attn::DecodingState>> states_;  // of each layer

 private:
  void make_states() {
    const auto& encoder = model_->encoder->options();
    const auto options = tensor_options();
    attn::Problem problem;
    problem.batch = options_.batch;
    problem.heads = encoder.heads;
    problem.query_len = problem.key_len = options_.max_tokens;
    problem.head_dim = problem.value_dim = encoder.head_dim;
    problem.dtype = c10::typeMetaToScalarType(options.dtype());
    problem.device = options.device().type();
    problem.causal = true;
    states_.clear();  // before new ones are made, because caches can be most of the memory
    for (auto& layer : model_->encoder->layers) states_.push_back(attention_method_of(layer).begin_decoding(problem));
  }

  // Adds the tokens whose embeddings and position encodings are x [batch, T, width], with attend(method, state, inputs) in every
  // layer, and returns the output at the last one.
  template <class Attend>
  at::Tensor run(at::Tensor x, const Attend& attend) {
    const auto batch = x.size(0), length = x.size(1);
    for (size_t i = 0; i < states_.size(); ++i) {
      auto& layer = model_->encoder->layers[i];
      auto& attention = layer->attention;
      const auto attended = attend(attention->method(), *states_[i], attention->inputs_of(x, attn::Mask{.causal = true}));
      x = layer->after_attention(x, attention->output(attended.transpose(1, 2).reshape({batch, length, -1})));
    }
    return model_->output(model_->encoder->norm(x.select(1, length - 1)));
  }
};

}  // namespace experiments
