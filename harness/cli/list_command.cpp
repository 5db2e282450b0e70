#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "harness/cli/commands.h"
#include "harness/schema/schema.h"
#include "harness/sweep/catalogue.h"
#include "harness/sweep/sweep_file.h"
#include "harness/text/errors.h"
#include "harness/text/text_table.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

void list_methods(const WorkerProgram& worker, bool json) {
  const auto catalogue = Catalogue::load(worker);
  if (json) return fmt::print("{}\n", catalogue.methods().dump(2));
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
  fmt::print("{}", table.render());
}

void list_columns(const WorkerProgram& worker, bool json) {
  const auto all = columns_json(Catalogue::load(worker).diagnostics());
  if (json) return fmt::print("{}\n", all.dump(2));
  TextTable table;
  for (const auto* header : {"column", "type", "unit", "group", "description"}) table.add_column(header);
  for (const auto& c : all) table.add_row({c.at("name"), c.at("type"), c.at("unit"), c.at("group"), c.at("description")});
  fmt::print("{}", table.render());
}

void list_schema(const WorkerProgram& worker) { fmt::print("{}\n", schema_json(Catalogue::load(worker).diagnostics()).dump(2)); }

// Sweeps of the folder `sweeps` here, or beside the build folder.
fs::path sweeps_folder() {
  if (fs::is_directory("sweeps")) return "sweeps";
  return fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "sweeps";
}

void list_sweeps(const WorkerProgram& worker, bool json) {
  const auto folder = sweeps_folder();
  if (!fs::is_directory(folder)) throw UsageError(fmt::format("{}: no such folder, expected sweep files in it", folder.string()));
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".toml") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  const auto catalogue = Catalogue::load(worker);
  auto all = Json::array();
  TextTable table;
  table.add_column("sweep");
  table.add_column("cases", TextTable::Align::right);
  table.add_column("description");
  for (const auto& file : files) {
    const SweepFile sweep(file.string(), catalogue);
    const auto cases = sweep.cases().size();
    all.push_back({{"name", sweep.stem()}, {"file", file.string()}, {"cases", cases}, {"description", sweep.description()}});
    table.add_row({file.string(), std::to_string(cases), sweep.description()});
  }
  if (json) fmt::print("{}\n", all.dump(2));
  else fmt::print("{}", table.render());
}

}  // namespace

Run add_list_command(CLI::App& command) {
  struct Options {
    std::string what = "methods";
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  command.add_option("what", options->what, "methods, sweeps, columns, or schema (schema.json as it is written beside records)")
      ->check(CLI::IsMember({"methods", "sweeps", "columns", "schema"}));
  command.add_flag("--json", options->json, "as JSON");
  return [options](const WorkerProgram& worker) {
    if (options->what == "methods") list_methods(worker, options->json);
    else if (options->what == "columns") list_columns(worker, options->json);
    else if (options->what == "schema") list_schema(worker);
    else list_sweeps(worker, options->json);
    return 0;
  };
}

}  // namespace attnbench
