#include <fmt/format.h>

#include <memory>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/shared_options.h"
#include "harness/experiments/settings_file.h"
#include "harness/schema/schema.h"
#include "harness/sweep/catalogue.h"
#include "harness/sweep/sweep_file.h"
#include "harness/text/known_files.h"

namespace attnbench {
namespace {

void list_methods(const WorkerProgram& worker, Format format) {
  const auto catalogue = Catalogue::load(worker);
  if (format == Format::json) return print_json(catalogue.methods());
  TextTable table;
  for (const auto* header : {"method", "time", "memory", "causal", "decoding", "options", "description"})
    table.add_column(header);
  const auto yes_or_no = [](const Json& flag) { return flag.get<bool>() ? "yes" : "no"; };
  for (const auto& method : catalogue.methods()) {
    const auto& can = method.at("capabilities");
    std::string options;
    for (const auto& option : method.at("options"))
      options +=
          fmt::format("{}{}={}", options.empty() ? "" : ",", option.at("name").get<std::string>(), option.at("default").dump());
    table.add_row({method.at("name"), method.at("time_order"), method.at("memory_order"), yes_or_no(can.at("causal")),
                   yes_or_no(can.at("decoding")), options, method.at("description")});
  }
  print_table(table, format);
}

void list_columns(const WorkerProgram& worker, Format format) {
  const auto all = columns_json(Catalogue::load(worker).diagnostics());
  if (format == Format::json) return print_json(all);
  TextTable table;
  for (const auto* header : {"column", "type", "unit", "group", "description"}) table.add_column(header);
  for (const auto& c : all) table.add_row({c.at("name"), c.at("type"), c.at("unit"), c.at("group"), c.at("description")});
  print_table(table, format);
}

void list_schema(const WorkerProgram& worker) { print_json(schema_json(Catalogue::load(worker).diagnostics())); }

void list_sweeps(const WorkerProgram& worker, Format format) {
  const auto catalogue = Catalogue::load(worker);
  auto all = Json::array();
  TextTable table;
  table.add_column("sweep");
  table.add_column("cases", TextTable::Align::right);
  for (const auto* header : {"file", "description"}) table.add_column(header);
  for (const auto& file : known_files(kSweeps)) {
    const auto with = with_plugins_of(file.string(), worker);
    const SweepFile sweep(file.string(), with == worker ? catalogue : Catalogue::load(with));
    const auto cases = sweep.cases().size();
    all.push_back({{"name", sweep.stem()}, {"file", file.string()}, {"cases", cases}, {"description", sweep.description()}});
    table.add_row({sweep.stem(), std::to_string(cases), file.string(), sweep.description()});
  }
  if (format == Format::json) print_json(all);
  else print_table(table, format);
}

void list_keys(Format format) {
  const auto keys = sweep_keys();
  if (format == Format::json) return print_json(keys);
  TextTable table;
  for (const auto* header : {"key", "table", "type", "unit", "default", "description"}) table.add_column(header);
  for (const auto& key : keys) {
    const auto& value = key.at("default");
    table.add_row({key.at("key"), key.at("table"), key.at("type"), key.at("unit"), value.is_null() ? "" : value.dump(),
                   key.at("description")});
  }
  print_table(table, format);
}

void list_trainings(const WorkerProgram& worker, Format format) {
  const auto catalogue = Catalogue::load(worker);
  auto all = Json::array();
  TextTable table;
  table.add_column("training");
  table.add_column("models", TextTable::Align::right);
  for (const auto* header : {"file", "description"}) table.add_column(header);
  for (const auto& path : known_files(kTrainings)) {
    const TrainingFile file(path.string(), catalogue);
    const auto models = file.items().size();
    all.push_back({{"name", file.stem()}, {"file", path.string()}, {"models", models}, {"description", file.description()}});
    table.add_row({file.stem(), std::to_string(models), path.string(), file.description()});
  }
  if (format == Format::json) print_json(all);
  else print_table(table, format);
}

}  // namespace

Run add_list_command(Command& command) {
  struct Options {
    std::string what = "methods";
    Format format = Format::text;
  };
  const auto options = std::make_shared<Options>();
  command.add("what", &options->what,
              "what to list; `keys` are those of a sweep file; `schema` prints the content of schema.json, which is written "
              "beside records, and always as JSON",
              {.choices = {"methods", "sweeps", "trainings", "columns", "keys", "schema"}});
  add_format_option(command, options->format);
  add_former_format_flag(command, options->format, Format::json);
  command.add_example("list", "shows the attention methods and their options");
  command.add_example("list columns --format csv", "prints the columns of a record, with units and descriptions, as CSV");
  return [options](const WorkerProgram& worker) {
    if (options->what == "methods") list_methods(worker, options->format);
    else if (options->what == "columns") list_columns(worker, options->format);
    else if (options->what == "schema") list_schema(worker);
    else if (options->what == "keys") list_keys(options->format);
    else if (options->what == "trainings") list_trainings(worker, options->format);
    else list_sweeps(worker, options->format);
    return exit_code::success;
  };
}

}  // namespace attnbench
