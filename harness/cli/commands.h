// The commands of `attnbench`. Each adds itself to the command line and runs when it was chosen; run() returns the exit
// code and throws UsageError or Interrupted.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace attnbench {

using Run = std::function<int()>;

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
