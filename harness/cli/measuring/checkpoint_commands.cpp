// `attnbench evaluate` and `attnbench generate`, which use the checkpoints of trainings that have ended.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/plot_scripts.h"
#include "harness/cli/shared_options.h"
#include "harness/cli/terminal.h"
#include "harness/experiments/generation_run.h"
#include "harness/experiments/training_run.h"
#include "harness/files/known_files.h"
#include "harness/records/folder_lock.h"
#include "harness/records/folder_names.h"
#include "harness/sweep/case_plans.h"
#include "harness/sweep/case_runner.h"
#include "harness/text/errors.h"
#include "harness/text/json_numbers.h"
#include "harness/text/notice.h"
#include "harness/text/safe_text.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

constexpr double kDeadlineS = 24 * 3600.0;

struct CheckpointOptions {
  std::string folder, data, sampler = "as-likelihood";
  int samples = 64, completions = 8;
  std::uint64_t seed = 0;
  Format format = Format::text;
  bool quiet = false;
};

// The folder that the user means: a path, or the folder that `attnbench train NAME` writes to on this machine. Throws UsageError
// if there is no such folder.
std::string folder_of(const WorkerProgram& worker, const std::string& given) {
  if (fs::is_directory(given) || given.find('/') != std::string::npos) return given;
  return default_folder("training", fs::path(find_file(kTrainings, given)).stem().string(), ask_environment(worker));
}

// The lines of the trainings of a folder that have ended and have a checkpoint. Throws UsageError if there is none.
std::vector<Json> ended_trainings(const std::string& folder) {
  std::vector<Json> found;
  for (const auto& line : read_trainings(folder))
    if (fs::exists(checkpoint_of(folder, training_of(line)))) found.push_back(line);
  if (found.empty())
    throw UsageError(
        fmt::format("{}: no training that has ended has a checkpoint; run `attnbench train` with --out {}", folder, folder));
  return found;
}

// Asks attnbench-experiments. Throws UsageError with its message if it refuses, and WorkerError if it breaks.
Json ask(const std::string& command, const Json& request) {
  const auto answer = run_worker(experiments_beside_this_program(), command, request, kDeadlineS);
  if (const auto fault = fault_of(answer, 1); !fault.empty()) throw WorkerError(fault);
  const auto& line = answer.lines.front();
  if (line.value("kind", "") == "error") throw UsageError(line.at("message").get<std::string>());
  return line;
}

int run_evaluate(const WorkerProgram& worker, CheckpointOptions options) {
  options.folder = folder_of(worker, options.folder);
  std::vector<Json> results;
  StatusLine status(stderr, options.quiet);
  for (const auto& line : ended_trainings(options.folder)) {
    status.show(safe_text(title_of(training_of(line))));
    results.push_back(
        ask("evaluate", {{"checkpoint", checkpoint_of(options.folder, training_of(line))}, {"data", options.data}}));
  }
  status.show("");
  if (options.format == Format::json) {
    print_json(Json(results));
    return exit_code::success;
  }
  TextTable table({"task", "method", right("seed"), right("update"), right("loss"), right("accuracy"), right("bits/dim"),
                   right("phone errors"), right("by chance")},
                  {.answers = {"method", "loss", "accuracy", "bits/dim", "phone errors", "by chance"}, .kept = {"task", "seed"}});
  for (auto& line : results)
    table.add_row(
        {line.value("task", ""), line.value("method", ""), line.at("seed").dump(), line.at("update").dump(),
         number_text(number_in(line, "validation_loss"), "{:.4g}"), number_text(number_in(line, "validation_accuracy"), "{:.4g}"),
         number_text(number_in(line, "bits_per_dim"), "{:.4g}"), number_text(number_in(line, "phone_error_rate"), "{:.4g}"),
         number_text(number_in(line, "chance_error_rate"), "{:.4g}")});
  print_table(table, options.format);
  return exit_code::success;
}

// The record of the speed with which a batch of images was generated.
Json speed_of(const Training& training, const Json& answer) {
  Generation generation;
  generation.dataset = fs::path(training.data).filename().string();
  generation.method = training.method;
  generation.batch = answer.at("generated").get<int64_t>();
  generation.length = answer.at("generated_bytes").get<int64_t>();  // of one image, but the first byte
  generation.processes = 1;
  generation.device = training.device;
  generation.threads = training.threads;
  generation.layers = training.layers;
  generation.heads = training.heads;
  generation.head_dim = training.head_dim;
  auto record = to_json(generation);
  record.update({{"schema_version", kSchemaVersion},
                 {"process", 1},
                 {"outcome", outcome::measured},
                 {"implementation", answer.at("implementation")},
                 {"finished_at", now_utc()},
                 {"weights", "trained"},
                 {"batch_s", answer.at("generation_s")},
                 {"s_per_image", 1 / answer.at("images_per_s").get<double>()},
                 {"images_per_s", answer.at("images_per_s")},
                 {"extrapolated", false},
                 {"batches", 1}});
  return record;
}

