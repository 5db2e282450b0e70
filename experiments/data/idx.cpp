// Reads the header of an IDX file, and as many bytes as it announces.
#include "experiments/data/idx.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <c10/util/safe_numerics.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "experiments/data/file_error.h"
#include "experiments/data/gzip.h"

namespace experiments {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;

// A uint8 tensor that owns the bytes.
at::Tensor tensor_of(std::vector<uint8_t> bytes, at::IntArrayRef sizes) {
  auto owner = std::make_shared<std::vector<uint8_t>>(std::move(bytes));
  return at::from_blob(
      owner->data(), sizes, [owner](void*) {}, at::kByte);
}

}  // namespace

at::Tensor read_idx(const std::string& path, int64_t dims) {
  TORCH_CHECK_VALUE(dims >= 1 && dims <= 255, "read_idx: dims = ", dims, ", expected 1 to 255");
  const auto header_bytes = 4 + 4 * uint64_t(dims);
  ByteReader reader(path, header_bytes);
  const std::array<uint8_t, 4> expected = {0, 0, kUnsignedByte, uint8_t(dims)};
  std::array<uint8_t, 4> magic = {};
  reader.read(magic.data(), magic.size(), "the magic number " + hex_text(expected) + " of an IDX file");
  if (magic != expected) {
    fail_at(path, 0, hex_text(magic),
            hex_text(expected) + ", the magic number of an IDX file of unsigned bytes in " + std::to_string(dims) +
                (dims == 1 ? " dimension" : " dimensions"));
  }

  std::vector<int64_t> sizes;
  std::string product;
  uint64_t elements = 1;
  for (int64_t dim = 0; dim < dims; ++dim) {
    const auto offset = reader.offset();
    std::array<uint8_t, 4> bytes = {};
    reader.read(bytes.data(), bytes.size(), "the size of dimension " + std::to_string(dim));
    const auto size = uint64_t(bytes[0]) << 24 | uint64_t(bytes[1]) << 16 | uint64_t(bytes[2]) << 8 | bytes[3];
    if (size == 0) fail_at(path, offset, "size 0 of dimension " + std::to_string(dim), "at least 1");
    sizes.push_back(int64_t(size));
    product += (dim > 0 ? " × " : "") + std::to_string(size);
    // A tensor counts its elements as int64.
    if (c10::mul_overflows(elements, size, &elements) || elements > uint64_t(std::numeric_limits<int64_t>::max()) - header_bytes)
      fail_at(path, offset, "sizes " + product, "a product below 2^63");
  }

  const auto file_bytes = header_bytes + elements;
  if (const auto size = reader.plain_size(); size && *size != file_bytes) {
    fail_at(path, std::min(*size, file_bytes), "a file of " + std::to_string(*size) + " bytes",
            std::to_string(file_bytes) + " bytes, that is " + std::to_string(header_bytes) + " of the header and " + product +
                " elements");
  }
  reader.set_limit(file_bytes);
  auto bytes = reader.read_bytes(elements, product + " elements");
  reader.expect_end();
  return tensor_of(std::move(bytes), sizes);
}

bool begins_as_idx(const std::string& path) {
  std::array<uint8_t, 3> begin = {1, 1, 1};
  ByteReader reader(path, begin.size());
  if (reader.plain_size().value_or(begin.size()) < begin.size()) return false;
  reader.read(begin.data(), begin.size(), "the beginning of the file");
  return begin == std::array<uint8_t, 3>{0, 0, kUnsignedByte};
}

}  // namespace experiments
