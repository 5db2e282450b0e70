// ByteReader: reads a file that is plain or compressed with gzip (RFC 1952) as one stream of uncompressed bytes.
//
//   ByteReader reader("train-images-idx3-ubyte.gz", 16);  // the header has 16 bytes
//   reader.read(header, 16, "the header of an IDX file");
//   reader.set_limit(16 + count);                         // the header says how many bytes follow
//   const auto pixels = reader.read_bytes(count, "the pixels");
//   reader.expect_end();
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace experiments {

class ByteReader {
 public:
  // Opens the file. It is compressed if its first two bytes are 1f 8b, whatever its name is. No more than `limit` uncompressed
  // bytes can be read, so that a small compressed file cannot fill the memory. Throws c10::ValueError, with the path, if the file
  // cannot be opened or is not a regular file.
  ByteReader(std::string path, uint64_t limit);
  ~ByteReader();
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;

  const std::string& path() const { return path_; }
  // The number of uncompressed bytes that were read so far.
  uint64_t offset() const { return offset_; }
  // The size of a plain file in bytes; nothing for a compressed file, whose uncompressed size is known only at its end.
  std::optional<uint64_t> plain_size() const;

  // Sets the largest number of uncompressed bytes, counted from the beginning of the file.
  void set_limit(uint64_t limit) { limit_ = limit; }

  // The functions below throw c10::ValueError if the file ends too early, exceeds the limit, cannot be read, or is not valid gzip
  // data. The message names the path, the offset, what was found and what was expected. `what` describes the bytes in it.

  // Reads `count` bytes into `out`.
  void read(uint8_t* out, size_t count, const std::string& what);
  // Reads `count` bytes. The memory grows with the bytes that the file really has, and is at most three times their number.
  std::vector<uint8_t> read_bytes(size_t count, const std::string& what);
  // Reads all bytes up to the end of the file.
  std::vector<uint8_t> read_all(const std::string& what);
  // Whether all bytes were read. For a compressed file this also checks the checksum at its end.
  bool at_end();
  // Throws unless all bytes were read.
  void expect_end();

 private:
  class File;
  class Inflater;

  // Reads 1 to `count` bytes, or 0 bytes at the end of the file.
  size_t read_some(uint8_t* out, size_t count);

  std::string path_;
  uint64_t limit_;
  uint64_t offset_ = 0;
  std::optional<uint8_t> next_;  // the byte at offset_ if at_end() has read it already
  std::unique_ptr<File> file_;
  std::unique_ptr<Inflater> inflater_;  // null for a plain file
};

// Writes a file, and replaces one that exists. Throws c10::ValueError, with the path, if the file cannot be written.
void write_bytes(const std::string& path, std::span<const uint8_t> bytes);

}  // namespace experiments