int run_generate(const WorkerProgram& worker, CheckpointOptions options) {
  options.folder = folder_of(worker, options.folder);
  const auto trainings = ended_trainings(options.folder);
  const FolderLock lock(options.folder);
  std::vector<Json> answers, records;
  StatusLine status(stderr, options.quiet);
  for (const auto& line : trainings) {
    const auto training = training_of(line);
    if (training.task != "images")
      throw UsageError(fmt::format("{}: it is of the task {}, expected images", options.folder, training.task));
    status.show(safe_text(title_of(training_of(line))));
    auto name = method_in_file_names(training.method, trainings);
    if (training.seed != trainings.front().value("seed", int64_t{0})) name += fmt::format("-seed-{}", training.seed);
    const auto file = [&](const char* kind) {
      return (fs::path(options.folder) / fmt::format("{}-{}.npy", kind, name)).string();
    };
    const auto answer = ask("generate", {{"checkpoint", checkpoint_of(options.folder, training)},
                                         {"data", options.data},
                                         {"samples", options.samples},
                                         {"completions", options.completions},
                                         {"seed", options.seed},
                                         {"sampler", options.sampler},
                                         {"threads", training.threads},
                                         {"samples_file", file("samples")},
                                         {"completions_file", file("completions")}});
    if (options.samples > 0) records.push_back(speed_of(training, answer));
    answers.push_back(answer);
  }
  status.show("");
  if (options.samples > 0) {
    // Lines that are there are replaced, so they go nowhere.
    const LineReader ignored = {[](size_t) {}, [](size_t, const Json&) {}};
    JsonLines log(options.folder, kGenerationsFile, "a record of a generation", ignored);
    log.rewrite(records);
  }
  if (options.format == Format::json) {
    print_json(Json(answers));
    return exit_code::success;
  }
  TextTable table({"method", right("seed"), right("images"), right("time"), right("images/s"), "implementation"});
  for (auto& line : answers)
    table.add_row({line.value("method", ""), line.at("seed").dump(), number_text(number_in(line, "generated"), "{:.0f}"),
                   number_text(number_in(line, "generation_s"), "{:.3g} s"),
                   number_text(number_in(line, "images_per_s"), "{:.3g}"), line.value("implementation", "")});
  print_table(table, options.format);
  std::fflush(stdout);  // drawing takes seconds
  const auto drawn = draw_images(options.folder);
  if (!options.quiet) print_notice(drawn + "\n");
  return exit_code::success;
}

std::shared_ptr<CheckpointOptions> add_options(Command& command) {
  const auto options = std::make_shared<CheckpointOptions>();
  command.add(
      "folder", &options->folder,
      "folder of trainings that have ended, with their checkpoints, or the name of a training that wrote to its default folder",
      {.required = true, .completion = Completion::files});
  command.add("--data", &options->data, "folder of other data than the trainings used",
              {.placeholder = "FOLDER", .completion = Completion::files});
  return options;
}

}  // namespace

Run add_evaluate_command(Command& command) {
  const auto options = add_options(command);
  add_format_option(command, options->format);
  add_quiet_option(command, options->quiet);
  command.add_example("evaluate digits", "validates the models that `train digits` has trained");
  return [options](const WorkerProgram& worker) { return run_evaluate(worker, *options); };
}

Run add_generate_command(Command& command) {
  const auto options = add_options(command);
  command.add("--samples", &options->samples, "number of images that each model generates as a whole",
              {.placeholder = "N", .min = 0});
  command.add("--completions", &options->completions, "number of validation images whose lower half each model completes",
              {.placeholder = "N", .min = 0});
  command.add("--seed", &options->seed, "seed of the random numbers", {.placeholder = "N", .min = 0});
  command.add("--sampler", &options->sampler,
              "scale of a sample of the logistic mixture: as in the likelihood, or as in the authors' code",
              {.choices = {"as-likelihood", "as-paper"}});
  add_format_option(command, options->format);
  add_quiet_option(command, options->quiet);
  command.add_example("generate results/digits/MACHINE", "writes and draws images that the trained models generate");
  return [options](const WorkerProgram& worker) { return run_generate(worker, *options); };
}

}  // namespace attnbench
