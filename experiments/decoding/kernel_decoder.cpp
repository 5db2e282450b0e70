// Lays out the weights for the kernels, and runs the layers of a token on several threads.
#include "experiments/decoding/kernel_decoder.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "attn/cpu/instruction_set.h"
#include "experiments/decoding/cpu/kernels.h"
#include "experiments/decoding/module_decoder.h"
#include "experiments/decoding/team.h"

namespace experiments {
namespace {

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
//
// Activations are stored by rows, [batch, width], for few sequences, and by columns, [width, batch], for many, whose products
// take less time so (cpu/kernels.h). Queries, keys, values and attended values are always stored by rows, as the methods take
// them.
class KernelDecoder final : public ModuleDecoder {
 public:
  KernelDecoder(const SequenceModel& model, const DecoderOptions& options)
      : ModuleDecoder(model, options),
        kernels_(decoder_kernels(attn::cpu::choose_instruction_set(options.kernel))),
        columns_((options.batch + kDecoderColumns - 1) / kDecoderColumns * kDecoderColumns),
        // Columns are computed up to a multiple of kDecoderColumns, which must not be much more work than the batch.
        by_columns_(options.batch >= kDecoderColumns && 2 * columns_ <= 3 * options.batch),
        team_(at::get_num_threads()),
        width_(model->encoder->options().width),
        inner_(model->encoder->options().heads * model->encoder->options().head_dim),
        hidden_(model->encoder->layers.front()->linear1->options.out_features()),
        outputs_(model->options().outputs),
        positions_(sinusoidal_positions(options.max_tokens, width_ / 2, tensor_options())) {
    const auto rows = [&](int64_t width) { return at::zeros({options.batch, width}, tensor_options()); };
    const auto activations = [&](int64_t width) {
      return by_columns_ ? at::zeros({width, columns_}, tensor_options()) : rows(width);
    };
    x_ = activations(width_);
    y_ = activations(width_);
    sum_ = activations(width_);
    feed_forward_ = activations(hidden_);
    query_ = rows(inner_);
    key_ = rows(inner_);
    value_ = rows(inner_);
    attended_ = rows(inner_);
    logits_ = rows(outputs_);
    if (by_columns_) {
      product_columns_ = activations(std::max(inner_, outputs_));
      attended_columns_ = activations(inner_);
    }
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
           (is_bound() ? bound_.front()->implementation()
                       : attention_method_of(model_->encoder->layers.front()).implementation());
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
        attended_heads_.copy_(attention_method_of(model_->encoder->layers[i]).step(*states_[i], token_));
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
      auto step = attention_method_of(model_->encoder->layers[i]).bind_step(*states_[i], token_, attended_heads_, team_.size());
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
    norm_ = weights_of(model_->encoder->norm);
    last_ = weights_of(model_->output);
  }

  static float* data(const at::Tensor& x) { return x.mutable_data_ptr<float>(); }

  // The embeddings and the encodings of their position → x.
  void begin(Team::Member& member, const int64_t* ids, int64_t id_stride) {
    share_sequences(member, [&](int64_t first, int64_t last) {
      const auto half = width_ / 2;
      const auto* const encoding = data(positions_) + position() * half;
      for (auto b = first; b < last; ++b) {
        const auto* const embedding = embedding_ + ids[b * id_stride] * half;
        if (by_columns_) {
          auto* const column = data(x_) + b;
          for (int64_t i = 0; i < half; ++i) {
            column[i * columns_] = embedding[i];
            column[(half + i) * columns_] = encoding[i];
          }
        } else {
          auto* const row = data(x_) + b * width_;
          std::copy_n(embedding, half, row);
          std::copy_n(encoding, half, row + half);
        }
      }
    });
  }

  // x → the queries, keys and values of layer i.
  void project(Team::Member& member, size_t i) {
    const auto& weights = layers_[i];
    member.share(inner_, kUnit, [&](int64_t first, int64_t last, int64_t) {
      for (const auto& [projection, to] : {std::pair{weights.query, &query_}, {weights.key, &key_}, {weights.value, &value_}})
        multiply_to_rows(x_, width_, projection, *to, inner_, first, last);
    });
  }

