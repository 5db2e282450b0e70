// Images that a trained model generates: whole ones, and completions of images whose lower half is hidden.
#pragma once

#include <cstdint>
#include <string>

#include "harness/schema/json.h"

namespace experiments {

struct ImageSamplesOptions {
  std::string checkpoint;                 // of a training of the task images
  std::string data;                       // folder of the images; empty: as in the training
  int64_t samples = 64, completions = 8;  // how many; 0: none
  uint64_t seed = 0;
  std::string sampler = "as-likelihood";  // parse_logistic_sampler() reads it
  int64_t threads = 1;
  std::string samples_file, completions_file;  // the .npy files that are written
};

// Writes samples_file, uint8 [samples, H, W] or [samples, H, W, 3], and completions_file, uint8 [completions, 3, H, W] or
// [completions, 3, H, W, 3]: of each of the first validation images the visible part (the rest is 0), the completed image and the
// original. Returns the columns of training_columns() that describe the training, and
//   update, generated (images as a whole), generated_bytes (of each, but the first), generation_s (the time of generating them in
//   one batch), images_per_s, implementation.
// Throws std::runtime_error or c10::ValueError that names the file that cannot be used.
attnbench::Json generate_image_samples(const ImageSamplesOptions& options);

}  // namespace experiments
