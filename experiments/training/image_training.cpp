// Images as a training: SequenceModel predicts every byte of an image from those before it.
#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "experiments/data/images.h"
#include "experiments/losses/logistic_mixture.h"
#include "experiments/nn/transformer.h"
#include "experiments/training/models.h"
#include "experiments/training/tasks.h"

namespace experiments {
namespace {

using attnbench::Json;
using attnbench::Training;

class ImageTraining final : public Task {
 public:
  ImageTraining(const Training& training, const std::string& data)
      : training_(training), set_(load_images(data)), model_(image_model_options(training)) {
    TORCH_CHECK_VALUE(training.batch <= count(), "batch = ", training.batch, ", expected at most the ", count(),
                      " training images in ", data);
    model_->to(device());
  }

  torch::nn::Module& model() override { return *model_; }
  std::string implementation() const override { return model_->encoder->layers.front()->attention->implementation(); }

  void set_method_seed(uint64_t seed) override { model_->set_seed(seed); }

  at::Tensor loss(int64_t update, at::Generator&) override {
    // An epoch leaves out the images that do not fill a batch; they are others in every epoch.
    const auto epoch = (update - 1) / updates_per_epoch(), place = (update - 1) % updates_per_epoch();
    if (epoch != epoch_) {
      order_ = at::randperm(count(), epoch_generator(training_, epoch), at::kLong);
      epoch_ = epoch;
    }
    return -log_likelihood(set_.training.pixels, order_.narrow(0, place * training_.batch, training_.batch)).mean();
  }

  Json validate() override {
    auto pixels = set_.validation.pixels;
    if (const auto items = training_.validation_items; items > 0 && items < pixels.size(0)) pixels = pixels.narrow(0, 0, items);
    const auto all = at::arange(pixels.size(0), at::kLong);
    double sum = 0;
    for (const auto& indices : all.split(training_.batch)) sum -= log_likelihood(pixels, indices).sum().item<double>();
    const auto loss = sum / double(pixels.size(0) * set_.sequence_len());
    return {{"validation_loss", loss},
            {"bits_per_dim", bits_per_dimension(at::scalar_tensor(-loss, at::kDouble)).item<double>()}};
  }

  int64_t updates_per_epoch() const override { return count() / training_.batch; }

 private:
  int64_t count() const { return set_.training.pixels.size(0); }
  at::Device device() const { return at::Device(training_.device); }

  // ln p of every byte but the first of these images, [B,T].
  at::Tensor log_likelihood(const at::Tensor& pixels, const at::Tensor& indices) {
    const auto batch = image_batch(pixels, indices);
    return logistic_mixture_log_likelihood(model_(batch.inputs.to(device())), batch.targets.to(device()));
  }

  Training training_;
  ImageSet set_;
  SequenceModel model_;
  int64_t epoch_ = -1;
  at::Tensor order_;  // int64 [count]: the images in the order of this epoch
};

}  // namespace

std::unique_ptr<Task> make_image_training(const Training& training, const std::string& data) {
  return std::make_unique<ImageTraining>(training, data);
}

}  // namespace experiments
