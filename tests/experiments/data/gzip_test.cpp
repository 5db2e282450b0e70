// Tests of the reading of plain and compressed files.
#include "experiments/data/gzip.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/experiments/data/data_files.h"
#include "tests/support/address_space_limit.h"

namespace experiments {
namespace {

using attnbench::AddressSpaceLimit;
using attnbench::message_of;
using attnbench::TempFolder;

constexpr uint64_t kNoLimit = uint64_t{1} << 40;

std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

std::string all_of(const std::string& path, uint64_t limit = kNoLimit) {
  ByteReader reader(path, limit);
  auto text = text_of(reader.read_all("text"));
  EXPECT_TRUE(reader.at_end());
  return text;
}

// Text that gzip cannot compress to nothing, longer than the pieces in which files are read.
std::string long_text() {
  std::string text;
  for (uint32_t i = 0, x = 1; i < 3'000'000; ++i, x = x * 1664525 + 1013904223) text += char(x >> 24);
  return text;
}

TEST(Gzip, PlainAndCompressedFilesGiveTheSameBytes) {
  const TempFolder folder;
  for (const auto& text : {std::string(), std::string("a"), std::string("\x1f"), std::string("some text"), long_text()}) {
    write_bytes(folder.path("plain.gz"), bytes_of(text));  // The name does not matter.
    write_bytes(folder.path("compressed"), bytes_of(text), Compression::gzip);
    EXPECT_EQ(folder.read("plain.gz"), text);
    EXPECT_NE(folder.read("compressed"), text);
    EXPECT_EQ(all_of(folder.path("plain.gz")), text);
    EXPECT_EQ(all_of(folder.path("compressed")), text);
  }
}

TEST(Gzip, ReadsPiecesAndKnowsItsPosition) {
  const TempFolder folder;
  for (const auto compression : {Compression::none, Compression::gzip}) {
    const auto path = folder.path("file");
    write_bytes(path, bytes_of("0123456789"), compression);
    ByteReader reader(path, 10);
    EXPECT_EQ(reader.plain_size().has_value(), compression == Compression::none);
    EXPECT_EQ(text_of(reader.read_bytes(3, "digits")), "012");
    EXPECT_EQ(reader.offset(), 3U);
    EXPECT_FALSE(reader.at_end());
    EXPECT_EQ(reader.offset(), 3U);
    EXPECT_EQ(text_of(reader.read_bytes(6, "digits")), "345678");
    EXPECT_EQ(reader.offset(), 9U);
    EXPECT_CONTAINS(message_of<c10::ValueError>([&] { reader.expect_end(); }),
                    ": byte 9: found more data, expected the end of the file");
    EXPECT_EQ(text_of(reader.read_all("digits")), "9");
    EXPECT_TRUE(reader.at_end());
    reader.expect_end();
  }
}

TEST(Gzip, ReadsAllMembersOfAFile) {
  const TempFolder folder;
  const auto path = folder.write("members", gzip_of("one ") + gzip_of("") + gzip_of("two"));
  EXPECT_EQ(all_of(path), "one two");
}

TEST(Gzip, RefusesToReadBeyondTheLimit) {
  const TempFolder folder;
  for (const auto compression : {Compression::none, Compression::gzip}) {
    const auto path = folder.path("file");
    write_bytes(path, bytes_of("0123456789"), compression);
    EXPECT_EQ(all_of(path, 10), "0123456789");
    EXPECT_CONTAINS(message_of<c10::ValueError>([&] { all_of(path, 9); }), path + ": byte 9: found ");
    ByteReader reader(path, 4);
    EXPECT_CONTAINS(message_of<c10::ValueError>([&] { reader.read_bytes(5, "digits"); }),
                    path + ": byte 4: found more data, expected at most 4 bytes");
    EXPECT_EQ(text_of(reader.read_bytes(4, "digits")), "0123");
    EXPECT_CONTAINS(message_of<c10::ValueError>([&] { reader.read_bytes(1, "digits"); }), "at most 4 bytes");
    reader.set_limit(10);
    EXPECT_EQ(text_of(reader.read_bytes(6, "digits")), "456789");
  }
}

TEST(Gzip, NamesTheEndOfAFileThatIsTooShort) {
  const TempFolder folder;
  for (const auto compression : {Compression::none, Compression::gzip}) {
    const auto path = folder.path("file");
    write_bytes(path, bytes_of("0123"), compression);
    ByteReader reader(path, kNoLimit);
    EXPECT_CONTAINS(message_of<c10::ValueError>([&] { reader.read_bytes(5, "digits"); }),
                    path + ": byte 4: found the end of the file, expected digits up to byte 5");
  }
}

TEST(Gzip, RefusesEveryShortenedCompressedFile) {
  const auto whole = gzip_of("some text that is compressed, some text that is compressed");
  const TempFolder folder;
  for (size_t size = 2; size < whole.size(); ++size) {
    SCOPED_TRACE(size);
    const auto path = folder.write("shortened", whole.substr(0, size));
    EXPECT_CONTAINS(
        message_of<c10::ValueError>([&] { all_of(path); }),
        "found the end of the compressed file after its byte " + std::to_string(size) + ", expected the rest of the gzip data");
  }
  // Less than the two bytes of the magic number is a plain file.
  EXPECT_EQ(all_of(folder.write("shortened", whole.substr(0, 1))), whole.substr(0, 1));
}

TEST(Gzip, RefusesACompressedFileWithAnyBitChanged) {
  const std::string text = "some text that is compressed, some text that is compressed";
  const auto whole = gzip_of(text);
  const TempFolder folder;
  size_t refused = 0;
  // The first bytes are the magic number. Bytes 4 to 9 hold the time and the system, which may have any value.
  for (size_t i = 10; i < whole.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      auto changed = whole;
      changed[i] = char(changed[i] ^ (1 << bit));
      const auto path = folder.write("changed", changed);
      try {
        // Bits that deflate ignores, such as the padding of its last byte, leave the text as it is.
        EXPECT_EQ(all_of(path), text) << "byte " << i << ", bit " << bit;
      } catch (const c10::ValueError& error) {
        EXPECT_CONTAINS(error.what(), path + ": byte ");
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 8 * (whole.size() - 10) * 9 / 10);
}

TEST(Gzip, RefusesDataAfterTheLastMember) {
  const TempFolder folder;
  const auto path = folder.write("trailing", gzip_of("text") + "more");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { all_of(path); }), path + ": byte 4: found incorrect header check at byte ");
}

TEST(Gzip, NamesAFileThatIsMissingOrNotRegular) {
  const TempFolder folder;
  const auto missing = folder.path("missing");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { ByteReader(missing, 1); }), missing + ": there is no such file");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { ByteReader(folder.path(), 1); }), folder.path() + ": not a regular file");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { ByteReader("/dev/zero", 1); }), "/dev/zero: not a regular file");
}

