#include "experiments/decoding/decoder.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "attn/cpu/instruction_set.h"
#include "attn/decoding.h"
#include "attn/method.h"
#include "experiments/decoding/cpu/kernels.h"
#include "experiments/decoding/team.h"

namespace experiments {
namespace {

attn::AttentionMethod& method_of(const TransformerEncoderLayer& layer) { return layer->attention->method(); }

// ---------------------------------------------------------------- recomputed prefixes

class PrefixDecoder final : public Decoder {
 public:
  PrefixDecoder(const SequenceModel& model, const DecoderOptions& options)
      : Decoder(model, options), tokens_(at::zeros({options.batch, options.max_tokens}, tensor_options().dtype(at::kLong))) {}
  std::string implementation() const override {
    return "forward + " + method_of(model_->encoder->layers.front()).implementation();
  }
  int64_t state_bytes() const override { return int64_t(tokens_.nbytes()); }

 protected:
  void decode(const at::Tensor& tokens) override { prepare(tokens.unsqueeze(1)); }
  void prepare(const at::Tensor& tokens) override {
    const auto length = position() + tokens.size(1);
    tokens_.narrow(1, position(), tokens.size(1)).copy_(tokens);
    output_ = model_(tokens_.narrow(1, 0, length)).select(1, length - 1);
  }
  void clear() override {}

 private:
  at::Tensor tokens_;  // [batch, max_tokens]
};

// ---------------------------------------------------------------- states and modules

// Computes a token with the model's modules, and its attention from a state for each layer.
class ModuleDecoder : public Decoder {
 public:
  ModuleDecoder(const SequenceModel& model, const DecoderOptions& options) : Decoder(model, options) { make_states(); }
  std::string implementation() const override {
    return "modules + " + method_of(model_->encoder->layers.front()).implementation();
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
    problem.batch = options_.batch, problem.heads = encoder.heads;
    problem.query_len = problem.key_len = options_.max_tokens;
    problem.head_dim = problem.value_dim = encoder.head_dim;
    problem.dtype = c10::typeMetaToScalarType(options.dtype()), problem.device = options.device().type();
    problem.causal = true;
    states_.clear();  // before new ones are made, because caches can be most of the memory
    for (auto& layer : model_->encoder->layers) states_.push_back(method_of(layer).begin_decoding(problem));
  }

  // Adds the tokens whose embeddings and position encodings are x [batch, T, width], with attend(method, state, inputs) in every
  // layer, and returns the output at the last one.
  template <class Attend>
  at::Tensor run(at::Tensor x, const Attend& attend) {
    const auto batch = x.size(0), length = x.size(1);
    for (size_t i = 0; i < states_.size(); ++i) {
      auto& layer = model_->encoder->layers[i];
      auto& attention = layer->attention;
      const auto heads = [&](torch::nn::Linear& projection) {
        return projection(x).view({batch, length, attention->options().heads, attention->options().head_dim}).transpose(1, 2);
      };
      const auto attended = attend(
          attention->method(), *states_[i],
          attn::Inputs{heads(attention->query), heads(attention->key), heads(attention->value), attn::Mask{.causal = true}});
      x = layer->after_attention(x, attention->output(attended.transpose(1, 2).reshape({batch, length, -1})));
    }
    return model_->output(model_->encoder->norm(x.select(1, length - 1)));
  }
};

// ---------------------------------------------------------------- states, modules and a CUDA graph

// Computes a token as ModuleDecoder does, by replaying one CUDA graph. What differs from token to token lies in tensors that the
// graph reads: the tokens, and the position, which the graph itself increments.
class GraphDecoder final : public ModuleDecoder {
 public:
  GraphDecoder(const SequenceModel& model, const DecoderOptions& options)
      : ModuleDecoder(model, options),
        parameters_(model->parameters()),
        tokens_(at::zeros({options.batch, 1}, tensor_options().dtype(at::kLong))),
        position_on_device_(at::zeros({1}, tokens_.options())),
        encodings_(sinusoidal_positions(options.max_tokens, model->encoder->options().width / 2, tensor_options())) {}

