// Tests of the reading of CIFAR-10's binary files.
#include "experiments/data/cifar10.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/experiments/data/data_files.h"
#include "tests/support/address_space_limit.h"

namespace experiments {
namespace {

using attnbench::AddressSpaceLimit;
using attnbench::message_of;
using attnbench::TempFolder;

// The byte of a channel of record `record` at a row and a column. All records and positions differ.
uint8_t pixel(int record, int channel, int row, int column) {
  return uint8_t(record * 91 + channel * 67 + row * 37 + column * 5);
}

std::string record(int number, int label) {
  std::string bytes(1, char(label));
  for (int channel = 0; channel < 3; ++channel) {
    for (int row = 0; row < 32; ++row) {
      for (int column = 0; column < 32; ++column) bytes += char(pixel(number, channel, row, column));
    }
  }
  return bytes;
}

std::string error_of_cifar10(const std::string& bytes) {
  const TempFolder folder;
  const auto path = folder.write("file", bytes);
  const auto message = message_of<c10::ValueError>([&] { read_cifar10({path}); });
  EXPECT_CONTAINS(message, path + ": byte ");
  return message;
}

TEST(Cifar10, ReadsSeveralFilesWithTheChannelsLast) {
  const TempFolder folder;
  const auto first = folder.write("first", record(0, 3) + record(1, 9));
  const auto second = folder.write("second", gzip_of(record(2, 0)));
  const auto data = read_cifar10({first, second});
  EXPECT_TRUE(at::equal(data.labels, at::tensor({3, 9, 0}).to(at::kByte)));
  ASSERT_EQ(data.images.sizes(), (at::IntArrayRef{3, 32, 32, 3}));
  ASSERT_EQ(data.images.scalar_type(), at::kByte);
  const auto images = data.images.accessor<uint8_t, 4>();
  for (int n = 0; n < 3; ++n) {
    for (int row = 0; row < 32; ++row) {
      for (int column = 0; column < 32; ++column) {
        for (int channel = 0; channel < 3; ++channel) {
          ASSERT_EQ(images[n][row][column][channel], pixel(n, channel, row, column)) << n << row << column << channel;
        }
      }
    }
  }
}

TEST(Cifar10, RefusesFilesThatDoNotConsistOfWholeRecords) {
  EXPECT_CONTAINS(error_of_cifar10(""), "byte 0: found the end of a file of 0 bytes, expected a multiple of 3073 bytes");
  EXPECT_CONTAINS(error_of_cifar10(record(0, 1) + "x"),
                  "byte 3074: found the end of a file of 3074 bytes, expected a multiple of 3073 bytes");
  expect_errors_when_shortened(record(0, 1), [](const std::string& path) { read_cifar10({path}); });
}

TEST(Cifar10, RefusesShortenedCompressedFiles) {
  const auto whole = gzip_of(record(0, 1));
  expect_errors_when_shortened(whole, [](const std::string& path) { read_cifar10({path}); });
}

TEST(Cifar10, RefusesLabelsAboveNine) {
  EXPECT_CONTAINS(error_of_cifar10(record(0, 9) + record(1, 10)), "byte 3073: found label 10, expected a label of 0 to 9");
  EXPECT_CONTAINS(error_of_cifar10(record(0, 255)), "byte 0: found label 255");
}

TEST(Cifar10, RefusesTooManyRecordsWithLittleMemory) {
  const auto bomb = gzip_bomb("");
  const AddressSpaceLimit limit(uint64_t{150} << 20);
  EXPECT_CONTAINS(error_of_cifar10(bomb),
                  "byte 30730000: found more data, expected at most 30730000 bytes of records of CIFAR-10");
}

TEST(Cifar10, ReadsTenThousandRecordsAndNoMore) {
  const TempFolder folder;
  const auto path = folder.write("file", std::string(size_t{10'000} * 3073, '\0'));
  EXPECT_EQ(read_cifar10({path}).labels.size(0), 10'000);
  EXPECT_CONTAINS(error_of_cifar10(std::string(size_t{10'001} * 3073, '\0')), "byte 30730000: found a file of 30733073 bytes");
}

TEST(Cifar10, NeedsAFile) {
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { read_cifar10({}); }), "expected at least one file");
}

}  // namespace
}  // namespace experiments
