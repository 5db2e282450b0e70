#include "harness/records/result_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "harness/process/interrupts.h"
#include "harness/schema/schema.h"
#include "harness/text/csv.h"
#include "harness/text/errors.h"
#include "harness/text/text_file.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxLogBytes = size_t{1} << 30;
constexpr size_t kMaxEnvironmentBytes = size_t{16} << 20;
constexpr size_t kMaxProcesses = 1000;  // with more, the exact tests of `compare` would take minutes
constexpr size_t kMaxSchemaBytes = size_t{16} << 20;

struct Log {
  std::vector<Record> records;
  std::unordered_map<std::string, size_t> index;  // of each record by its key
  size_t complete_bytes = 0;                      // length up to the end of the last line that has a line end
};

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

// Adds the record, in place of an earlier one of the same case.
void put(std::vector<Record>& records, std::unordered_map<std::string, size_t>& index, Record record) {
  const auto [at, fresh] = index.emplace(record.key(), records.size());
  if (fresh) records.push_back(std::move(record));
  else records[at->second] = std::move(record);
}

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
      put(log.records, log.index, std::move(record));
    } catch (const JsonError& error) {
      if (incomplete) return log;
      throw UsageError(fmt::format("{}:{}:{}: not a record: {}", path, number, error.position, error.what()));
    } catch (const std::exception& error) {
      if (incomplete) return log;
      throw UsageError(fmt::format("{}:{}: not a record: {}", path, number, error_text(error)));
    }
    log.complete_bytes = begin = end + 1;
  }
  return log;
}

void write_all(int file, const std::string& text, const std::string& path) {
  for (size_t done = 0; done < text.size();) {
    const auto count = write(file, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_on(path, "write");
    done += size_t(count);
  }
}

// Writes numbers as JSON does, and text as csv_text() does.
std::string csv_cell(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? csv_text(value.get<std::string>()) : value.dump();
}

std::string joined(const std::string& folder, const char* name) { return (fs::path(folder) / name).string(); }

}  // namespace

std::vector<Record> read_records(const std::string& folder_or_file) {
  const auto path = fs::is_directory(folder_or_file) ? joined(folder_or_file, "records.jsonl") : folder_or_file;
  if (!fs::exists(path)) throw UsageError(fmt::format("{}: no such file, expected records of a sweep", path));
  return parse_log(path).records;
}

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw UsageError(fmt::format("{}: cannot make the folder: {}", path, error.message()));
}

void replace_file(const std::string& folder, const std::string& name, const std::string& text) {
  const auto path = joined(folder, name.c_str()), temporary = path + ".new";
  try {
    FileDescriptor file;
    unlink(temporary.c_str());  // A killed run may have left such a file.
    file.open(temporary, O_WRONLY | O_CREAT | O_EXCL);
    write_all(file, text, path);
    // After a power cut there must be the old contents or the new ones, so the new ones are on disk before the name is theirs.
    if (fsync(file) != 0 && errno != EINVAL) fail_on(path, "write");
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) fail_on(path, "replace");
  // The new name is on disk once the folder is. Some file systems cannot sync folders; then there is nothing more to do.
  FileDescriptor containing;
  containing.open(folder, O_RDONLY | O_DIRECTORY, FileDescriptor::Links::followed);
  fsync(containing);
}

ResultFolder::ResultFolder(std::string path) : path_(std::move(path)) {
  make_folder(path_);
  const auto lock_path = joined(path_, ".lock");
  lock_.open(lock_path, O_RDWR | O_CREAT);
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    std::array<char, 32> holder{};
    const auto count = read(lock_, holder.data(), holder.size() - 1);
    throw UsageError(fmt::format("{}: in use by process {}", path_, count > 0 ? holder.data() : "unknown"));
  }
  if (ftruncate(lock_, 0) != 0) fail_on(lock_path, "write");
  write_all(lock_, std::to_string(getpid()), lock_path);

  const auto log_path = joined(path_, "records.jsonl");
  log_.open(log_path, O_RDWR | O_CREAT | O_APPEND);
  auto log = parse_log(log_path);
  if (ftruncate(log_, off_t(log.complete_bytes)) != 0) fail_on(log_path, "remove the incomplete last line");
  records_ = std::move(log.records);
  index_ = std::move(log.index);
}

const Record* ResultFolder::find(const std::string& key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &records_[found->second];
}

void ResultFolder::check_log_is_in_place() const {
  const auto path = joined(path_, "records.jsonl");
  struct stat opened {};
  struct stat named {};
  if (fstat(log_, &opened) == 0 && stat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
      opened.st_ino == named.st_ino)
    return;
  throw UsageError(fmt::format("{}: the file was removed, moved or replaced while this program was writing to it", path));
}

