// `attnbench import`: makes records from the rows of a CSV file, and adds them to a folder.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/shared_options.h"
#include "harness/files/csv_file.h"
#include "harness/records/result_folder.h"
#include "harness/sweep/catalogue.h"
#include "harness/text/csv.h"
#include "harness/text/errors.h"
#include "harness/text/nearest.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

struct ImportOptions {
  std::string file, out, source;
  bool quiet = false;
};

// The columns that the CSV file may have: axes, results, and where they come from.
std::vector<std::string> known_columns() {
  std::vector<std::string> known = {
      "time_median_ms", "time_ci_low_ms", "time_ci_high_ms", "peak_extra_bytes", "peak_allocated_bytes", "implementation", "gpu",
      "cpu_model",      "external_source"};
  for (auto& name : axis_names()) known.push_back(std::move(name));
  return known;
}

Json value_of(const Column& column, const std::string& cell) {
  if (column.type == ColumnType::text) return cell;
  const auto value = csv_number(cell);
  if (!value || !(*value >= 0) || *value > 1e18)
    throw std::invalid_argument(fmt::format("{} = '{}', expected a number of at least 0", column.name, cell));
  if (column.unit == "ms" && *value == 0)
    throw std::invalid_argument(fmt::format("{} = 0, expected a time above 0", column.name));
  return column.type == ColumnType::integer ? Json(int64_t(*value)) : Json(*value);
}

// Makes a record of one row. Throws std::invalid_argument, which says what is wrong with the row.
Record record_of(const std::vector<std::string>& cells, const std::vector<std::string>& header, const std::string& source) {
  if (cells.size() != header.size())
    throw std::invalid_argument(
        fmt::format("{}, expected {} as in the first row", count_of(cells.size(), "cell"), header.size()));
  Case c;
  for (size_t i = 0; i < header.size(); ++i)
    if (!cells[i].empty() && find_axis(header[i])) set_text(c, *find_axis(header[i]), cells[i]);
  if (c.method.empty()) throw std::invalid_argument("the row has no method");
  c.complete();
  Record record(c);
  for (const auto& field : fields())
    if (field.role == FieldRole::setting) record.set(field.name, nullptr);
  record.set("outcome", outcome::measured);
  if (!source.empty()) record.set("external_source", source);
  for (size_t i = 0; i < header.size(); ++i)
    if (!cells[i].empty() && !find_axis(header[i])) record.set(header[i], value_of(*find_column(header[i]), cells[i]));
  if (!record.has("external_source"))
    throw std::invalid_argument(
        "the row does not say where it was measured; give the file a column external_source, or the command --source");
  if (!record.has("time_median_ms") && !record.has("peak_extra_bytes") && !record.has("peak_allocated_bytes"))
    throw std::invalid_argument("the row has none of time_median_ms, peak_extra_bytes and peak_allocated_bytes");
  if (record.has("time_median_ms")) record.set("time_per_sample_ms", record.number("time_median_ms") / double(c.batch));
  if (record.has("peak_extra_bytes"))
    record.set("peak_extra_bytes_per_sample", record.number("peak_extra_bytes") / double(c.batch));
  return record;
}

int run_import(const ImportOptions& options, const WorkerProgram& worker) {
  const auto rows = read_csv(options.file);
  if (rows.size() < 2) throw UsageError(fmt::format("{}: expected a row of column names and rows below it", options.file));
  const auto fail = [&](size_t row, const std::string& message) {
    throw UsageError(fmt::format("{}:{}: {}", options.file, rows[row].line, message));
  };
  const auto& header = rows[0].cells;
  const auto known = known_columns();
  for (const auto& name : header) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail(0, fmt::format("unknown column '{}'{}", name, suggestion(name, known)));
    if (std::count(header.begin(), header.end(), name) > 1) fail(0, fmt::format("column '{}' appears more than once", name));
  }
  // Every row is checked before anything is written.
  std::vector<Record> records;
  std::unordered_map<std::string, size_t> lines;
  for (size_t i = 1; i < rows.size(); ++i) {
    try {
      records.push_back(record_of(rows[i].cells, header, options.source));
    } catch (const std::invalid_argument& error) {
      fail(i, error.what());
    }
    const auto [before, is_new] = lines.emplace(records.back().key(), rows[i].line);
    if (!is_new) fail(i, fmt::format("the row is the same case as line {}", before->second));
  }
  const auto diagnostics = Catalogue::load(worker).diagnostics();
  ResultFolder folder(options.out);
  for (size_t i = 0; i < records.size(); ++i)
    if (const auto* own = folder.find(records[i].key()); own && !own->has("external_source"))
      fail(i + 1,
           fmt::format("attnbench itself measured the record of this case in {}; give the external one another method name",
                       options.out));
  for (const auto& record : records) folder.append(record);
  folder.write_schema(diagnostics);
  folder.write_csv();
  if (!options.quiet) print_text(fmt::format("{}: {}\n", options.out, count_of(records.size(), "external record")));
  return exit_code::success;
}

}  // namespace

Run add_import_command(Command& command) {
  const auto options = std::make_shared<ImportOptions>();
  command.add("file", &options->file, "CSV file whose first row names its columns: axes, time_median_ms, peak_extra_bytes, ...",
              {.required = true, .completion = Completion::files});
  command.add("--out", &options->out, "folder to add the records to",
              {.placeholder = "FOLDER", .required = true, .completion = Completion::files});
  command.add("--source", &options->source, "where the times were measured, unless the file has a column external_source",
              {.placeholder = "TEXT"});
  add_quiet_option(command, options->quiet, "print no summary");
  command.add_example("import theirs.csv --out results/figure1/theirs --source \"their paper, table 2\"",
                      "adds published times, which tables and figures mark as external");
  return [options](const WorkerProgram& worker) { return run_import(*options, worker); };
}

}  // namespace attnbench
