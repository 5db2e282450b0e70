// Reads and writes the header and the numbers of .npy files.
#include "experiments/data/npy.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <c10/util/safe_numerics.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "experiments/data/file_error.h"
#include "experiments/data/gzip.h"
#include "harness/worker/inputs/npy_description.h"

namespace experiments {
namespace {

static_assert(std::endian::native == std::endian::little, "the elements of .npy files are read without swapping their bytes");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMagicBytes = 6;
constexpr uint64_t kMaxDescriptionBytes = 4096;  // NumPy writes about 120

struct Header {
  MatrixSizes sizes;
  uint64_t bytes = 0;          // of the header
  uint64_t element_bytes = 0;  // of all elements
};

// The sizes in a description of a float32 matrix in C order. Nothing if it describes another array.
std::optional<MatrixSizes> parse_description(std::string_view text) {
  const auto description = attnbench::parse_npy_description(text);
  if (!description || description->dtype != "<f4" || description->column_major || description->sizes.size() != 2)
    return std::nullopt;
  return MatrixSizes{description->sizes[0], description->sizes[1]};
}

Header read_header(ByteReader& reader) {
  constexpr const char* kWhat = "the header of an .npy file";
  constexpr size_t kVersionBytes = 2;
  std::array<uint8_t, kMagicBytes + kVersionBytes> begin = {};
  reader.set_limit(begin.size());
  reader.read(begin.data(), begin.size(), kWhat);
  if (std::memcmp(begin.data(), kMagic.data(), kMagicBytes) != 0) {
    fail_at(reader.path(), 0, hex_text(std::span(begin).first(kMagicBytes)),
            "93 4e 55 4d 50 59 (\"\\x93NUMPY\"), the magic number of an .npy file");
  }
  const auto version = begin[kMagicBytes];
  if (version < 1 || version > 3) {
    fail_at(reader.path(), kMagicBytes, "version " + std::to_string(version) + " of the .npy format", "version 1, 2 or 3");
  }
  std::array<uint8_t, 4> length = {};
  const size_t length_bytes = version == 1 ? 2 : 4;
  const auto length_offset = reader.offset();
  reader.set_limit(length_offset + length_bytes);
  reader.read(length.data(), length_bytes, kWhat);
  const auto count = uint64_t(length[0]) | uint64_t(length[1]) << 8 | uint64_t(length[2]) << 16 | uint64_t(length[3]) << 24;
  if (count > kMaxDescriptionBytes) {
    fail_at(reader.path(), length_offset, "a header of " + std::to_string(count) + " bytes",
            "at most " + std::to_string(kMaxDescriptionBytes) + " bytes");
  }
  const auto description_offset = reader.offset();
  reader.set_limit(description_offset + count);
  const auto description = reader.read_bytes(count, kWhat);
  const std::string_view text(reinterpret_cast<const char*>(description.data()), description.size());
  const auto sizes = parse_description(text);
  if (!sizes) {
    fail_at(reader.path(), description_offset, quoted_text(text),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (ROWS, COLUMNS), }, a float32 matrix in C order");
  }
  const auto shape = "shape (" + std::to_string(sizes->rows) + ", " + std::to_string(sizes->columns) + ")";
  if (sizes->rows < 1 || sizes->columns < 1) fail_at(reader.path(), description_offset, shape, "sizes of at least 1");
  uint64_t element_bytes = 0;
  if (c10::mul_overflows(uint64_t(sizes->rows), uint64_t(sizes->columns), &element_bytes) ||
      c10::mul_overflows(element_bytes, uint64_t{sizeof(float)}, &element_bytes) ||
      element_bytes > uint64_t(std::numeric_limits<int64_t>::max()) - reader.offset())
    fail_at(reader.path(), description_offset, shape, "fewer than 2^63 bytes");
  const auto file_bytes = reader.offset() + element_bytes;
  if (const auto size = reader.plain_size(); size && *size != file_bytes) {
    fail_at(reader.path(), std::min(*size, file_bytes), "a file of " + std::to_string(*size) + " bytes",
            std::to_string(file_bytes) + " bytes, that is " + std::to_string(reader.offset()) +
                " of the header and float32 elements of " + shape);
  }
  return {*sizes, reader.offset(), element_bytes};
}

}  // namespace

MatrixSizes read_npy_sizes(const std::string& path) {
  ByteReader reader(path, 0);
  return read_header(reader).sizes;
}

at::Tensor read_npy(const std::string& path) {
  ByteReader reader(path, 0);
  const auto header = read_header(reader);
  reader.set_limit(header.bytes + header.element_bytes);
  const auto bytes = reader.read_bytes(header.element_bytes, "the elements of the matrix");
  reader.expect_end();
  auto matrix = at::empty({header.sizes.rows, header.sizes.columns}, at::kFloat);
  std::memcpy(matrix.mutable_data_ptr<float>(), bytes.data(), bytes.size());
  if (!at::isfinite(matrix).all().item<bool>()) {
    const auto first = at::isfinite(matrix).logical_not().flatten().to(at::kByte).argmax().item<int64_t>();
    const auto row = first / header.sizes.columns, column = first % header.sizes.columns;
    fail_at(path, header.bytes + uint64_t(first) * sizeof(float),
            "the element " + std::to_string(matrix[row][column].item<float>()) + " at row " + std::to_string(row) + ", column " +
                std::to_string(column),
            "a finite number");
  }
  return matrix;
}

void write_npy(const std::string& path, const at::Tensor& array) {
  const bool is_bytes = array.scalar_type() == at::kByte;
  TORCH_CHECK_VALUE((is_bytes || array.scalar_type() == at::kFloat) && array.dim() >= 1 && array.numel() > 0, path,
                    ": the array to write is ", array.scalar_type(), " ", array.sizes(),
                    ", expected Float or Byte of one dimension or more that is not empty");
  std::string shape;
  for (const auto size : array.sizes()) shape += std::to_string(size) + ", ";
  // A tuple of one number ends in a comma, and a longer one does not.
  shape.resize(shape.size() - (array.dim() == 1 ? 1 : 2));
  std::string header =
      std::string("{'descr': '") + (is_bytes ? "|u1" : "<f4") + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  // The elements begin at a multiple of 64 bytes, and a line end stands before them.
  constexpr size_t kAlignment = 64, kFixedBytes = kMagicBytes + 2 + 2;
  const auto total = (kFixedBytes + header.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  header.append(total - kFixedBytes - header.size() - 1, ' ');
  header += '\n';
  std::vector<uint8_t> bytes(kMagic.begin(), kMagic.end());
  bytes.insert(bytes.end(), {1, 0, uint8_t(header.size()), uint8_t(header.size() >> 8)});
  bytes.insert(bytes.end(), header.begin(), header.end());
  const auto elements = array.cpu().contiguous();
  const auto* const data = static_cast<const uint8_t*>(elements.const_data_ptr());
  bytes.insert(bytes.end(), data, data + elements.nbytes());
  write_bytes(path, bytes);
}

}  // namespace experiments
