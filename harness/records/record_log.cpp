// Reads records strictly, and refuses those that the statistics could not use.
#include "harness/records/record_log.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace attnbench {
namespace {

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

Record record_of(Json line) {
  auto record = Record::parse(std::move(line));
  check_usable(record);
  return record;
}

constexpr auto kRecord = "a record";

}  // namespace

std::vector<Record> read_log(const std::string& path) {
  std::vector<Record> lines;
  read_json_lines(path, kRecord, reader_into(lines, record_of));
  return lines;
}

RecordLog::RecordLog(const std::string& folder, const std::string& name)
    : file_(folder, name, kRecord, reader_into(lines_, record_of)) {}

void RecordLog::append(const Record& record) {
  file_.append(record.to_json());
  lines_.push_back(record);
}

void RecordLog::rewrite(std::vector<Record> lines) {
  std::string text;
  for (const auto& line : lines) text += JsonLines::text_of(line.to_json());
  file_.rewrite(text);
  lines_ = std::move(lines);
}

void RecordLog::set_aside(const std::string& name) {
  file_.set_aside(name);
  lines_.clear();
}

}  // namespace attnbench
