// attnbench: the driver. Reads sweeps, starts workers, keeps records; links no LibTorch.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/process/interrupts.h"
#include "harness/process/worker_process.h"
#include "harness/text/errors.h"
#include "harness/text/nearest.h"

namespace {

// The command or option that there is none of, with the nearest there is.
std::optional<std::string> unknown_word(const CLI::App& app, int argc, char** argv) {
  using attnbench::suggestion;
  const auto chosen = app.get_subcommands();
  std::vector<std::string> known;
  if (chosen.empty() && argv[1][0] != '-') {
    for (const auto* command : app.get_subcommands([](const CLI::App*) { return true; })) known.push_back(command->get_name());
    return fmt::format("unknown command '{}'{}", argv[1], suggestion(argv[1], known));
  }
  for (const auto* level : {&app, chosen.empty() ? &app : static_cast<const CLI::App*>(chosen.front())})
    for (const auto* option : level->get_options()) known.push_back(option->get_name());
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], name = word.substr(0, word.find('='));
    if (name.starts_with("--") && std::find(known.begin(), known.end(), name) == known.end())
      return fmt::format("unknown option '{}'{}", name, suggestion(name, known));
  }
  return std::nullopt;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace attnbench;
  CLI::App app("Measures how attention methods scale: time and memory against sequence length, checked before timed.",
               "attnbench");
  app.require_subcommand(1);
  app.fallthrough();
  auto worker = worker_beside_this_program();
  app.add_option("--worker", worker.path, "worker program; by default attnbench-worker beside this one");
  struct Entry {
    const char* name;
    const char* description;
    Run (*add)(CLI::App&);
  };
  const Entry entries[] = {
      {"list", "methods, sweeps, or columns of a record", add_list_command},
      {"verify", "agreement of methods with the float64 reference", add_verify_command},
      {"measure", "one case", add_measure_command},
      {"sweep", "every case of a sweep file, into a folder of records", add_sweep_command},
      {"table", "a folder of records as a table", add_table_command},
      {"analyse", "what a folder of records says together: growth, crossovers, what fits in memory", add_analyse_command},
      {"compare", "two folders of records side by side, with a verdict", add_compare_command},
      {"gate", "whether this build is slower than another: pass, regression, inconclusive or unusable", add_gate_command},
      {"merge", "folders of records of one sweep, such as its shards, as one", add_merge_command},
      {"import", "times measured elsewhere, as records beside ours", add_import_command},
      {"doctor", "this machine and build, with measured ceilings", add_doctor_command},
  };
  std::vector<std::pair<CLI::App*, Run>> commands;
  for (const auto& entry : entries) {
    auto* const command = app.add_subcommand(entry.name, entry.description);
    commands.emplace_back(command, entry.add(*command));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    if (argc < 2) fmt::print(stderr, "{}", app.help());
    else if (const auto unknown = unknown_word(app, argc, argv)) fmt::print(stderr, "attnbench: {}\n", *unknown);
    else app.exit(error);
    return exit_code::usage;
  }
  try {
    catch_interrupts();
    for (const auto& [command, run] : commands) {
      if (!command->parsed()) continue;
      const int code = run(worker);
      if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
        throw UsageError(fmt::format("standard output: cannot write: {}", std::strerror(errno)));
      return code;
    }
  } catch (const Interrupted& interrupted) {
    return exit_code::interrupted(interrupted.signal);
  } catch (const std::exception& error) {
    fmt::print(stderr, "attnbench: {}\n", error.what());
    return exit_code::usage;
  }
  return exit_code::usage;
}