  bool can_replay() const {
    return std::all_of(states_.begin(), states_.end(), [](const auto& state) { return state->steps_can_be_replayed(); });
  }
  std::string implementation() const override { return (replay_ ? "graph of " : "") + ModuleDecoder::implementation(); }

 protected:
  void decode(const at::Tensor& tokens) override {
    tokens_.copy_(tokens.unsqueeze(1));
    if (!is_initialised_) {
      position_on_device_.fill_(position());
      compute();
      is_initialised_ = true;
      return;
    }
    if (auto addresses = addresses_of_parameters(); !replay_ || addresses != recorded_addresses_) {
      position_on_device_.fill_(position());
      replay_ = options_.capture([this] { compute(); });
      recorded_addresses_ = std::move(addresses);
    }
    replay_();
  }
  void prepare(const at::Tensor& tokens) override {
    replay_ = nullptr;
    ModuleDecoder::prepare(tokens);
  }
  void clear() override {
    replay_ = nullptr;  // it writes to the old states
    ModuleDecoder::clear();
  }

 private:
  void compute() {
    const auto encoding = encodings_.index_select(0, position_on_device_).expand({options_.batch, 1, -1});
    output_ = step_from(at::cat({model_->input->embedding(tokens_), encoding}, -1));
    position_on_device_.add_(1);
  }

  std::vector<const void*> addresses_of_parameters() const {
    std::vector<const void*> addresses;
    for (const auto& parameter : parameters_) addresses.push_back(parameter.const_data_ptr());
    return addresses;
  }

  std::vector<at::Tensor> parameters_;
  at::Tensor tokens_, position_on_device_;  // int64 [batch, 1], [1]
  at::Tensor encodings_;                    // [max_tokens, width / 2]
  bool is_initialised_ = false;
  std::function<void()> replay_;  // null before a step was recorded
  std::vector<const void*> recorded_addresses_;
};

// ---------------------------------------------------------------- states and kernels

// The weights of the model as the kernels read them.
struct LinearWeights {
  const float *weight, *bias;
};
struct NormWeights {
  const float *weight, *bias;
  float epsilon;
};
struct LayerWeights {
  LinearWeights query, key, value, output, linear1, linear2;
  NormWeights norm1, norm2;
};

const float* numbers_of(const at::Tensor& parameter) {
  TORCH_CHECK_VALUE(parameter.is_contiguous(), "decoder: a parameter of shape ", parameter.sizes(),
                    " is not contiguous; the kernels read contiguous weights, the kernel 'modules' reads others");
  return parameter.const_data_ptr<float>();
}
LinearWeights weights_of(const torch::nn::Linear& linear) { return {numbers_of(linear->weight), numbers_of(linear->bias)}; }
NormWeights weights_of(const torch::nn::LayerNorm& norm) {
  return {numbers_of(norm->weight), numbers_of(norm->bias), float(norm->options.eps())};
}

// Computes a token with the kernels in one parallel region. The attention is computed inside it by the methods' bound steps, or,
// where a method has none, by its step() between parallel regions.
class KernelDecoder final : public ModuleDecoder {
 public:
  KernelDecoder(const SequenceModel& model, const DecoderOptions& options)
      : ModuleDecoder(model, options),
        kernels_(decoder_kernels(attn::cpu::choose_instruction_set(options.kernel))),
        team_(at::get_num_threads()),
        width_(model->encoder->options().width),
        inner_(model->encoder->options().heads * model->encoder->options().head_dim),
        hidden_(model->encoder->layers.front()->linear1->options.out_features()),
        outputs_(model->options().outputs),
        positions_(sinusoidal_positions(options.max_tokens, width_ / 2, tensor_options())) {
    const auto rows = [&](int64_t width) { return at::zeros({options.batch, width}, tensor_options()); };
    x_ = rows(width_), y_ = rows(width_), sum_ = rows(width_), feed_forward_ = rows(hidden_);
    query_ = rows(inner_), key_ = rows(inner_), value_ = rows(inner_), attended_ = rows(inner_);
    logits_ = rows(outputs_);
    const auto heads = [&](const at::Tensor& x) {
      return x.view({options.batch, model->encoder->options().heads, 1, model->encoder->options().head_dim});
    };
    token_ = {heads(query_), heads(key_), heads(value_), attn::Mask{.causal = true}};
    attended_heads_ = heads(attended_);
    layers_.resize(states_.size());
    bind_steps();
  }
  std::string implementation() const override {
    if (!ran_kernels_) return ModuleDecoder::implementation();
    return std::string("decoder/") + kernels_.name + " + " +
           (is_bound() ? bound_.front()->implementation() : method_of(model_->encoder->layers.front()).implementation());
  }

