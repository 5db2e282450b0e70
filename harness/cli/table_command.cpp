#include <memory>

#include "harness/cli/answers.h"
#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/record_charts.h"
#include "harness/cli/record_table.h"
#include "harness/cli/shared_options.h"
#include "harness/records/result_folder.h"

namespace attnbench {

Run add_table_command(Command& command) {
  struct Options {
    std::string folder;
    Format format = Format::text;
    std::vector<std::string> columns;
    Rows rows = Rows::without_skipped;
    Charts charts = Charts::on_terminals;
  };
  const auto options = std::make_shared<Options>();
  add_records_argument(command, "folder", options->folder);
  command.add("--columns", &options->columns, "columns to show instead of the summary; `attnbench list columns` lists them",
              {.placeholder = "COLUMNS", .separator = ','});
  command.add(
      "--all", [options] { options->rows = Rows::all; }, "also show a row for each skipped case");
  add_format_option(command, options->format);
  add_former_format_flag(command, options->format, Format::json);
  add_charts_option(command, options->charts);
  command.add_example("table results/figure1/*/",
                      "says which method is faster, and shows time, memory, error and outcome of every case that ran");
  command.add_example("table /tmp/short --columns method,query_len,time_median_ms --format csv", "prints three columns as CSV");
  return [options](const WorkerProgram&) {
    check_charts(options->charts, options->format == Format::text && options->columns.empty());
    const auto records = read_records(options->folder);
    if (!options->columns.empty() && options->format != Format::json)
      print_table(column_table(records, options->columns), options->format);
    else if (options->format == Format::text) {
      print_answers(speed_answers(records));
      print_records_beside_charts(records, options->rows, options->charts);
    } else print_records(records, options->format, options->rows);
    return exit_code::success;
  };
}

}  // namespace attnbench
