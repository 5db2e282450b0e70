// Tests of the reading and writing of .npy files.
#include "experiments/data/npy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/experiments/data/data_files.h"
#include "tests/support/address_space_limit.h"

namespace experiments {
namespace {

using attnbench::AddressSpaceLimit;
using attnbench::message_of;
using attnbench::TempFolder;

// A file of version 1 with this description and elements.
std::string npy(const std::string& description, const std::string& elements, char version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += version;
  bytes += '\0';
  bytes += char(description.size());
  bytes += char(description.size() >> 8);
  if (version > 1) bytes += std::string(2, '\0');
  return bytes + description + elements;
}

std::string shape(const std::string& sizes) { return "{'descr': '<f4', 'fortran_order': False, 'shape': (" + sizes + "), }\n"; }

// The bytes of float32 numbers.
std::string floats(const std::vector<float>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float)};
}

std::string error_of_npy(const std::string& bytes) {
  const TempFolder folder;
  const auto path = folder.write("file", bytes);
  const auto message = message_of<c10::ValueError>([&] { read_npy(path); });
  EXPECT_CONTAINS(message, path + ": byte ");
  return message;
}

TEST(Npy, ReadsAFileWrittenByHand) {
  const TempFolder folder;
  const auto elements = floats({1, 2, 3, -4, 5.5, 6});
  const auto expected = at::tensor({1., 2., 3., -4., 5.5, 6.}).to(at::kFloat).view({2, 3});
  for (const char version : {1, 2, 3}) {
    for (const auto& bytes : {npy(shape("2, 3"), elements, version), gzip_of(npy(shape("2, 3"), elements, version))}) {
      const auto path = folder.write("file", bytes);
      EXPECT_TRUE(at::equal(read_npy(path), expected));
      const auto sizes = read_npy_sizes(path);
      EXPECT_EQ(sizes.rows, 2);
      EXPECT_EQ(sizes.columns, 3);
    }
  }
}

TEST(Npy, ReadsWhatItHasWritten) {
  const TempFolder folder;
  const auto matrix = at::randn({40, 7}).t();
  write_npy(folder.path("file"), matrix);
  EXPECT_TRUE(at::equal(read_npy(folder.path("file")), matrix));
  EXPECT_EQ(folder.read("file").size(), 128U + 40 * 7 * 4);
}

TEST(Npy, RefusesOtherHeaders) {
  EXPECT_CONTAINS(error_of_npy("not a file of NumPy"), "byte 0: found 6e 6f 74 20 61 20, expected 93 4e 55 4d 50 59");
  EXPECT_CONTAINS(error_of_npy(npy(shape("1, 1"), floats({1}), 4)), "byte 6: found version 4 of the .npy format");
  for (const std::string description :
       {"{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1), }",
        "{'descr': '>f4', 'fortran_order': False, 'shape': (1, 1), }",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1), }", "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1)", "{'descr': '<f4', 'fortran_order': False, 'shape': (, 1), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, ), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 1), }", "", "{"}) {
    EXPECT_CONTAINS(error_of_npy(npy(description, floats({1}))), "byte 10: found '" + description.substr(0, 60));
  }
  EXPECT_CONTAINS(error_of_npy(npy(shape("0, 40"), "")), "byte 10: found shape (0, 40), expected sizes of at least 1");
  EXPECT_CONTAINS(error_of_npy(npy(shape("-1, 40"), "")), "found shape (-1, 40)");
  EXPECT_CONTAINS(error_of_npy(npy(shape("4294967296, 4294967296"), "")), "expected fewer than 2^63 bytes");
  EXPECT_CONTAINS(error_of_npy(npy(std::string(5000, ' '), "")),
                  "byte 8: found a header of 5000 bytes, expected at most 4096 bytes");
}

TEST(Npy, RefusesEveryShortenedFileAndALongerOne) {
  const auto whole = npy(shape("2, 3"), floats({1, 2, 3, 4, 5, 6}));
  expect_errors_when_shortened(whole, read_npy);
  expect_errors_when_shortened(whole, read_npy_sizes);
  expect_errors_when_shortened(gzip_of(whole), read_npy);
  EXPECT_CONTAINS(error_of_npy(whole + "x"), "of the header and float32 elements of shape (2, 3)");
  EXPECT_CONTAINS(error_of_npy(gzip_of(whole + "x")), "found more data, expected the end of the file");
}

TEST(Npy, RefusesNumbersThatAreNotFinite) {
  const auto begin = npy(shape("2, 2"), "").size() + 3 * 4;
  EXPECT_CONTAINS(error_of_npy(npy(shape("2, 2"), floats({1, 2, 3, NAN}))),
                  "byte " + std::to_string(begin) + ": found the element nan at row 1, column 1, expected a finite number");
  EXPECT_CONTAINS(error_of_npy(npy(shape("2, 2"), floats({1, -INFINITY, 3, NAN}))), "found the element -inf at row 0, column 1");
}

TEST(Npy, RefusesLargeSizesWithLittleMemory) {
  const auto bomb = gzip_bomb(npy(shape("2, 2"), floats({1, 2, 3, 4})));
  const AddressSpaceLimit limit(uint64_t{64} << 20);
  EXPECT_CONTAINS(error_of_npy(bomb), "found more data, expected the end of the file");
  const auto lying = npy(shape("1000000000, 40"), floats({1, 2}));
  EXPECT_CONTAINS(error_of_npy(lying), "expected 160000000");
  EXPECT_CONTAINS(error_of_npy(gzip_of(lying)), "found the end of the file");
}

TEST(Npy, RefusesToWriteOtherTensors) {
  const TempFolder folder;
  for (const auto& tensor : {at::zeros({2, 2}, at::kDouble), at::zeros({2}, at::kLong), at::zeros({0, 2})}) {
    EXPECT_CONTAINS(message_of<c10::ValueError>([&] { write_npy(folder.path("file"), tensor); }),
                    "expected Float or Byte of one dimension or more");
  }
  EXPECT_FALSE(folder.has("file"));
}

}  // namespace
}  // namespace experiments
