// Restores a model from its checkpoint, and generates with it.
#include "experiments/training/image_samples.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "experiments/data/images.h"
#include "experiments/data/npy.h"
#include "experiments/decoding/decoder.h"
#include "experiments/decoding/generate.h"
#include "experiments/training/models.h"
#include "experiments/training/trainer.h"

namespace experiments {
namespace {

using attnbench::Json;

// The model of a checkpoint, in evaluation mode, with the method's seed of its last update.
SequenceModel model_of(const std::string& path, const SavedTraining& saved) {
  SequenceModel model(image_model_options(saved.training));
  try {
    restore_weights(*model, saved.checkpoint);
  } catch (const std::exception& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
  model->set_seed(method_seed(saved.training, saved.updates));
  model->to(at::Device(saved.training.device));
  model->eval();
  return model;
}

// [images, T+1] → [images, H, W] or [images, H, W, 3].
at::Tensor as_images(const at::Tensor& bytes, const ImageSet& set) {
  std::vector<int64_t> sizes = {bytes.size(0), set.height, set.width};
  if (set.channels > 1) sizes.push_back(set.channels);
  return bytes.reshape(sizes);
}

}  // namespace

Json generate_image_samples(const ImageSamplesOptions& options) {
  at::set_num_threads(int(options.threads));
  const at::NoGradGuard no_grad;
  const auto saved = load_training(options.checkpoint);
  if (saved.training.task != "images")
    throw std::runtime_error(options.checkpoint + ": it is of the task " + saved.training.task + ", expected images");
  const auto set = load_images(options.data.empty() ? saved.data : options.data);
  const auto model = model_of(options.checkpoint, saved);
  const auto length = set.sequence_len();
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(options.seed);
  GenerateOptions how{.sampler = parse_logistic_sampler(options.sampler), .generator = generator};

  auto answer = attnbench::to_json(saved.training);
  answer["schema_version"] = attnbench::kSchemaVersion;
  answer["update"] = saved.updates;
  if (options.samples > 0) {
    const auto decoder = make_decoder(model, {.batch = options.samples, .max_tokens = length});
    how.first_byte_counts = first_byte_counts(set.training.pixels);
    const auto begin = std::chrono::steady_clock::now();
    const auto images = generate(*decoder, length, how);
    const auto s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    write_npy(options.samples_file, as_images(images, set));
    answer.update({{"generated", options.samples},
                   {"generated_bytes", length},
                   {"generation_s", s},
                   {"images_per_s", double(options.samples) / s},
                   {"implementation", decoder->implementation()}});
  }
  if (options.completions > 0) {
    const auto count = std::min(options.completions, set.validation.pixels.size(0));
    const auto originals = set.validation.pixels.narrow(0, 0, count);
    const auto visible = (set.height / 2) * set.width * set.channels;
    const auto decoder = make_decoder(model, {.batch = count, .max_tokens = length});
    how.given = originals.narrow(1, 0, std::max<int64_t>(1, visible)).contiguous();
    auto occluded = originals.clone();
    occluded.narrow(1, visible, occluded.size(1) - visible).zero_();
    const auto completed = generate(*decoder, length, how);
    write_npy(options.completions_file,
              at::stack({as_images(occluded, set), as_images(completed, set), as_images(originals, set)}, 1));
  }
  return answer;
}

}  // namespace experiments
