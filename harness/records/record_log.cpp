#include "harness/records/record_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "harness/process/interrupts.h"
#include "harness/records/replace_file.h"
#include "harness/text/errors.h"
#include "harness/text/text_file.h"

namespace attnbench {
namespace {

constexpr size_t kMaxLogBytes = size_t{1} << 30;
constexpr size_t kMaxProcesses = 1000;  // with more, the exact tests of `compare` would take minutes

// Throws std::invalid_argument for a record that lacks an axis or the outcome, and for a measured one whose times cannot be used:
// statistics compare and rank them, and take their logarithms.
void check_usable(const Record& record) {
  if (!record.has("outcome")) throw std::invalid_argument("it has no outcome");
  for (const auto& field : fields())
    if (field.role == FieldRole::axis && !record.has(field.name))
      throw std::invalid_argument(fmt::format("it has no {}", field.name));
  if (!record.measured()) return;
  const bool may_lack_time = record.has("external_source") && !record.has("time_median_ms");
  if (!may_lack_time && !(record.number("time_median_ms") > 0))
    throw std::invalid_argument(
        fmt::format("it is measured and time_median_ms = {}, expected a number above 0", record.get("time_median_ms").dump()));
  for (const auto* times : {"time_samples_ms", "process_medians_ms"}) {
    const auto& list = record.get(times);
    for (size_t i = 0; i < list.size(); ++i)
      if (!list[i].is_number() || !(list[i].get<double>() > 0))
        throw std::invalid_argument(fmt::format("{}[{}] = {}, expected a number above 0", times, i, list[i].dump()));
  }
  if (const auto processes = record.get("process_medians_ms").size(); processes > kMaxProcesses)
    throw std::invalid_argument(fmt::format("process_medians_ms has {} values, expected at most {}", processes, kMaxProcesses));
}

struct Log {
  std::vector<Record> lines;
  size_t complete_bytes = 0;  // length up to the end of the last line that has a line end
};

Log parse_log(const std::string& path) {
  const auto text = read_text_file(path, kMaxLogBytes);
  Log log;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    throw_if_interrupted();
    ++number;
    auto end = text.find('\n', begin);
    const bool incomplete = end == std::string::npos;
    if (incomplete) end = text.size();
    try {
      auto record = Record::parse(parse_json(std::string_view(text).substr(begin, end - begin)));
      check_usable(record);
      if (incomplete) return log;  // The writer was killed before it wrote the line end. The case is run again.
      log.lines.push_back(std::move(record));
    } catch (const JsonError& error) {
      if (incomplete) return log;
      const auto column = error.position > 0 ? fmt::format(":{}", error.position) : "";
      throw UsageError(fmt::format("{}:{}{}: not a record: {}", path, number, column, error.what()));
    } catch (const std::exception& error) {
      if (incomplete) return log;
      throw UsageError(fmt::format("{}:{}: not a record: {}", path, number, error_text(error)));
    }
    log.complete_bytes = begin = end + 1;
  }
  return log;
}

std::string line_of(const Record& record) { return record.to_json().dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

std::vector<Record> read_log(const std::string& path) { return parse_log(path).lines; }

RecordLog::RecordLog(const std::string& folder, const std::string& name)
    : folder_(folder), name_(name), path_((std::filesystem::path(folder) / name).string()) {
  open();
  auto log = parse_log(path_);
  if (ftruncate(file_, off_t(log.complete_bytes)) != 0) fail_on(path_, "remove the incomplete last line");
  lines_ = std::move(log.lines);
}

void RecordLog::open() { file_.open(path_, O_RDWR | O_CREAT | O_APPEND); }

void RecordLog::check_in_place() const {
  struct stat opened {};
  struct stat named {};
  if (fstat(file_, &opened) == 0 && stat(path_.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
      opened.st_ino == named.st_ino)
    return;
  throw UsageError(fmt::format("{}: the file was removed, moved or replaced while this program was writing to it", path_));
}

void RecordLog::append(const Record& record) {
  const auto before = lseek(file_, 0, SEEK_END);
  try {
    write_all(file_, line_of(record), path_);
    if (fdatasync(file_) != 0 && errno != EINVAL) fail_on(path_, "write");
  } catch (const UsageError&) {
    // Half a line may have been written before the disk was full. If it cannot be cut off now, the next reader leaves it out.
    if (before >= 0) static_cast<void>(!ftruncate(file_, before));
    throw;
  }
  check_in_place();
  lines_.push_back(record);
}

void RecordLog::rewrite(std::vector<Record> lines) {
  check_in_place();
  std::string text;
  for (const auto& line : lines) text += line_of(line);
  replace_file(folder_, name_, text);
  open();
  lines_ = std::move(lines);
}

void RecordLog::set_aside(const std::string& name) {
  const auto previous = (std::filesystem::path(folder_) / name).string();
  if (rename(path_.c_str(), previous.c_str()) != 0) fail_on(path_, "set aside");
  open();
  lines_.clear();
}

}  // namespace attnbench