 protected:
  void prepare(const at::Tensor& tokens) override {
    ran_kernels_ = false;
    ModuleDecoder::prepare(tokens);
  }
  void decode(const at::Tensor& tokens) override {
    read_weights();
    const auto* const ids = tokens.const_data_ptr<int64_t>();
    const auto id_stride = tokens.stride(0);
    if (is_bound()) {
      team_.run([&](Team::Member& member) {
        begin(member, ids, id_stride);
        for (size_t i = 0; i < layers_.size(); ++i) {
          project(member, i);
          member.share(token_.q.size(0) * token_.q.size(1), 1,
                       [&](int64_t first, int64_t last, int64_t worker) { bound_[i]->run(first, last, worker); });
          complete(member, i);
        }
        end(member);
      });
      for (const auto& step : bound_) step->finish();
    } else {
      team_.run([&](Team::Member& member) { begin(member, ids, id_stride), project(member, 0); });
      for (size_t i = 0; i < layers_.size(); ++i) {
        attended_heads_.copy_(method_of(model_->encoder->layers[i]).step(*states_[i], token_));
        team_.run([&](Team::Member& member) {
          complete(member, i);
          if (i + 1 < layers_.size()) project(member, i + 1);
          else end(member);
        });
      }
    }
    output_ = logits_;
    ran_kernels_ = true;
  }
  void clear() override {
    bound_.clear();
    ModuleDecoder::clear();
    bind_steps();
  }

 private:
  static constexpr int64_t kUnit = 4;  // outputs that a kernel computes together

  bool is_bound() const { return !bound_.empty(); }

  void bind_steps() {
    bound_.clear();
    for (size_t i = 0; i < states_.size(); ++i) {
      auto step = method_of(model_->encoder->layers[i]).bind_step(*states_[i], token_, attended_heads_, team_.size());
      if (!step) return bound_.clear();
      bound_.push_back(std::move(step));
    }
  }

  // Reads where the parameters are, which a training or a loaded checkpoint may have replaced since the last token.
  void read_weights() {
    for (size_t i = 0; i < layers_.size(); ++i) {
      const auto& layer = model_->encoder->layers[i];
      const auto& attention = layer->attention;
      layers_[i] = {weights_of(attention->query),  weights_of(attention->key), weights_of(attention->value),
                    weights_of(attention->output), weights_of(layer->linear1), weights_of(layer->linear2),
                    weights_of(layer->norm1),      weights_of(layer->norm2)};
    }
    embedding_ = numbers_of(model_->input->embedding->weight);
    norm_ = weights_of(model_->encoder->norm), last_ = weights_of(model_->output);
  }

  static float* data(const at::Tensor& x) { return x.mutable_data_ptr<float>(); }

  // The embeddings and the encodings of their position → x.
  void begin(Team::Member& member, const int64_t* ids, int64_t id_stride) {
    member.share(options_.batch, 1, [&](int64_t first, int64_t last, int64_t) {
      const auto half = width_ / 2;
      for (auto b = first; b < last; ++b) {
        auto* const row = data(x_) + b * width_;
        std::copy_n(embedding_ + ids[b * id_stride] * half, half, row);
        std::copy_n(data(positions_) + position() * half, half, row + half);
      }
    });
  }

