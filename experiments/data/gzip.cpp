// Decompresses with zlib a part at a time, and takes no more memory than the contents need.
#include "experiments/data/gzip.h"

#include <c10/util/Exception.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <utility>

#include "experiments/data/file_error.h"

namespace experiments {
namespace {

namespace fs = std::filesystem;

// The number of compressed bytes that are in memory at a time.
constexpr size_t kChunkBytes = size_t{1} << 16;
// The smallest step in which the memory of a result grows.
constexpr size_t kMinGrowthBytes = size_t{1} << 20;

}  // namespace

// The bytes of the file as they are stored.
class ByteReader::File {
 public:
  explicit File(const std::string& path) : path_(path) {
    std::error_code error;
    const auto status = fs::status(path, error);
    TORCH_CHECK_VALUE(fs::exists(status), path, ": there is no such file");
    TORCH_CHECK_VALUE(fs::is_regular_file(status), path, ": not a regular file");
    size_ = fs::file_size(path, error);
    TORCH_CHECK_VALUE(!error, path, ": cannot read the size of the file: ", error.message());
    stream_.open(path, std::ios::binary);
    TORCH_CHECK_VALUE(stream_, path, ": cannot open the file");
  }

  uint64_t size() const { return size_; }

  // Reads `count` bytes, or fewer at the end of the file.
  size_t read(uint8_t* out, size_t count) {
    stream_.read(reinterpret_cast<char*>(out), std::streamsize(count));
    TORCH_CHECK_VALUE(!stream_.bad(), path_, ": cannot read the file");
    return size_t(stream_.gcount());
  }

  void rewind() {
    stream_.clear();
    stream_.seekg(0);
  }

 private:
  std::string path_;
  uint64_t size_ = 0;
  std::ifstream stream_;
};

// Decompresses the members of a gzip file, of which there may be several, one after another.
class ByteReader::Inflater {
 public:
  Inflater(const std::string& path, File& file) : path_(path), file_(file) {
    constexpr int kWindowBits = 15, kGzip = 16;
    TORCH_CHECK(inflateInit2(&stream_, kWindowBits + kGzip) == Z_OK, "zlib cannot start decompressing");
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Returns 1 to `count` bytes, or 0 bytes at the end of the file. `offset` is the position in the uncompressed data.
  size_t read(uint8_t* out, size_t count, uint64_t offset) {
    stream_.next_out = out;
    stream_.avail_out = uInt(std::min(count, kChunkBytes));
    const auto space = stream_.avail_out;
    while (stream_.avail_out == space) {
      if (stream_.avail_in == 0) {
        stream_.next_in = chunk_.data();
        stream_.avail_in = uInt(file_.read(chunk_.data(), chunk_.size()));
        if (stream_.avail_in == 0) {
          if (member_ended_) return 0;
          fail_at(path_, offset, "the end of the compressed file after its byte " + std::to_string(stored_),
                  "the rest of the gzip data");
        }
      }
      if (std::exchange(member_ended_, false)) inflateReset(&stream_);
      const auto before = stream_.avail_in;
      const auto status = inflate(&stream_, Z_NO_FLUSH);
      stored_ += before - stream_.avail_in;
      if (status == Z_STREAM_END) {
        member_ended_ = true;
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        // Z_BUF_ERROR only says that inflate() needs further input.
        fail_at(path_, offset + (space - stream_.avail_out),
                std::string(stream_.msg ? stream_.msg : zError(status)) + " at byte " + std::to_string(stored_) +
                    " of the compressed file",
                "valid gzip data");
      }
    }
    return space - stream_.avail_out;
  }

 private:
  std::string path_;
  File& file_;
  z_stream stream_ = {};
  std::array<uint8_t, kChunkBytes> chunk_;
  uint64_t stored_ = 0;        // the number of compressed bytes that were decompressed
  bool member_ended_ = false;  // whether the last member is complete, so that the file may end here
};

ByteReader::ByteReader(std::string path, uint64_t limit)
    : path_(std::move(path)), limit_(limit), file_(std::make_unique<File>(path_)) {
  std::array<uint8_t, 2> magic = {};
  const auto count = file_->read(magic.data(), magic.size());
  file_->rewind();
  if (count == 2 && magic[0] == 0x1f && magic[1] == 0x8b) inflater_ = std::make_unique<Inflater>(path_, *file_);
}

ByteReader::~ByteReader() = default;

std::optional<uint64_t> ByteReader::plain_size() const {
  if (inflater_) return std::nullopt;
  return file_->size();
}

size_t ByteReader::read_some(uint8_t* out, size_t count) {
  if (count == 0) return 0;
  size_t done = 0;
  if (next_) {
    *out = *next_;
    next_.reset();
    done = 1;
  } else {
    done = inflater_ ? inflater_->read(out, count, offset_) : file_->read(out, count);
  }
  offset_ += done;
  return done;
}

void ByteReader::read(uint8_t* out, size_t count, const std::string& what) {
  if (count > limit_ - std::min(limit_, offset_))
    fail_at(path_, limit_, "more data", "at most " + std::to_string(limit_) + " bytes");
  const auto end = offset_ + count;
  while (offset_ < end) {
    const auto done = read_some(out, end - offset_);
    if (done == 0) fail_at(path_, offset_, "the end of the file", what + " up to byte " + std::to_string(end));
    out += done;
  }
}

std::vector<uint8_t> ByteReader::read_bytes(size_t count, const std::string& what) {
  std::vector<uint8_t> bytes;
  // A plain file has at most the bytes that its size says.
  if (const auto size = plain_size(); size && *size >= count) bytes.reserve(count);
  while (bytes.size() < count) {
    const auto before = bytes.size();
    bytes.resize(before + std::min(count - before, std::max(before, kMinGrowthBytes)));
    read(bytes.data() + before, bytes.size() - before, what);
  }
  return bytes;
}

std::vector<uint8_t> ByteReader::read_all(const std::string& what) {
  if (const auto size = plain_size()) {
    if (*size > limit_) {
      fail_at(path_, limit_, "a file of " + std::to_string(*size) + " bytes",
              "at most " + std::to_string(limit_) + " bytes of " + what);
    }
    return read_bytes(size_t(*size - offset_), what);
  }
  std::vector<uint8_t> bytes;
  while (!at_end()) {
    if (offset_ >= limit_) {
      fail_at(path_, limit_, "more data", "at most " + std::to_string(limit_) + " bytes of " + what);
    }
    const auto before = bytes.size();
    bytes.resize(before + size_t(std::min<uint64_t>(limit_ - offset_, std::max(before, kMinGrowthBytes))));
    size_t end = before;
    while (end < bytes.size()) {
      const auto done = read_some(bytes.data() + end, bytes.size() - end);
      if (done == 0) break;
      end += done;
    }
    bytes.resize(end);
  }
  return bytes;
}

bool ByteReader::at_end() {
  if (next_) return false;
  uint8_t byte = 0;
  if (read_some(&byte, 1) == 0) return true;
  --offset_;
  next_ = byte;
  return false;
}

void ByteReader::expect_end() {
  if (!at_end()) fail_at(path_, offset_, "more data", "the end of the file");
}

void write_bytes(const std::string& path, std::span<const uint8_t> bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
  file.close();
  TORCH_CHECK_VALUE(file, path, ": cannot write the file");
}

}  // namespace experiments
