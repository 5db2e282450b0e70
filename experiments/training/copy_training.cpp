// The copy task as a training: SequenceModel on the sequences of CopyTask.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/module.h>

#include <utility>
#include <vector>

#include "experiments/data/copy_task.h"
#include "experiments/losses/copy_loss.h"
#include "experiments/nn/transformer.h"
#include "experiments/training/models.h"
#include "experiments/training/tasks.h"

namespace experiments {
namespace {

using attnbench::Json;
using attnbench::Training;

// The seed of the validation data is the same for all trainings, so that their losses are of the same data.
constexpr uint64_t kValidationSeed = 20200629;

SequenceModelOptions model_options(const Training& training) {
  const auto tokens = training.symbols + (training.gap > 0 ? 2 : 1);
  return {.tokens = tokens, .outputs = tokens, .pattern = training.pattern, .encoder = transformer_options(training)};
}

class CopyTraining final : public Task {
 public:
  explicit CopyTraining(const Training& training)
      : training_(training),
        task_({training.length, training.symbols, training.min_copied, training.max_copied, training.gap}),
        model_(model_options(training)) {
    model_->to(at::Device(training.device));
    auto generator = at::make_generator<at::CPUGeneratorImpl>(kValidationSeed);
    for (int64_t i = 0; i < training.validation_batches; ++i)
      validation_.push_back(on_device(task_.next(training.batch, generator)));
  }

  torch::nn::Module& model() override { return *model_; }
  std::string implementation() const override { return model_->encoder->layers.front()->attention->implementation(); }

  void set_method_seed(uint64_t seed) override { model_->set_seed(seed); }

  at::Tensor loss(int64_t, at::Generator& generator) override {
    const auto batch = on_device(task_.next(training_.batch, generator));
    return masked_cross_entropy(model_(batch.inputs), batch.targets, batch.mask);
  }

  Json validate() override {
    double loss = 0, accuracy = 0;
    for (const auto& batch : validation_) {
      const auto logits = model_(batch.inputs);
      loss += masked_cross_entropy(logits, batch.targets, batch.mask).item<double>();
      accuracy += masked_accuracy(logits, batch.targets, batch.mask).item<double>();
    }
    const auto batches = double(validation_.size());
    return {{"validation_loss", loss / batches}, {"validation_accuracy", accuracy / batches}};
  }

 private:
  CopyBatch on_device(const CopyBatch& batch) const {
    const at::Device device(training_.device);
    return {batch.inputs.to(device), batch.targets.to(device), batch.mask.to(device)};
  }

  Training training_;
  CopyTask task_;
  SequenceModel model_;
  std::vector<CopyBatch> validation_;
};

}  // namespace

std::unique_ptr<Task> make_copy_training(const Training& training) { return std::make_unique<CopyTraining>(training); }

}  // namespace experiments
