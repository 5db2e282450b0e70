#include <fmt/format.h>

#include <memory>

#include "harness/cli/commands.h"
#include "harness/cli/record_table.h"
#include "harness/cli/shared_options.h"
#include "harness/records/result_folder.h"

namespace attnbench {

Run add_table_command(CLI::App& command) {
  struct Options {
    std::string folder;
    TableFormat format = TableFormat::text;
    std::vector<std::string> columns;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  command.add_option("folder", options->folder, "folder with records.jsonl, or such a file itself")->required();
  add_format_option(command, options->format);
  command
      .add_option("--columns", options->columns, "stored columns to show instead of the summary, such as method,time_median_ms")
      ->delimiter(',');
  command.add_flag("--json", options->json, "print the records as a JSON array");
  return [options](const WorkerProgram&) {
    const auto records = read_records(options->folder);
    if (options->json) {
      auto all = Json::array();
      for (const auto& record : records) all.push_back(record.to_json());
      fmt::print("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
    } else if (!options->columns.empty()) {
      fmt::print("{}", column_table(records, options->columns).render(options->format));
    } else if (options->format == TableFormat::csv) {
      fmt::print("{}", records_csv(records));
    } else {
      fmt::print("{}", summary_table(records).render(options->format));
    }
    return 0;
  };
}

}  // namespace attnbench