void ResultFolder::append(const Record& record) {
  const auto path = joined(path_, "records.jsonl");
  const auto before = lseek(log_, 0, SEEK_END);
  try {
    write_all(log_, record.to_json().dump(-1, ' ', false, Json::error_handler_t::replace) + "\n", path);
    if (fdatasync(log_) != 0 && errno != EINVAL) fail_on(path, "write");
  } catch (const UsageError&) {
    // Half a line may have been written before the disk was full. If it cannot be cut off now, the next reader leaves it out.
    if (before >= 0) static_cast<void>(!ftruncate(log_, before));
    throw;
  }
  check_log_is_in_place();
  put(records_, index_, record);
}

void ResultFolder::set_aside() {
  const auto path = joined(path_, "records.jsonl"), previous = joined(path_, "records.previous.jsonl");
  if (rename(path.c_str(), previous.c_str()) != 0) fail_on(path, "set aside");
  log_.open(path, O_RDWR | O_CREAT | O_APPEND);
  records_.clear();
  index_.clear();
}

Json ResultFolder::environment() const { return read_environment(path_); }

Json read_environment(const std::string& folder) {
  const auto path = joined(folder, "environment.json");
  if (!fs::exists(path)) return nullptr;
  return parse_environment(path, read_text_file(path, kMaxEnvironmentBytes));
}

Json parse_environment(const std::string& path, std::string_view text) {
  const auto refuse = [&](const std::string& what) {
    return UsageError(fmt::format("{}: {}; remove the file, since every record also says how it was measured", path, what));
  };
  Json json;
  try {
    json = parse_json(text);
  } catch (const JsonError& error) {
    throw refuse(fmt::format("not JSON: {}", error.what()));
  }
  if (!json.is_object()) throw refuse("not a JSON object");
  for (const auto* part : {"environment", "settings"})
    if (json.contains(part) && !json[part].is_object()) throw refuse(fmt::format("{} is not a JSON object", part));
  return json;
}

void ResultFolder::write_environment(const Json& environment) {
  replace_file(path_, "environment.json", environment.dump(2) + "\n");
}

void ResultFolder::write_schema(const Json& diagnostics) const {
  const auto text = schema_json(diagnostics).dump(2) + "\n";
  const auto path = joined(path_, kSchemaFile);
  if (!fs::exists(path) || read_text_file(path, kMaxSchemaBytes) != text) replace_file(path_, kSchemaFile, text);
}

void ResultFolder::write_csv() const {
  check_log_is_in_place();
  replace_file(path_, "records.csv", records_csv(records_));
}

std::string provenance_differences(const Json& there, const Json& here, ComparedNames compared) {
  const auto value_of = [](const Json& provenance, const char* part, const std::string& name) {
    return provenance.contains(part) && provenance[part].contains(name) ? provenance[part][name] : Json();
  };
  std::string text;
  for (const auto* part : {"environment", "settings"}) {
    std::set<std::string> names;
    for (const auto* side : {&here, &there})
      if (side->contains(part) && (side == &here || compared == ComparedNames::both))
        for (const auto& [name, value] : (*side)[part].items()) names.insert(name);
    for (const auto& name : names) {
      const auto value_there = value_of(there, part, name), value_here = value_of(here, part, name);
      if (value_there != value_here)
        text += fmt::format("\n  {}: {} there, {} here", name, value_there.dump(), value_here.dump());
    }
  }
  return text;
}

std::string record_differences(const Json& provenance, const std::vector<Record>& records) {
  for (const auto& record : records) {
    if (record.has("external_source")) continue;
    std::string text;
    for (const auto* part : {"environment", "settings"}) {
      if (!provenance.contains(part)) continue;
      for (const auto& [name, value] : provenance[part].items()) {
        // A setting of 0 stands for a default that the record may have replaced by its value, such as the available memory.
        const bool is_default = value.is_number() && value.get<double>() == 0;
        if (is_default || value.is_null() || !find_column(name) || !record.has(name)) continue;
        if (record.get(name) != value)
          text += fmt::format("\n  {}: {} expected, {} in a record", name, value.dump(), record.get(name).dump());
      }
    }
    if (!text.empty()) return text;
  }
  return "";
}

std::string records_csv(const std::vector<Record>& records) {
  std::vector<const Record*> all;
  for (const auto& record : records) all.push_back(&record);
  auto columns = table_columns(all);
  std::erase_if(columns, [](const Column& column) { return column.type == ColumnType::numbers; });
  std::vector<std::string> cells;
  for (const auto& column : columns) cells.push_back(csv_text(column.name));
  auto csv = csv_row(cells);
  for (const auto* record : all) {
    cells.clear();
    for (const auto& column : columns) cells.push_back(csv_cell(record->get(column.name)));
    csv += csv_row(cells);
  }
  return csv;
}

}  // namespace attnbench
