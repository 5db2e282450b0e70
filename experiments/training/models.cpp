// Turns the settings of a training into options of models, and shuffles its data by epoch.
#include "experiments/training/models.h"

#include <ATen/CPUGeneratorImpl.h>

#include "experiments/nn/attention.h"

namespace experiments {

TransformerOptions transformer_options(const attnbench::Training& t) {
  return {.method = t.method,
          .layers = t.layers,
          .width = t.heads * t.head_dim,
          .heads = t.heads,
          .head_dim = t.head_dim,
          .dropout = t.dropout,
          .seed = method_seed(t, 0)};
}

SequenceModelOptions image_model_options(const attnbench::Training& training) {
  auto options = image_model(training.layers, training.method);
  options.pattern = training.pattern;
  options.encoder = transformer_options(training);
  return options;
}

uint64_t method_seed(const attnbench::Training& training, int64_t update) { return layer_seed(uint64_t(training.seed), update); }

at::Generator epoch_generator(const attnbench::Training& training, int64_t epoch) {
  constexpr int64_t kStreamOfEpochs = int64_t{1} << 40;  // away from the numbers of updates
  return at::make_generator<at::CPUGeneratorImpl>(layer_seed(uint64_t(training.seed), kStreamOfEpochs + epoch));
}

}  // namespace experiments
