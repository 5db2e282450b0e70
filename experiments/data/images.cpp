// Finds the files of a data set in a folder, and cuts the images into batches.
#include "experiments/data/images.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "experiments/data/cifar10.h"
#include "experiments/data/idx.h"

namespace experiments {
namespace {

namespace fs = std::filesystem;

// The path of the file with this name, or else with ".gz" behind it; nothing if there is neither.
std::optional<std::string> find_file(const fs::path& folder, const std::string& name) {
  for (const auto& candidate : {folder / name, folder / (name + ".gz")}) {
    if (fs::exists(candidate)) return candidate.string();
  }
  return std::nullopt;
}

// The paths of the files data_batch_NUMBER.bin in the order of their numbers.
std::vector<std::string> find_batches(const fs::path& folder) {
  constexpr std::string_view kPrefix = "data_batch_", kSuffix = ".bin", kCompressed = ".gz";
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    auto name = entry.path().filename().string();
    if (name.ends_with(kCompressed)) name.resize(name.size() - kCompressed.size());
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) || name.size() <= kPrefix.size() + kSuffix.size()) continue;
    const auto number = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
    if (number.find_first_not_of("0123456789") == std::string::npos) names.push_back(std::move(name));
  }
  // Of two numbers without leading zeros, the one with fewer digits is smaller.
  std::sort(names.begin(), names.end(),
            [](const auto& a, const auto& b) { return std::pair(a.size(), a) < std::pair(b.size(), b); });
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::vector<std::string> paths;
  for (const auto& name : names) paths.push_back(*find_file(folder, name));
  return paths;
}

struct Part {
  at::Tensor images;  // uint8 [count, height, width, channels]
  at::Tensor labels;  // uint8 [count], or undefined
};

// The images of these files, and the labels of IDX images from the file `labels`, if there is one.
Part read_part(const std::vector<std::string>& images, const std::optional<std::string>& labels) {
  const auto idx = std::find_if(images.begin(), images.end(), begins_as_idx);
  if (idx == images.end()) {
    TORCH_CHECK_VALUE(!labels, labels.value_or(""), ": a file of labels, but ", images[0],
                      " is not an IDX file and has labels itself");
    auto records = read_cifar10(images);
    return {std::move(records.images), std::move(records.labels)};
  }
  TORCH_CHECK_VALUE(images.size() == 1, *idx, ": an IDX file, expected one file of images instead of ", images.size());
  Part part{read_idx_images(*idx).unsqueeze(-1), {}};
  if (labels) {
    part.labels = read_idx_labels(*labels);
    TORCH_CHECK_VALUE(part.labels.size(0) == part.images.size(0), *labels, ": ", part.labels.size(0), " labels, expected ",
                      part.images.size(0), ", the number of images in ", *idx);
  }
  return part;
}

}  // namespace

ImageSet load_images(const std::string& folder) {
  TORCH_CHECK_VALUE(fs::is_directory(folder), folder, ": there is no such folder");
  auto training_files = find_batches(folder);
  if (const auto file = find_file(folder, "train-images-idx3-ubyte")) {
    TORCH_CHECK_VALUE(training_files.empty(), folder, ": training images are both in ", *file, " and in ", training_files[0],
                      ", expected one of them");
    training_files.push_back(*file);
  }
  TORCH_CHECK_VALUE(!training_files.empty(), folder,
                    ": no training images, expected train-images-idx3-ubyte, or data_batch_1.bin and so on, plain or compressed");
  auto validation_file = find_file(folder, "t10k-images-idx3-ubyte");
  if (const auto file = find_file(folder, "test_batch.bin")) {
    TORCH_CHECK_VALUE(!validation_file, folder, ": validation images are both in ", validation_file.value_or(""), " and in ",
                      *file, ", expected one of them");
    validation_file = file;
  }
  TORCH_CHECK_VALUE(validation_file, folder,
                    ": no validation images, expected t10k-images-idx3-ubyte or test_batch.bin, plain or compressed");

  auto training = read_part(training_files, find_file(folder, "train-labels-idx1-ubyte"));
  auto validation = read_part({*validation_file}, find_file(folder, "t10k-labels-idx1-ubyte"));
  const auto image_sizes = training.images.sizes().slice(1);
  TORCH_CHECK_VALUE(validation.images.sizes().slice(1) == image_sizes, *validation_file, ": images of ",
                    validation.images.sizes().slice(1), " (height, width, channels), expected ", image_sizes, " as in ",
                    training_files[0]);
  ImageSet set{image_sizes[0], image_sizes[1], image_sizes[2], {}, {}};
  TORCH_CHECK_VALUE(set.sequence_len() >= 1, training_files[0], ": images of one byte, expected at least two");
  set.training = {training.images.flatten(1), std::move(training.labels)};
  set.validation = {validation.images.flatten(1), std::move(validation.labels)};
  return set;
}

ImageBatch image_batch(const at::Tensor& pixels, const at::Tensor& indices) {
  TORCH_CHECK_VALUE(pixels.scalar_type() == at::kByte && pixels.dim() == 2 && pixels.size(1) >= 2, "image_batch: pixels are ",
                    pixels.scalar_type(), " ", pixels.sizes(), ", expected Byte [count, at least 2]");
  TORCH_CHECK_VALUE(indices.scalar_type() == at::kLong && indices.dim() == 1 && indices.numel() >= 1, "image_batch: indices are ",
                    indices.scalar_type(), " ", indices.sizes(), ", expected Long [at least 1]");
  const auto smallest = indices.min().item<int64_t>(), largest = indices.max().item<int64_t>();
  TORCH_CHECK_VALUE(smallest >= 0 && largest < pixels.size(0), "image_batch: indices from ", smallest, " to ", largest,
                    ", expected 0 to ", pixels.size(0) - 1);
  const auto bytes = pixels.index_select(0, indices).to(at::kLong);
  const auto length = pixels.size(1) - 1;
  return {bytes.narrow(1, 0, length).contiguous(), bytes.narrow(1, 1, length).contiguous()};
}

}  // namespace experiments