  // The attended values → x, the output of layer i.
  void complete(Team::Member& member, size_t i) {
    const auto& weights = layers_[i];
    const auto& attended = by_columns_ ? attended_columns_ : attended_;
    if (by_columns_)
      share_sequences(member, [&](int64_t first, int64_t last) {
        kernels_.transpose(data(attended_) + first * inner_, inner_, last - first, inner_, data(attended_columns_) + first,
                           columns_);
      });
    multiply(member, with_residual(product(attended, inner_, weights.output, sum_, width_), x_), width_);
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
    member.share(outputs_, kUnit, [&](int64_t first, int64_t last, int64_t) {
      multiply_to_rows(y_, width_, last_, logits_, outputs_, first, last);
    });
  }

  // Calls work(first, last) for the sequences of each worker.
  template <class Work>
  void share_sequences(Team::Member& member, const Work& work) {
    member.share(options_.batch, by_columns_ ? kDecoderColumns : 1,
                 [&](int64_t first, int64_t last, int64_t) { work(first, last); });
  }

  // The product of activations x with weights into activations y.
  LinearLayerParams product(const at::Tensor& x, int64_t depth, const LinearWeights& weights, const at::Tensor& y,
                            int64_t outputs) const {
    return {.x = data(x),
            .weight = weights.weight,
            .bias = weights.bias,
            .y = data(y),
            .batch = by_columns_ ? columns_ : options_.batch,
            .depth = depth,
            .x_stride = by_columns_ ? columns_ : depth,
            .y_stride = by_columns_ ? columns_ : outputs};
  }
  LinearLayerParams with_residual(LinearLayerParams params, const at::Tensor& residual) const {
    params.residual = data(residual);
    params.residual_stride = params.y_stride;
    return params;
  }
  void multiply(Team::Member& member, const LinearLayerParams& params, int64_t outputs) {
    const auto linear = by_columns_ ? kernels_.linear_columns : kernels_.linear;
    member.share(outputs, kUnit, [&](int64_t first, int64_t last, int64_t) { linear(params, first, last); });
  }
  // Computes the outputs first ≤ o < last of activations x into rows [batch, outputs].
  void multiply_to_rows(const at::Tensor& x, int64_t depth, const LinearWeights& weights, const at::Tensor& rows, int64_t outputs,
                        int64_t first, int64_t last) {
    if (!by_columns_) return kernels_.linear(product(x, depth, weights, rows, outputs), first, last);
    kernels_.linear_columns(product(x, depth, weights, product_columns_, outputs), first, last);
    kernels_.transpose(data(product_columns_) + first * columns_, columns_, last - first, options_.batch, data(rows) + first,
                       outputs);
  }
  void normalise(Team::Member& member, const NormWeights& weights, const at::Tensor& from, const at::Tensor& to) {
    const NormParams params{.x = data(from),
                            .y = data(to),
                            .width = width_,
                            .stride = by_columns_ ? columns_ : width_,
                            .weight = weights.weight,
                            .bias = weights.bias,
                            .epsilon = weights.epsilon};
    const auto layer_norm = by_columns_ ? kernels_.layer_norm_columns : kernels_.layer_norm;
    share_sequences(member, [&](int64_t first, int64_t last) { layer_norm(params, first, last); });
  }

  const DecoderKernels& kernels_;
  int64_t columns_;  // of activations that are stored by columns: the batch, rounded up
  bool by_columns_;  // how activations are stored
  Team team_;
  int64_t width_, inner_, hidden_, outputs_;
  at::Tensor positions_;                                 // [max_tokens, width/2]
  at::Tensor x_, y_, sum_, feed_forward_;                // activations of `width` numbers, and of `hidden` ones
  at::Tensor query_, key_, value_, attended_;            // [batch, heads · head_dim]
  at::Tensor logits_;                                    // [batch, outputs]
  at::Tensor attended_columns_;                          // attended_ by columns
  at::Tensor product_columns_;                           // a product before it is stored by rows
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

std::unique_ptr<Decoder> make_kernel_decoder(const SequenceModel& model, const DecoderOptions& options) {
  return std::make_unique<KernelDecoder>(model, options);
}

}  // namespace experiments
