// Tests of the reading and writing of IDX files.
#include "experiments/data/idx.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "tests/experiments/data/data_files.h"
#include "tests/support/address_space_limit.h"

namespace experiments {
namespace {

using attnbench::AddressSpaceLimit;
using attnbench::message_of;
using attnbench::TempFolder;

// The header of an IDX file with this type and these sizes.
std::string header(const std::vector<uint32_t>& sizes, uint8_t type = 8) {
  std::string bytes = {0, 0, char(type), char(sizes.size())};
  for (const auto size : sizes) {
    for (const int shift : {24, 16, 8, 0}) bytes += char(size >> shift);
  }
  return bytes;
}

std::string error_of_idx(const std::string& bytes, int64_t dims) {
  const TempFolder folder;
  const auto path = folder.write("file", bytes);
  const auto message = message_of<c10::ValueError>([&] { read_idx(path, dims); });
  EXPECT_CONTAINS(message, path + ": byte ");
  return message;
}

TEST(Idx, ReadsImagesAndLabelsOfAFileWrittenByHand) {
  const TempFolder folder;
  const std::string pixels = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, char(255)};
  for (const bool compressed : {false, true}) {
    const auto stored = [&](const std::string& bytes) { return compressed ? gzip_of(bytes) : bytes; };
    const auto images = read_idx_images(folder.write("images", stored(header({2, 3, 2}) + pixels)));
    EXPECT_TRUE(at::equal(images, at::tensor({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 255}).to(at::kByte).view({2, 3, 2})));
    EXPECT_EQ(images.scalar_type(), at::kByte);
    const auto labels = read_idx_labels(folder.write("labels", stored(header({3}) + "\x07" + std::string(1, '\0') + "\x09")));
    EXPECT_TRUE(at::equal(labels, at::tensor({7, 0, 9}).to(at::kByte)));
  }
}

TEST(Idx, ReadsTensorsOfManySizes) {
  const TempFolder folder;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(1);
  for (const auto compression : {Compression::none, Compression::gzip}) {
    for (const auto& sizes : std::vector<std::vector<int64_t>>{{1}, {5}, {1, 1, 1}, {300, 28, 28}, {2, 3, 4, 5}}) {
      const auto values = at::randint(256, sizes, generator, at::kByte);
      write_idx(folder.path("file"), values, compression);
      EXPECT_TRUE(at::equal(read_idx(folder.path("file"), values.dim()), values));
    }
  }
}

TEST(Idx, RefusesOtherMagicNumbers) {
  EXPECT_CONTAINS(
      error_of_idx(header({2, 2, 2}, 0x0d) + std::string(8, 'x'), 3),
      "byte 0: found 00 00 0d 03, expected 00 00 08 03, the magic number of an IDX file of unsigned bytes in 3 dimensions");
  EXPECT_CONTAINS(error_of_idx(header({8}) + std::string(8, 'x'), 3), "byte 0: found 00 00 08 01, expected 00 00 08 03");
  EXPECT_CONTAINS(error_of_idx(header({2, 2, 2}) + std::string(8, 'x'), 1),
                  "expected 00 00 08 01, the magic number of an IDX file of "
                  "unsigned bytes in 1 dimension");
  EXPECT_CONTAINS(error_of_idx("a text file", 1), "byte 0: found 61 20 74 65, expected 00 00 08 01");
  EXPECT_CONTAINS(error_of_idx(gzip_of("a text file"), 1), "byte 0: found 61 20 74 65, expected 00 00 08 01");
}

TEST(Idx, RefusesEveryShortenedFile) {
  const auto images = header({2, 3, 2}) + std::string(12, 'x');
  expect_errors_when_shortened(images, read_idx_images);
  expect_errors_when_shortened(gzip_of(images), read_idx_images);
  expect_errors_when_shortened(header({3}) + "abc", read_idx_labels);
}

TEST(Idx, RefusesSizesThatDifferFromTheData) {
  EXPECT_CONTAINS(error_of_idx(header({2, 2, 2}) + std::string(7, 'x'), 3),
                  "byte 23: found a file of 23 bytes, expected 24 bytes, that is 16 of the header and 2 × 2 × 2 elements");
  EXPECT_CONTAINS(error_of_idx(header({2, 2, 2}) + std::string(9, 'x'), 3),
                  "byte 24: found a file of 25 bytes, expected 24 bytes");
  EXPECT_CONTAINS(error_of_idx(gzip_of(header({2, 2, 2}) + std::string(7, 'x')), 3),
                  "byte 23: found the end of the file, expected 2 × 2 × 2 elements up to byte 24");
  EXPECT_CONTAINS(error_of_idx(gzip_of(header({2, 2, 2}) + std::string(9, 'x')), 3),
                  "byte 24: found more data, expected the end of the file");
}

TEST(Idx, RefusesSizesOfZero) {
  EXPECT_CONTAINS(error_of_idx(header({0, 28, 28}), 3), "byte 4: found size 0 of dimension 0, expected at least 1");
  EXPECT_CONTAINS(error_of_idx(header({1, 28, 0}), 3), "byte 12: found size 0 of dimension 2, expected at least 1");
  EXPECT_CONTAINS(error_of_idx(header({0}), 1), "byte 4: found size 0 of dimension 0, expected at least 1");
}

TEST(Idx, RefusesSizesWhoseProductOverflows) {
  EXPECT_CONTAINS(error_of_idx(header({0xffffffff, 0xffffffff, 0xffffffff}), 3),
                  "byte 8: found sizes 4294967295 × 4294967295, expected a "
                  "product below 2^63");
  // 2^64 elements would be 0 in 64 bits, and 2^63 would be negative.
  EXPECT_CONTAINS(error_of_idx(header({1U << 31, 1U << 31, 4}), 3),
                  "byte 12: found sizes 2147483648 × 2147483648 × 4, expected a product below");
  EXPECT_CONTAINS(error_of_idx(header({1U << 31, 1U << 31, 2}), 3), "expected a product below 2^63");
}

TEST(Idx, RefusesLargeSizesWithLittleMemory) {
  if (!AddressSpaceLimit::kLimits) GTEST_SKIP() << "the sanitizer has an allocator of its own";
  const auto bomb = gzip_bomb(header({2, 2, 2}));
  const auto large = gzip_bomb(header({1U << 16, 1U << 7, 1U << 7}));  // 1 GB, as the file has
  const AddressSpaceLimit limit(uint64_t{64} << 20);
  const auto too_many = header({0x7fffffff, 28, 28}) + std::string(100, 'x');
  EXPECT_CONTAINS(error_of_idx(too_many, 3), "byte 116: found a file of 116 bytes, expected 1683627179264 bytes");
  EXPECT_CONTAINS(error_of_idx(gzip_of(too_many), 3), "byte 116: found the end of the file");
  EXPECT_CONTAINS(error_of_idx(bomb, 3), "byte 24: found more data, expected the end of the file");
  // A file that really has as many bytes as its header says needs the memory for them.
  const TempFolder folder;
  EXPECT_THROW(read_idx(folder.write("large", large), 3), std::bad_alloc);
}

TEST(Idx, RefusesANumberOfDimensionsThatTheFormatCannotHold) {
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { read_idx("file", 0); }), "dims = 0, expected 1 to 255");
}

TEST(Idx, RecognisesTheBeginningOfAFile) {
  const TempFolder folder;
  EXPECT_TRUE(begins_as_idx(folder.write("file", header({3}) + "abc")));
  EXPECT_TRUE(begins_as_idx(folder.write("file", gzip_of(header({3}) + "abc"))));
  EXPECT_FALSE(begins_as_idx(folder.write("file", header({3}, 9) + "abc")));
  EXPECT_FALSE(begins_as_idx(folder.write("file", "")));
  EXPECT_FALSE(begins_as_idx(folder.write("file", std::string(2, '\0'))));
}

}  // namespace
}  // namespace experiments
