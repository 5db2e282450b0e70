#include "harness/records/json_lines.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>

#include "harness/process/interrupts.h"
#include "harness/records/replace_file.h"
#include "harness/text/errors.h"
#include "harness/text/text_file.h"

namespace attnbench {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 30;

}  // namespace

size_t read_json_lines(const std::string& path, const std::string& what, const ReadLine& read) {
  const auto text = read_text_file(path, kMaxFileBytes);
  size_t number = 0, complete_bytes = 0;
  for (size_t begin = 0; begin < text.size();) {
    throw_if_interrupted();
    ++number;
    const auto end = text.find('\n', begin);
    // The writer was killed before it wrote the line end. What the line would have said is done again.
    if (end == std::string::npos) break;
    try {
      read(parse_json(std::string_view(text).substr(begin, end - begin)));
    } catch (const JsonError& error) {
      const auto column = error.position > 0 ? fmt::format(":{}", error.position) : "";
      throw UsageError(fmt::format("{}:{}{}: not {}: {}", path, number, column, what, error.what()));
    } catch (const std::exception& error) {
      throw UsageError(fmt::format("{}:{}: not {}: {}", path, number, what, error_text(error)));
    }
    complete_bytes = begin = end + 1;
  }
  return complete_bytes;
}

JsonLines::JsonLines(const std::string& folder, const std::string& name, const std::string& what, const ReadLine& read)
    : folder_(folder), name_(name), path_((std::filesystem::path(folder) / name).string()) {
  open();
  const auto complete_bytes = read_json_lines(path_, what, read);
  if (ftruncate(file_, off_t(complete_bytes)) != 0) fail_on(path_, "remove the incomplete last line");
}

void JsonLines::open() { file_.open(path_, O_RDWR | O_CREAT | O_APPEND); }

void JsonLines::check_in_place() const {
  struct stat opened {};
  struct stat named {};
  if (fstat(file_, &opened) == 0 && stat(path_.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
      opened.st_ino == named.st_ino)
    return;
  throw UsageError(fmt::format("{}: the file was removed, moved or replaced while this program was writing to it", path_));
}

void JsonLines::append(const Json& line) {
  const auto before = lseek(file_, 0, SEEK_END);
  try {
    write_all(file_, text_of(line), path_);
    if (fdatasync(file_) != 0 && errno != EINVAL) fail_on(path_, "write");
  } catch (const UsageError&) {
    // Half a line may have been written before the disk was full. If it cannot be cut off now, the next reader leaves it out.
    if (before >= 0) static_cast<void>(!ftruncate(file_, before));
    throw;
  }
  check_in_place();
}

void JsonLines::rewrite(const std::string& lines) {
  check_in_place();
  replace_file(folder_, name_, lines);
  open();
}

void JsonLines::rewrite(const std::vector<Json>& lines) {
  std::string text;
  for (const auto& line : lines) text += text_of(line);
  rewrite(text);
}

void JsonLines::set_aside(const std::string& name) {
  const auto previous = (std::filesystem::path(folder_) / name).string();
  if (rename(path_.c_str(), previous.c_str()) != 0) fail_on(path_, "set aside");
  open();
}

std::string JsonLines::text_of(const Json& line) { return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace attnbench