  // x → queries, keys and values of layer i.
  void project(Team::Member& member, size_t i) {
    const auto& weights = layers_[i];
    member.share(inner_, kUnit, [&](int64_t first, int64_t last, int64_t) {
      for (const auto& [projection, to] : {std::pair{weights.query, &query_}, {weights.key, &key_}, {weights.value, &value_}})
        kernels_.linear(product(x_, width_, projection, *to, inner_), first, last);
    });
  }

  // The attended values → x, the output of layer i.
  void complete(Team::Member& member, size_t i) {
    const auto& weights = layers_[i];
    multiply(member, with_residual(product(attended_, inner_, weights.output, sum_, width_), x_), width_);
    normalise(member, weights.norm1, sum_, y_);
    auto hidden = product(y_, width_, weights.linear1, feed_forward_, hidden_);
    hidden.relu = true;
    multiply(member, hidden, hidden_);
    multiply(member, with_residual(product(feed_forward_, hidden_, weights.linear2, sum_, width_), y_), width_);
    normalise(member, weights.norm2, sum_, x_);
  }

  // x → the model's output.
  void end(Team::Member& member) {
    normalise(member, norm_, x_, y_);
    multiply(member, product(y_, width_, last_, logits_, outputs_), outputs_);
  }

  LinearLayerParams product(const at::Tensor& x, int64_t depth, const LinearWeights& weights, const at::Tensor& y,
                            int64_t outputs) const {
    return {.x = data(x),
            .weight = weights.weight,
            .bias = weights.bias,
            .y = data(y),
            .batch = options_.batch,
            .depth = depth,
            .x_stride = depth,
            .y_stride = outputs};
  }
  LinearLayerParams with_residual(LinearLayerParams params, const at::Tensor& residual) const {
    params.residual = data(residual), params.residual_stride = params.y_stride;
    return params;
  }
  void multiply(Team::Member& member, const LinearLayerParams& params, int64_t outputs) {
    member.share(outputs, kUnit, [&](int64_t first, int64_t last, int64_t) { kernels_.linear(params, first, last); });
  }
  void normalise(Team::Member& member, const NormWeights& weights, const at::Tensor& from, const at::Tensor& to) {
    member.share(options_.batch, 1, [&](int64_t first, int64_t last, int64_t) {
      for (auto b = first; b < last; ++b)
        kernels_.layer_norm(data(from) + b * width_, width_, weights.weight, weights.bias, weights.epsilon,
                            data(to) + b * width_);
    });
  }

