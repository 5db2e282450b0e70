// Text as a training: SequenceModel predicts every byte of a text from those before it.
#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "experiments/data/text.h"
#include "experiments/losses/logistic_mixture.h"
#include "experiments/nn/transformer.h"
#include "experiments/training/models.h"
#include "experiments/training/tasks.h"

namespace experiments {
namespace {

using attnbench::Json;
using attnbench::Training;

constexpr int64_t kBytes = 256;

SequenceModelOptions text_model_options(const Training& training) {
  return {.tokens = kBytes, .outputs = kBytes, .pattern = training.pattern, .encoder = transformer_options(training)};
}

class TextTraining final : public Task {
 public:
  TextTraining(const Training& training, const std::string& data)
      : training_(training), set_(load_text(data)), model_(text_model_options(training)) {
    for (const auto& [name, text] : {std::pair{"training", set_.training}, {"validation", set_.validation}})
      TORCH_CHECK_VALUE(text.size(0) > training.length, data, ": ", name, ".txt has ", text.size(0),
                        " bytes, expected more than length = ", training.length);
    model_->to(device());
  }

  torch::nn::Module& model() override { return *model_; }
  std::string implementation() const override { return model_->encoder->layers.front()->attention->implementation(); }

  void set_method_seed(uint64_t seed) override { model_->set_seed(seed); }

  at::Tensor loss(int64_t, at::Generator& generator) override {
    const auto begins = at::randint(0, set_.training.size(0) - training_.length, {training_.batch}, generator, at::kLong);
    return loss_of(set_.training, begins);
  }

  // Sequences at equal distances, from the first to the last of the validation text.
  Json validate() override {
    const auto last = set_.validation.size(0) - training_.length - 1;
    const auto count = training_.validation_batches * training_.batch;
    const auto begins = at::linspace(0, double(last), count, at::kDouble).to(at::kLong);
    double sum = 0;
    for (const auto& some : begins.split(training_.batch)) sum += loss_of(set_.validation, some).item<double>();
    const auto loss = sum / double(training_.validation_batches);
    return {{"validation_loss", loss},
            {"bits_per_dim", bits_per_dimension(at::scalar_tensor(-loss, at::kDouble)).item<double>()}};
  }

  // As many updates as read as many bytes as the text has.
  int64_t updates_per_epoch() const override {
    return std::max<int64_t>(1, set_.training.size(0) / (training_.batch * training_.length));
  }

 private:
  at::Device device() const { return at::Device(training_.device); }

  at::Tensor loss_of(const at::Tensor& text, const at::Tensor& begins) {
    const auto batch = text_batch(text, begins, training_.length);
    const auto logits = model_(batch.inputs.to(device()));
    return at::cross_entropy_loss(logits.flatten(0, 1), batch.targets.to(device()).flatten());
  }

  Training training_;
  TextSet set_;
  SequenceModel model_;
};

}  // namespace

std::unique_ptr<Task> make_text_training(const Training& training, const std::string& data) {
  return std::make_unique<TextTraining>(training, data);
}

}  // namespace experiments