TEST(Gzip, NamesAFileThatCannotBeWritten) {
  const TempFolder folder;
  const auto path = folder.path("missing/file");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { write_bytes(path, bytes_of("text")); }), path + ": cannot ");
}

TEST(Gzip, ALargeFileIsRefusedWithLittleMemory) {
  const TempFolder folder;
  const auto bomb = folder.write("bomb", gzip_bomb(""));
  constexpr uint64_t kLimit = 4 << 20;
  const AddressSpaceLimit limit(uint64_t{64} << 20);
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { all_of(bomb, kLimit); }), bomb + ": byte 4194304: found more data");
  // The size that a header states costs nothing unless the file has as much.
  const auto small = folder.write("small", gzip_of("text"));
  ByteReader reader(small, kNoLimit);
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { reader.read_bytes(kNoLimit, "bytes"); }),
                  small + ": byte 4: found the end of the file");
}

TEST(Gzip, TheAddressSpaceLimitOfTheseTestsRefusesLargeAllocations) {
  if (!AddressSpaceLimit::kLimits) GTEST_SKIP() << "the sanitizer has an allocator of its own";
  const AddressSpaceLimit limit(uint64_t{64} << 20);
  EXPECT_ANY_THROW(at::empty({int64_t{1} << 30}, at::kByte));
  EXPECT_NO_THROW(at::empty({int64_t{1} << 24}, at::kByte));
}

}  // namespace
}  // namespace experiments
