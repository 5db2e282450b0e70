// attnbench, the driver: reads sweeps, starts workers and writes records. It links no LibTorch.
#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/cli/command_line.h"
#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/version.h"
#include "harness/process/interrupts.h"
#include "harness/process/standard_streams.h"
#include "harness/process/torch_location.h"
#include "harness/process/worker_process.h"
#include "harness/text/errors.h"
#include "harness/text/notice.h"

namespace {

using namespace attnbench;

struct CommandEntry {
  const char* name;
  const char* description;
  Run (*add)(Command&);
  bool takes_plugins = false;
};
constexpr CommandEntry kCommands[] = {
    {"list", "list the methods, the sweeps, or the columns of a record", add_list_command, /*takes_plugins=*/true},
    {"verify", "compare values, gradients and decoding of methods with their float64 reference", add_verify_command,
     /*takes_plugins=*/true},
    {"measure", "measure one case", add_measure_command, /*takes_plugins=*/true},
    {"sweep", "measure every case of a sweep file and record each in a folder", add_sweep_command, /*takes_plugins=*/true},
    {"train", "train models on the paper's tasks and record their curves", add_train_command},
    {"evaluate", "validate the models of trainings that have ended", add_evaluate_command},
    {"generate", "generate images with trained models", add_generate_command},
    {"latency", "measure how long models take to generate one image, on the CPU and the GPU", add_latency_command},
    {"throughput", "measure how many images per second models generate", add_throughput_command},
    {"models", "measure small models of transformers, alone and with the operators of this project", add_models_command},
    {"table", "show a folder of records as a table", add_table_command},
    {"plot", "draw a folder of records or of trainings", add_plot_command},
    {"report", "write a page of HTML about folders of records, trainings or images", add_report_command},
    {"paper", "draw a figure of the paper, or print one of its tables with our numbers", add_paper_command},
    {"verdicts", "show the paper's numbers beside those measured here, and which of its claims hold here", add_verdicts_command},
    {"analyse", "show how time and memory grow with the length, where methods cross over, and what fits in memory",
     add_analyse_command},
    {"compare", "compare two folders of records case by case, or the methods of one folder with a baseline", add_compare_command},
    {"gate", "decide whether a build is slower or needs more memory than another", add_gate_command, /*takes_plugins=*/true},
    {"merge", "join folders of records of one sweep, such as its shards", add_merge_command, /*takes_plugins=*/true},
    {"import", "add times that were measured elsewhere", add_import_command},
    {"export", "write folders of records in a format that other tools read", add_export_command},
    {"history", "keep what each commit measured, and draw where it changed", add_history_command},
    {"doctor", "show this machine and this build, and measure the max bandwidth and arithmetic rate", add_doctor_command},
};

std::string exit_codes_text() {
  std::string text = "\nExit codes:\n";
  for (const auto& [code, meaning] : exit_code::meanings) text += fmt::format("  {:<6}{}\n", code, meaning);
  return text + fmt::format("  {:<6}ended by a signal: {} after SIGINT, {} after SIGTERM, {} where nobody reads the output\n",
                            "128+n", exit_code::interrupted(SIGINT), exit_code::interrupted(SIGTERM),
                            exit_code::interrupted(SIGPIPE));
}

std::string help_text(const CommandLine& line, const Command* command) {
  return line.help(command) + (command ? "" : exit_codes_text());
}

// Adds the command `help`. `line` must live as long as the returned function.
Run add_help_command(Command& command, const CommandLine& line) {
  const auto name = std::make_shared<std::string>();
  command.add("command", name.get(), "command that the help is about", {.completion = Completion::commands});
  command.add_example("help measure", "shows the arguments and options of a command, as `attnbench measure --help` does");
  return [name, &line](const WorkerProgram&) {
    fmt::print("{}", help_text(line, name->empty() ? nullptr : &line.find_command(*name)));
    return exit_code::success;
  };
}

// Writes out what is still in the buffer of standard output, and returns `code`. Throws UsageError if any output could not be
// written.
int flushed(int code) {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw UsageError(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
  return code;
}

int run(int argc, char** argv) {
  CommandLine line("attnbench",
                   "Measures how attention methods scale: time and memory against the sequence length. Each method is compared "
                   "with a float64 reference before it is timed.");
  auto worker = worker_beside_this_program();
  bool version = false;
  std::vector<std::string> plugins;
  line.program().add(
      "--worker", &worker.path, "worker program to start",
      {.placeholder = "FILE", .default_text = "attnbench-worker beside this program", .completion = Completion::files});
  const char* const torch_variable = std::getenv("ATTNBENCH_TORCH");
  std::string torch = torch_variable ? torch_variable : "";
  line.program().add("--torch", &torch, "folder of the torch whose LibTorch the worker loads, such as …/site-packages/torch",
                     {.placeholder = "FOLDER",
                      .default_text = "the environment variable ATTNBENCH_TORCH, or the torch that it was built with",
                      .completion = Completion::files});
  line.program().add("--version", &version, "print the version, the revision and the build, and exit");
  line.program().add_example("sweep quickstart", "measures softmax and linear attention over a range of lengths");
  line.program().add_example("measure --help", "shows the arguments and options of a command");
  std::vector<std::pair<const Command*, Run>> commands;
  for (const auto& entry : kCommands) {
    auto& command = line.add_command(entry.name, entry.description);
    commands.emplace_back(&command, entry.add(command));
    if (entry.takes_plugins)
      command.add("--plugin", &plugins, "shared library with methods of your own",
                  {.placeholder = "FILE", .completion = Completion::files});
  }
  auto& help_command = line.add_command("help", "print the help of attnbench or of one of its commands");
  commands.emplace_back(&help_command, add_help_command(help_command, line));
  auto& completion = line.add_command("completion", "print a script that lets bash or zsh complete command lines");
  commands.emplace_back(&completion, add_completion_command(completion, line));

  const auto [chosen, help] = line.parse(argc, argv);
  if (help) {
    fmt::print("{}", help_text(line, chosen));
    return flushed(exit_code::success);
  }
  if (version) {
    fmt::print("{}", version_text());
    return flushed(exit_code::success);
  }
  if (!torch.empty()) use_torch_in(torch);
  worker = with_plugins(std::move(worker), plugins);
  catch_interrupts();
  for (const auto& [command, run_command] : commands)
    if (command == chosen) return flushed(run_command(worker));
  print_notice(help_text(line, nullptr));
  return exit_code::usage;
}

}  // namespace

int main(int argc, char** argv) {
  reserve_standard_descriptors();
  try {
    return run(argc, argv);
  } catch (const Interrupted& interrupted) {
    return exit_code::interrupted(interrupted.signal);
  } catch (const WorkerError& error) {
    print_error(error);
    return exit_code::failure;
  } catch (const StaleFolderError& error) {
    print_error(error);
    return exit_code::stale;
  } catch (const std::exception& error) {
    // Whoever closes the pipe that a command prints into, such as `head`, has seen enough.
    if (std::ferror(stdout) != 0 && stdout_has_no_reader()) end_without_reader();
    print_error(error);
    return exit_code::usage;
  }
}
