// What the tasks share: the options of the model that a training describes, and the order of its training data.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "experiments/nn/transformer.h"
#include "harness/schema/training.h"

namespace experiments {

TransformerOptions transformer_options(const attnbench::Training& training);

// The model of the task images.
SequenceModelOptions image_model_options(const attnbench::Training& training);

// The seed of the random numbers that a method draws in this update; it differs between updates and between trainings.
uint64_t method_seed(const attnbench::Training& training, int64_t update);

// A generator for the order of the data in this epoch, from 0. It follows from the training's seed alone, so that a training that
// continues from a checkpoint needs no state of it.
at::Generator epoch_generator(const attnbench::Training& training, int64_t epoch);

}  // namespace experiments
