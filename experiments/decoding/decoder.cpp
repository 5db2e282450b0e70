// Chooses the decoder of a model: kernels, modules with a state, or the whole prefix for each token.
#include "experiments/decoding/decoder.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "attn/cpu/instruction_set.h"
#include "experiments/decoding/kernel_decoder.h"
#include "experiments/decoding/module_decoder.h"

namespace experiments {
namespace {

// ---------------------------------------------------------------- recomputed prefixes

class PrefixDecoder final : public Decoder {
 public:
  PrefixDecoder(const SequenceModel& model, const DecoderOptions& options)
      : Decoder(model, options), tokens_(at::zeros({options.batch, options.max_tokens}, tensor_options().dtype(at::kLong))) {}
  std::string implementation() const override {
    return "forward + " + attention_method_of(model_->encoder->layers.front()).implementation();
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
  // The decoder's kernels know no gates.
  const bool has_gates = model->encoder->layers.front()->attention->has_gates();
  TORCH_CHECK_VALUE(!has_gates || options.kernel == "auto" || options.kernel == "modules", "decoder: kernel '", options.kernel,
                    "' does not compute the gates of this model; 'modules' does");
  if (options.kernel == "modules" || !can_run_kernels || has_gates) return std::make_unique<ModuleDecoder>(model, options);
  return make_kernel_decoder(model, options);
}

}  // namespace experiments
