// Speech as a training: SpeechModel or BiLstm with connectionist temporal classification (CTC).
#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>

#include <utility>
#include <variant>
#include <vector>

#include "experiments/data/made_speech.h"
#include "experiments/data/speech.h"
#include "experiments/losses/phone_errors.h"
#include "experiments/nn/bi_lstm.h"
#include "experiments/nn/transformer.h"
#include "experiments/training/models.h"
#include "experiments/training/tasks.h"

namespace experiments {
namespace {

using attnbench::Json;
using attnbench::Training;

// The made data is the same for all trainings, so that their error rates are of the same data.
constexpr uint64_t kMadeSpeechSeed = 20200629;

SpeechSet set_of(const Training& t, const std::string& data) {
  if (!data.empty()) return load_speech(data);
  const MadeSpeechSettings settings{.phones = t.phones, .mean_frames = t.mean_frames, .max_frames = t.max_frames};
  return make_speech(settings, t.training_utterances, t.validation_utterances, kMadeSpeechSeed);
}

class SpeechTraining final : public Task {
 public:
  SpeechTraining(const Training& training, const std::string& data) : training_(training), set_(set_of(training, data)) {
    const auto phones = int64_t(set_.phones.size());
    if (training.method == attnbench::kBiLstm) {
      bi_lstm_ = BiLstm(
          BiLstmOptions{.phones = phones, .layers = training.layers, .hidden = training.hidden, .dropout = training.dropout});
    } else {
      auto options = speech_model(phones, training.method);
      options.encoder = transformer_options(training);
      transformer_ = SpeechModel(options);
    }
    model().to(at::Device(training.device));
  }

  torch::nn::Module& model() override {
    if (transformer_.is_empty()) return *bi_lstm_;
    return *transformer_;
  }
  std::string implementation() const override {
    return transformer_.is_empty() ? "torch/lstm" : transformer_->encoder->layers.front()->attention->implementation();
  }

  void set_method_seed(uint64_t seed) override {
    if (!transformer_.is_empty()) transformer_->set_seed(seed);
  }

  at::Tensor loss(int64_t update, at::Generator&) override {
    const auto epoch = (update - 1) / updates_per_epoch(), place = (update - 1) % updates_per_epoch();
    if (epoch != epoch_) {
      batches_ = batches_by_length(set_.training, training_.batch, epoch_generator(training_, epoch));
      epoch_ = epoch;
    }
    const auto batch = speech_batch(set_.training, batches_[size_t(place)]);
    return ctc_loss(probabilities(batch), batch);
  }

  Json validate() override {
    double sum = 0;
    std::vector<std::vector<int64_t>> recognised, truth;
    const auto& utterances = set_.validation;
    for (int64_t begin = 0; begin < int64_t(utterances.size()); begin += training_.batch) {
      std::vector<int64_t> indices;
      for (auto i = begin; i < std::min(begin + training_.batch, int64_t(utterances.size())); ++i) indices.push_back(i);
      const auto batch = speech_batch(utterances, indices);
      const auto log_probabilities = probabilities(batch);
      sum += ctc_loss(log_probabilities, batch).item<double>() * double(indices.size());
      for (auto& path : best_paths(log_probabilities, batch.frame_lengths)) recognised.push_back(std::move(path));
      for (const auto i : indices) truth.push_back(utterances[size_t(i)].labels);
    }
    return {{"validation_loss", sum / double(utterances.size())},
            {"phone_error_rate", phone_error_rate(recognised, truth)},
            {"chance_error_rate", chance_error_rate(truth)}};
  }

  int64_t updates_per_epoch() const override { return (int64_t(set_.training.size()) + training_.batch - 1) / training_.batch; }

 private:
  at::Tensor probabilities(const SpeechBatch& batch) {
    const auto features = batch.features.to(at::Device(training_.device));
    return transformer_.is_empty() ? bi_lstm_(features, batch.frame_lengths) : transformer_(features, batch.frame_lengths);
  }

  // The mean over the utterances of −ln p of the transcript, divided by the transcript's length.
  static at::Tensor ctc_loss(const at::Tensor& log_probabilities, const SpeechBatch& batch) {
    return torch::nn::functional::ctc_loss(log_probabilities.transpose(0, 1), batch.labels, batch.frame_lengths,
                                           batch.label_lengths);
  }

  Training training_;
  SpeechSet set_;
  SpeechModel transformer_{nullptr};  // one of the two is null
  BiLstm bi_lstm_{nullptr};
  int64_t epoch_ = -1;
  std::vector<std::vector<int64_t>> batches_;  // of this epoch
};

}  // namespace

std::unique_ptr<Task> make_speech_training(const Training& training, const std::string& data) {
  return std::make_unique<SpeechTraining>(training, data);
}

}  // namespace experiments
