// attnbench: the driver. Reads sweeps, starts workers, keeps records; links no LibTorch.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "harness/driver/commands.h"
#include "harness/driver/errors.h"
#include "harness/driver/worker_process.h"

int main(int argc, char** argv) {
  using namespace attnbench;
  CLI::App app("Measures how attention methods scale: time and memory against sequence length, checked before timed.",
               "attnbench");
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option_function<std::string>("--worker", set_worker_path,
                                       "worker program; by default attnbench-worker beside this one");
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
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
  try {
    catch_interrupts();
    for (const auto& [command, run] : commands)
      if (command->parsed()) return run();
  } catch (const Interrupted& interrupted) {
    return 128 + interrupted.signal;
  } catch (const std::exception& error) {
    fmt::print(stderr, "attnbench: {}\n", error.what());
    return 2;
  }
  return 2;
}
