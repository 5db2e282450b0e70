// The exception for a data file whose contents are wrong, and text for its message.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace experiments {

// Throws c10::ValueError with the message "PATH: byte OFFSET: found FOUND, expected EXPECTED". The offset is counted from 0, and
// in a compressed file it is counted in the uncompressed data.
[[noreturn]] void fail_at(const std::string& path, uint64_t offset, const std::string& found, const std::string& expected);

// The bytes as hexadecimal numbers: "00 00 08 03".
std::string hex_text(std::span<const uint8_t> bytes);

// A text from a file in quotation marks, as it may stand in a message: characters other than printable ASCII become '?', and what
// exceeds 60 characters is replaced by an ellipsis.
std::string quoted_text(std::string_view text);

}  // namespace experiments
