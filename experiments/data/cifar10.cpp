// Reads the records of a file, and checks labels and sizes.
#include "experiments/data/cifar10.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <utility>

#include "experiments/data/file_error.h"
#include "experiments/data/gzip.h"

namespace experiments {
namespace {

constexpr int64_t kSide = 32, kChannels = 3, kPixelBytes = kSide * kSide * kChannels, kRecordBytes = 1 + kPixelBytes;
constexpr int64_t kClasses = 10;
constexpr int64_t kMaxRecords = 10'000;

Cifar10 read_file(const std::string& path) {
  ByteReader reader(path, uint64_t(kMaxRecords * kRecordBytes));
  auto bytes = reader.read_all("records of CIFAR-10");
  const auto size = int64_t(bytes.size());
  if (size == 0 || size % kRecordBytes != 0) {
    fail_at(path, uint64_t(size), "the end of a file of " + std::to_string(size) + " bytes",
            "a multiple of " + std::to_string(kRecordBytes) + " bytes, the size of a record of CIFAR-10");
  }
  for (int64_t at = 0; at < size; at += kRecordBytes) {
    const auto label = bytes[size_t(at)];
    if (label >= kClasses) fail_at(path, uint64_t(at), "label " + std::to_string(label), "a label of 0 to 9");
  }
  const auto count = size / kRecordBytes;
  const auto records = at::from_blob(bytes.data(), {count, kRecordBytes}, at::kByte);
  // `bytes` ends with this function, so the tensors must be copies.
  return {records.slice(1, 1).reshape({count, kChannels, kSide, kSide}).permute({0, 2, 3, 1}).contiguous(),
          records.select(1, 0).clone()};
}

}  // namespace

Cifar10 read_cifar10(const std::vector<std::string>& paths) {
  TORCH_CHECK_VALUE(!paths.empty(), "read_cifar10: expected at least one file");
  std::vector<at::Tensor> images, labels;
  for (const auto& path : paths) {
    auto file = read_file(path);
    images.push_back(std::move(file.images));
    labels.push_back(std::move(file.labels));
  }
  return {at::cat(images), at::cat(labels)};
}

}  // namespace experiments
