// The commands of `attnbench`. Each function declares the options of one command and returns the function that runs the command.
// The latter takes the worker program that the command line names, returns an exit code (exit_codes.h), and throws UsageError,
// WorkerError or Interrupted.
#pragma once

#include <functional>

#include "harness/cli/command_line.h"
#include "harness/process/worker_process.h"

namespace attnbench {

using Run = std::function<int(const WorkerProgram& worker)>;

Run add_list_command(Command& command);
Run add_verify_command(Command& command);
Run add_measure_command(Command& command);
Run add_sweep_command(Command& command);
Run add_train_command(Command& command);
Run add_evaluate_command(Command& command);
Run add_generate_command(Command& command);
Run add_latency_command(Command& command);
Run add_throughput_command(Command& command);
Run add_models_command(Command& command);
Run add_table_command(Command& command);
Run add_plot_command(Command& command);
Run add_report_command(Command& command);
Run add_paper_command(Command& command);
Run add_verdicts_command(Command& command);
Run add_analyse_command(Command& command);
Run add_compare_command(Command& command);
Run add_gate_command(Command& command);
Run add_merge_command(Command& command);
Run add_import_command(Command& command);
Run add_export_command(Command& command);
Run add_history_command(Command& command);
Run add_doctor_command(Command& command);
// `line` must live as long as the returned function, which makes the scripts from it.
Run add_completion_command(Command& command, const CommandLine& line);

}  // namespace attnbench
