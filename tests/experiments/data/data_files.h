// Helpers for the tests of experiments/data: bytes, files, and what is wrong with each shortened file.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "experiments/data/gzip.h"
#include "tests/support/errors_of.h"
#include "tests/support/temp_folder.h"

namespace experiments {

inline std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

enum class Compression { none, gzip };

// Writes a file, and replaces one that exists.
inline void write_bytes(const std::string& path, std::span<const uint8_t> bytes, Compression compression) {
  if (compression == Compression::none) return write_bytes(path, bytes);
  auto* const file = gzopen(path.c_str(), "wb9");
  ASSERT_TRUE(file) << path;
  EXPECT_EQ(gzwrite(file, bytes.data(), unsigned(bytes.size())), int(bytes.size())) << path;
  EXPECT_EQ(gzclose(file), Z_OK) << path;
}

// Writes a uint8 tensor as an IDX file.
inline void write_idx(const std::string& path, const at::Tensor& values, Compression compression = Compression::none) {
  std::vector<uint8_t> bytes = {0, 0, 0x08, uint8_t(values.dim())};
  for (const auto size : values.sizes())
    for (const int shift : {24, 16, 8, 0}) bytes.push_back(uint8_t(size >> shift));
  const auto elements = values.contiguous();
  const auto* const data = elements.const_data_ptr<uint8_t>();
  bytes.insert(bytes.end(), data, data + elements.numel());
  write_bytes(path, bytes, compression);
}

// The bytes as gzip data of one member.
inline std::string gzip_of(const std::string& bytes) {
  const attnbench::TempFolder folder;
  write_bytes(folder.path("file"), bytes_of(bytes), Compression::gzip);
  return folder.read("file");
}

// Gzip data of about 1 MB that decompresses to `begin` and 1 GB of zeros. The zeros are in 1024 members.
inline std::string gzip_bomb(const std::string& begin) {
  const auto zeros = gzip_of(std::string(size_t{1} << 20, '\0'));
  auto bomb = gzip_of(begin);
  for (int i = 0; i < 1024; ++i) bomb += zeros;
  return bomb;
}

// Checks that `read` throws c10::ValueError, with the path, for `bytes` without their last byte, without their last two bytes and
// so on.
template <class Read>
void expect_errors_when_shortened(const std::string& bytes, Read read) {
  const attnbench::TempFolder folder;
  for (size_t size = 0; size < bytes.size(); ++size) {
    SCOPED_TRACE("the first " + std::to_string(size) + " of " + std::to_string(bytes.size()) + " bytes");
    const auto path = folder.write("shortened", bytes.substr(0, size));
    EXPECT_CONTAINS(attnbench::message_of<c10::ValueError>([&] { read(path); }), path + ": byte ");
  }
}

}  // namespace experiments
