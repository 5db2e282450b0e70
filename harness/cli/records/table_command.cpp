// `attnbench table`: prints the records of a folder as a table, with charts beside it on a terminal.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/rendering/answers.h"
#include "harness/cli/rendering/record_charts.h"
#include "harness/cli/rendering/record_table.h"
#include "harness/cli/shared_options.h"
#include "harness/records/record_folders.h"

namespace attnbench {

namespace {

struct TableOptions {
  std::string folder;
  Format format = Format::text;
  std::vector<std::string> columns;
  Rows rows = Rows::without_skipped;
  Charts charts = Charts::on_terminals;
};

std::vector<Record> in_order_of_rows(const std::vector<Record>& records) {
  std::vector<const Record*> all;
  for (const auto& record : records) all.push_back(&record);
  std::vector<Record> ordered;
  for (const auto i : order_of_rows(all)) ordered.push_back(records[i]);
  return ordered;
}

void print(const TableOptions& options, const std::vector<Record>& records) {
  if (!options.columns.empty() && options.format != Format::json)
    print_table(column_table(options.format == Format::csv ? records : in_order_of_rows(records), options.columns),
                options.format);
  else if (options.format == Format::text) {
    print_answers(speed_answers(records));
    print_records_beside_charts(records, options.rows, options.charts);
  } else print_records(records, options.format, options.rows);
}

}  // namespace

Run add_table_command(Command& command) {
  const auto options = std::make_shared<TableOptions>();
  command.add(
      "folder", &options->folder,
      "folder that holds records.jsonl, the path of such a file, or a folder that contains such folders, which get a table "
      "each",
      {.required = true, .completion = Completion::files});
  command.add("--columns", &options->columns, "columns to show instead of the summary; `attnbench list columns` lists them",
              {.placeholder = "COLUMNS", .separator = ','});
  command.add(
      "--all", [options] { options->rows = Rows::all; }, "also show a row for each skipped case");
  add_format_option(command, options->format);
  add_charts_option(command, options->charts);
  command.add_example("table results/figure1",
                      "says which method is faster, and shows time, memory, error and outcome of every case that ran");
  command.add_example("table /tmp/short --columns method,query_len,time_median_ms --format csv", "prints three columns as CSV");
  return [options](const WorkerProgram&) {
    check_charts(options->charts, options->format == Format::text && options->columns.empty());
    const auto folders = record_folders(options->folder);
    if (folders.size() == 1 || options->format == Format::csv || options->format == Format::json) {
      std::vector<Record> records;
      for (const auto& folder : folders)
        for (auto& record : read_records(folder)) records.push_back(std::move(record));
      print(*options, records);
      return exit_code::success;
    }
    std::vector<std::vector<Record>> records;
    for (const auto& folder : folders) records.push_back(read_records(folder));  // all, before anything is printed
    for (size_t i = 0; i < folders.size(); ++i) {
      const auto heading =
          options->format == Format::markdown ? fmt::format("**{}**\n\n", markdown_text(folders[i])) : folders[i] + ":\n";
      print_text((i == 0 ? "" : "\n") + heading);
      print(*options, records[i]);
    }
    return exit_code::success;
  };
}

}  // namespace attnbench
