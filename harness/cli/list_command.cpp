// `attnbench list`: prints methods, sweeps, columns and other things that this build knows.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/shared_options.h"
#include "harness/cli/terminal.h"
#include "harness/experiments/settings_file.h"
#include "harness/files/known_files.h"
#include "harness/schema/model_shapes.h"
#include "harness/schema/schema.h"
#include "harness/sweep/catalogue.h"
#include "harness/sweep/sweep_file.h"
#include "harness/text/errors.h"
#include "harness/text/nearest.h"

namespace attnbench {
namespace {

std::vector<std::string> listed_things() { return {"methods", "sweeps", "trainings", "shapes", "columns", "keys", "schema"}; }

void list_methods(const WorkerProgram& worker, Format format) {
  const auto catalogue = Catalogue::load(worker);
  if (format == Format::json) return print_json(catalogue.methods());
  TextTable table({"method", "time", "memory", "causal", "decoding", "options", "description"},
                  {.answers = {"method", "time", "description"}, .left_out_first = {"options", "decoding", "memory", "causal"}});
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
  if (format != Format::text || !is_terminal(stdout)) return;
  print_text("\n");
  print_paragraph("`attnbench list METHOD` shows one of them in full, with its options.");
}

std::string joined(const Json& texts) { return fmt::format("{}", fmt::join(texts.get<std::vector<std::string>>(), ", ")); }

// What an option takes, its default and its meaning.
std::string option_text(const Json& option) {
  auto text = fmt::format("{}, default {}", option.at("type").get<std::string>(), plain_text(option.at("default")));
  if (!option.at("choices").empty()) text += ", one of " + joined(option.at("choices"));
  if (!option.at("min").is_null()) text += fmt::format(", {} to {}", option.at("min").dump(), option.at("max").dump());
  return text + "; " + option.at("description").get<std::string>();
}

void list_method(const Json& method, Format format) {
  if (format == Format::json) return print_json(method);
  Sheet sheet;
  const auto add_text = [&](const char* group, const std::string& name, const char* key) {
    if (const auto value = method.at(key).get<std::string>(); !value.empty()) sheet.push_back({group, name, value});
  };
  add_text("method", "name", "name");
  add_text("method", "description", "description");
  add_text("growth with the length N", "time", "time_order");
  add_text("growth with the length N", "memory", "memory_order");
  add_text("growth with the length N", "time of a decoding step", "decode_time_order");
  add_text("growth with the length N", "memory of a decoding step", "decode_memory_order");
  for (const auto& [name, value] : method.at("capabilities").items()) {
    auto words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    sheet.push_back({"capabilities", words,
                     value.is_boolean() ? (value.get<bool>() ? "yes" : "no")
                     : value.is_array() ? joined(value)
                                        : plain_text(value)});
  }
  for (const auto& option : method.at("options"))
    sheet.push_back({"options", option.at("name").get<std::string>(), option_text(option)});
  if (const auto kernels = method.find("built_kernels"); kernels != method.end() && !kernels->empty())
    sheet.push_back({"options", "CPU kernels of this build", joined(*kernels)});
  for (const auto& diagnostic : method.at("diagnostics"))
    sheet.push_back({"diagnostics in its records", diagnostic.at("name").get<std::string>(),
                     diagnostic.at("description").get<std::string>()});
  print_sheet(sheet, format);
  if (format != Format::text || method.at("options").empty()) return;
  const auto& option = method.at("options").front();
  print_text("\n");
  print_paragraph(fmt::format("Options follow the name: `attnbench measure {}:{}={}`.", method.at("name").get<std::string>(),
                              option.at("name").get<std::string>(), plain_text(option.at("default"))));
}

// Lists the method of this name, which is none of `others`.
void list_method_named(const WorkerProgram& worker, const std::string& name, std::vector<std::string> others, Format format) {
  const auto catalogue = Catalogue::load(worker);
  for (const auto& method : catalogue.methods())
    if (method.at("name") == name) return list_method(method, format);
  const auto methods = catalogue.names();
  others.insert(others.end(), methods.begin(), methods.end());
  throw UsageError(fmt::format("cannot list '{}'{}", name, suggestion(name, others)));
}

// Prints a list of objects: as JSON all of each, in other formats the members with the headers of these columns. A header that an
// object does not have stands for its name.
void print_list(const Json& all, const std::vector<TableColumn>& columns, TableChoices choices, Format format) {
  if (format == Format::json) return print_json(all);
  TextTable table(columns, std::move(choices));
  for (const auto& item : all) {
    std::vector<std::string> row;
    for (const auto& column : columns) row.push_back(plain_text(item.at(item.contains(column.header) ? column.header : "name")));
    table.add_row(std::move(row));
  }
  print_table(table, format);
}

void list_columns(const WorkerProgram& worker, Format format) {
  print_list(columns_json(Catalogue::load(worker).diagnostics()), {"column", "type", "unit", "group", "description"},
             {.answers = {"column", "unit", "description"}, .left_out_first = {"group", "type"}}, format);
}

void list_schema(const WorkerProgram& worker) { print_json(schema_json(Catalogue::load(worker).diagnostics())); }

void list_sweeps(const WorkerProgram& worker, Format format) {
  const auto catalogue = Catalogue::load(worker);
  auto all = Json::array();
  for (const auto& file : known_files(kSweeps)) {
    const auto with = with_plugins_of(file.string(), worker);
    const SweepFile sweep(file.string(), with == worker ? catalogue : Catalogue::load(with));
    all.push_back(
        {{"name", sweep.stem()}, {"file", file.string()}, {"cases", sweep.cases().size()}, {"description", sweep.description()}});
  }
  print_list(all, {"sweep", right("cases"), "file", "description"},
             {.answers = {"sweep", "description"}, .left_out_first = {"file"}}, format);
}

void list_shapes(Format format) {
  auto all = Json::array();
  for (const auto& shape : model_shapes()) {
    Json json = {{"name", shape.name}};
    for (const auto& [axis, value] : axes_of(shape)) json[std::string(axis)] = value;
    json.update({{"description", shape.description}, {"source", shape.source}});
    all.push_back(std::move(json));
  }
  std::vector<TableColumn> columns = {"shape"};
  for (const auto& [axis, value] : axes_of(model_shapes().front()))
    columns.push_back(value.is_number() ? right(std::string(axis)) : std::string(axis));
  columns.insert(columns.end(), {"description", "source"});
  print_list(all, columns,
             {.answers = {"shape", "heads", "kv_heads", "head_dim", "pattern"}, .left_out_first = {"source", "description"}},
             format);
}

void list_keys(Format format) {
  auto keys = sweep_keys();
  if (format != Format::json)  // a table shows a default as the file would hold it
    for (auto& key : keys)
      if (auto& value = key["default"]; !value.is_null()) value = value.dump();
  print_list(keys, {"key", "table", "type", "unit", "default", "description"},
             {.answers = {"key", "table", "description"}, .left_out_first = {"unit", "type", "default"}}, format);
}

void list_trainings(const WorkerProgram& worker, Format format) {
  const auto catalogue = Catalogue::load(worker);
  auto all = Json::array();
  for (const auto& path : known_files(kTrainings)) {
    const TrainingFile file(path.string(), catalogue);
    all.push_back(
        {{"name", file.stem()}, {"file", path.string()}, {"models", file.items().size()}, {"description", file.description()}});
  }
  print_list(all, {"training", right("models"), "file", "description"},
             {.answers = {"training", "description"}, .left_out_first = {"file"}}, format);
}

}  // namespace

Run add_list_command(Command& command) {
  struct ListOptions {
    std::string what = "methods";
    Format format = Format::text;
  };
  const auto options = std::make_shared<ListOptions>();
  command.add("what", &options->what,
              "what to list, or the name of a method, which is shown in full; `keys` are those of a sweep file; `schema` prints "
              "the content of schema.json, which is written "
              "beside records, and always as JSON",
              {.choices = listed_things(), .takes_others = true});
  add_format_option(command, options->format);
  command.add_example("list", "shows the attention methods and their options");
  command.add_example("list linear", "shows a method in full: its options, what it can do, and how it grows");
  command.add_example("list columns --format csv", "prints the columns of a record, with units and descriptions, as CSV");
  return [options](const WorkerProgram& worker) {
    if (options->what == "methods") list_methods(worker, options->format);
    else if (options->what == "shapes") list_shapes(options->format);
    else if (options->what == "columns") list_columns(worker, options->format);
    else if (options->what == "schema") list_schema(worker);
    else if (options->what == "keys") list_keys(options->format);
    else if (options->what == "trainings") list_trainings(worker, options->format);
    else if (options->what == "sweeps") list_sweeps(worker, options->format);
    else list_method_named(worker, options->what, listed_things(), options->format);
    return exit_code::success;
  };
}

}  // namespace attnbench
