// The commands of `attnbench`. Each adds its options to the command line and returns the function that runs it when it was
// chosen. That function is given the worker program that the command line names, returns the exit code, and throws UsageError
// or Interrupted.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "harness/process/worker_process.h"

namespace attnbench {

using Run = std::function<int(const WorkerProgram& worker)>;

Run add_list_command(CLI::App& command);
Run add_verify_command(CLI::App& command);
Run add_measure_command(CLI::App& command);
Run add_sweep_command(CLI::App& command);
Run add_table_command(CLI::App& command);
Run add_analyse_command(CLI::App& command);
Run add_compare_command(CLI::App& command);
Run add_gate_command(CLI::App& command);
Run add_merge_command(CLI::App& command);
Run add_import_command(CLI::App& command);
Run add_doctor_command(CLI::App& command);

}  // namespace attnbench
