// Reads the lines of a file by several threads, and appends lines that are synced to the disk.
#include "harness/records/json_lines.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <filesystem>
#include <future>
#include <optional>
#include <span>
#include <string_view>
#include <thread>

#include "harness/files/replace_file.h"
#include "harness/files/text_file.h"
#include "harness/process/interrupts.h"
#include "harness/text/errors.h"

namespace attnbench {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 30;
// The lines that are read between two looks for Ctrl-C. Files with fewer lines than kLinesOfThread are read by one thread.
constexpr size_t kLinesAtOnce = 4096, kLinesOfThread = 128;

// The lines of the text that have a line end.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string_view::npos; begin = end + 1)
    lines.push_back(text.substr(begin, end - begin));
  return lines;
}

// A line that is malformed, or that the reader refuses.
struct RefusedLine {
  size_t index;
  std::exception_ptr error;
};

// Reads the lines with the indices from `begin` to `end` - 1, and returns the first that is refused. Reading takes most of the
// time of commands that need many records, so threads share the lines.
std::optional<RefusedLine> read_range(std::span<const std::string_view> lines, size_t begin, size_t end,
                                      const LineReader& reader) {
  const auto read = [&](size_t from, size_t to) -> std::optional<RefusedLine> {
    for (size_t i = from; i < to; ++i) try {
        reader.read(i, parse_json(lines[i]));
      } catch (...) {
        return RefusedLine{i, std::current_exception()};
      }
    return std::nullopt;
  };
  const auto count = end - begin;
  const auto threads = std::clamp<size_t>(count / kLinesOfThread, 1, std::max(1U, std::thread::hardware_concurrency()));
  std::vector<std::future<std::optional<RefusedLine>>> others;
  for (size_t t = 1; t < threads; ++t)
    others.push_back(std::async(std::launch::async, read, begin + count * t / threads, begin + count * (t + 1) / threads));
  auto first = read(begin, begin + count / threads);
  for (auto& other : others) {
    const auto refused = other.get();
    if (!first) first = refused;
  }
  return first;
}

}  // namespace

size_t read_json_lines(const std::string& path, const std::string& what, const LineReader& reader) {
  const auto text = read_text_file(path, kMaxFileBytes);
  // The writer of a last line without a line end was killed. What the line would have said is done again.
  const auto lines = lines_of(text);
  reader.begin(lines.size());
  for (size_t begin = 0; begin < lines.size(); begin += kLinesAtOnce) {
    throw_if_interrupted();
    const auto refused = read_range(lines, begin, std::min(begin + kLinesAtOnce, lines.size()), reader);
    if (!refused) continue;
    try {
      std::rethrow_exception(refused->error);
    } catch (const JsonError& error) {
      const auto column = error.position > 0 ? fmt::format(":{}", error.position) : "";
      throw UsageError(fmt::format("{}:{}{}: not {}: {}", path, refused->index + 1, column, what, error.what()));
    } catch (const std::exception& error) {
      throw UsageError(fmt::format("{}:{}: not {}: {}", path, refused->index + 1, what, error_text(error)));
    }
  }
  return lines.empty() ? 0 : size_t(lines.back().data() + lines.back().size() - text.data()) + 1;
}

JsonLines::JsonLines(const std::string& folder, const std::string& name, const std::string& what, const LineReader& reader)
    : folder_(folder), name_(name), path_((std::filesystem::path(folder) / name).string()) {
  open();
  const auto complete_bytes = read_json_lines(path_, what, reader);
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