  const DecoderKernels& kernels_;
  Team team_;
  int64_t width_, inner_, hidden_, outputs_;
  at::Tensor positions_;                                 // [max_tokens, width/2]
  at::Tensor x_, y_, sum_;                               // [batch, width]
  at::Tensor query_, key_, value_, attended_;            // [batch, heads · head_dim]
  at::Tensor feed_forward_, logits_;                     // [batch, hidden], [batch, outputs]
  attn::Inputs token_;                                   // views of query_, key_ and value_
  at::Tensor attended_heads_;                            // a view of attended_
  std::vector<std::unique_ptr<attn::BoundStep>> bound_;  // of each layer; empty if the method has none
  std::vector<LayerWeights> layers_;
  bool ran_kernels_ = false;  // and not modules, as prefill() does
  const float* embedding_ = nullptr;
  NormWeights norm_{};
  LinearWeights last_{};
};

}  // namespace

// ---------------------------------------------------------------- the interface

Decoder::Decoder(SequenceModel model, DecoderOptions options)
    : model_(std::move(model)),
      options_(std::move(options)),
      dtype_(model_->output->weight.scalar_type()),
      device_(model_->output->weight.device()) {}

at::TensorOptions Decoder::tensor_options() const { return model_->output->weight.options().requires_grad(false); }

void Decoder::check(const at::Tensor& tokens, at::IntArrayRef sizes, int64_t count) const {
  TORCH_CHECK_VALUE(!model_->is_training(), "decoder: the model is in training mode, expected evaluation mode, as after eval()");
  TORCH_CHECK_VALUE(tokens.sizes() == sizes && tokens.scalar_type() == at::kLong, "decoder: tokens are ", tokens.scalar_type(),
                    " ", tokens.sizes(), ", expected int64 ", sizes);
  const auto& weight = model_->output->weight;
  TORCH_CHECK_VALUE(weight.scalar_type() == dtype_ && weight.device() == device_, "decoder: the model was ", dtype_, " on ",
                    device_, " when the decoder was made and is ", weight.scalar_type(), " on ", weight.device(), " now");
  TORCH_CHECK_VALUE(tokens.device() == weight.device(), "decoder: tokens are on ", tokens.device(), " but the model is on ",
                    weight.device());
  TORCH_CHECK_VALUE(position_ + count <= options_.max_tokens, "decoder: the sequences have ", position_, " of ",
                    options_.max_tokens, " tokens, ", count, " more do not fit");
}

const at::Tensor& Decoder::step(const at::Tensor& tokens) {
  check(tokens, {options_.batch}, 1);
  if (tokens.is_cpu()) {
    const auto* const ids = tokens.const_data_ptr<int64_t>();
    for (int64_t b = 0; b < options_.batch; ++b) {
      const auto id = ids[b * tokens.stride(0)];
      TORCH_CHECK_VALUE(id >= 0 && id < model_->options().tokens, "decoder: token ", id, " of sequence ", b,
                        ", expected tokens from 0 to ", model_->options().tokens - 1);
    }
  }
  const at::NoGradGuard no_grad;
  decode(tokens);
  ++position_;
  return output_;
}

const at::Tensor& Decoder::prefill(const at::Tensor& tokens) {
  TORCH_CHECK_VALUE(tokens.dim() == 2 && tokens.size(1) >= 1, "decoder: the tokens of a prefill have shape ", tokens.sizes(),
                    ", expected [batch, length] with length ≥ 1");
  check(tokens, {options_.batch, tokens.size(1)}, tokens.size(1));
  TORCH_CHECK_VALUE(position_ == 0, "decoder: prefill begins new sequences, but these have ", position_, " tokens");
  const at::NoGradGuard no_grad;
  prepare(tokens);
  position_ += tokens.size(1);
  return output_;
}

void Decoder::reset() {
  clear();
  position_ = 0;
}

std::unique_ptr<Decoder> make_decoder(const SequenceModel& model, const DecoderOptions& options) {
  TORCH_CHECK_VALUE(options.batch >= 1, "decoder: batch = ", options.batch, ", expected at least 1");
  TORCH_CHECK_VALUE(options.max_tokens >= 1, "decoder: max_tokens = ", options.max_tokens, ", expected at least 1");
  TORCH_CHECK_VALUE(!model->is_training(), "decoder: the model is in training mode, expected evaluation mode, as after eval()");
  const auto& weight = model->output->weight;
  const bool can_run_kernels = weight.is_cpu() && weight.scalar_type() == at::kFloat;
  if (options.kernel != "auto" && options.kernel != "modules") {
    attn::cpu::choose_instruction_set(options.kernel);
    TORCH_CHECK_VALUE(can_run_kernels, "decoder: kernel '", options.kernel, "' computes float32 on the CPU, but the model is ",
                      weight.scalar_type(), " on ", weight.device(), "; 'modules' computes it");
  }
  const auto can = model->encoder->layers.front()->attention->method().capabilities();
  if (!can.decoding || can.steps_recompute_prefix) return std::make_unique<PrefixDecoder>(model, options);
  if (options.capture) {
    auto decoder = std::make_unique<GraphDecoder>(model, options);
    if (decoder->can_replay()) return decoder;
  }
  if (options.kernel == "modules" || !can_run_kernels) return std::make_unique<ModuleDecoder>(model, options);
  return std::make_unique<KernelDecoder>(model, options);
}

}  // namespace experiments
