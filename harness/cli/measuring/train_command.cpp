// `attnbench train`: runs the trainings of a settings file, and prints how each has ended.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string_view>
#include <vector>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/plot_scripts.h"
#include "harness/cli/shared_options.h"
#include "harness/cli/terminal.h"
#include "harness/experiments/training_run.h"
#include "harness/files/known_files.h"
#include "harness/sweep/sweep_file.h"
#include "harness/text/json_numbers.h"
#include "harness/text/notice.h"
#include "harness/text/safe_text.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

struct TrainOptions {
  std::string file, out, resume = "missing";
  std::vector<std::string> settings;
  Format format = Format::text;
  bool quiet = false;
};

// "loss 0.0123, validation loss 0.0150, accuracy 99.3 %"
std::string losses_of(const Json& line) {
  std::string text;
  const auto add = [&](const std::string& piece) { text += (text.empty() ? "" : ", ") + piece; };
  if (const auto loss = number_in(line, "training_loss"); !std::isnan(loss)) add(fmt::format("loss {:.4g}", loss));
  if (const auto loss = number_in(line, "validation_loss"); !std::isnan(loss)) add(fmt::format("validation loss {:.4g}", loss));
  if (const auto share = number_in(line, "validation_accuracy"); !std::isnan(share))
    add(fmt::format("accuracy {:.1f} %", 100 * share));
  if (const auto bits = number_in(line, "bits_per_dim"); !std::isnan(bits)) add(fmt::format("{:.3f} bits/dim", bits));
  if (const auto share = number_in(line, "phone_error_rate"); !std::isnan(share))
    add(fmt::format("phone errors {:.1f} % (by chance {:.1f} %)", 100 * share, 100 * number_in(line, "chance_error_rate")));
  return text;
}

class TrainingProgress : public TrainingObserver {
 public:
  explicit TrainingProgress(bool quiet) : line_(stderr, quiet) {}

  void starting(const Place& place, const Training& training, int64_t update) override {
    if (update > 0)
      line_.print(
          fmt::format("[{}/{}] {}  goes on after update {}", place.number, place.of, safe_text(title_of(training)), update));
  }
  void reached(const Place& place, const Training& training, const Json& point) override {
    const auto update = number_in(point, "update"), rate = number_in(point, "updates_per_s");
    auto rest_s = (double(training.updates) - update) / rate;
    if (training.seconds > 0) rest_s = std::min(rest_s, std::max(0.0, training.seconds - number_in(point, "training_s")));
    line_.show(fmt::format("[{}/{}] {}  update {:.0f} of {}  {}  {:.3g} updates/s  remaining ~{}", place.number, place.of,
                           safe_text(title_of(training)), update, training.updates, losses_of(point), rate,
                           format_seconds(rest_s)));
  }
  void finished(const Place& place, const Training& training, const Json& ended) override {
    const bool failed = ended.value("outcome", "") != outcome::measured;
    const auto result = failed
                            ? fmt::format("failed: {} ({})", ended.value("failure_kind", ""), ended.value("reason", ""))
                            : fmt::format("{}, {} of training", losses_of(ended), format_seconds(number_in(ended, "training_s")));
    line_.print(fmt::format("[{}/{}] {}  {}", place.number, place.of, safe_text(title_of(training)), safe_text(result)),
                failed ? Tone::bad : Tone::plain);
  }

 private:
  StatusLine line_;
};

// The trainings of the folder, one in each row.
void print_trainings(const std::vector<Json>& ended, Format format) {
  if (format == Format::json) return print_json(Json(ended));
  const auto any_has = [&](const char* column) {
    return std::any_of(ended.begin(), ended.end(), [&](const Json& line) { return !std::isnan(number_in(line, column)); });
  };
  // What only some tasks have.
  struct Measure {
    const char *column, *header, *form;
    double factor;
  };
  std::vector<Measure> measures = {{"validation_accuracy", "accuracy", "{:.1f} %", 100},
                                   {"bits_per_dim", "bits/dim", "{:.3f}", 1},
                                   {"phone_error_rate", "phone errors", "{:.1f} %", 100},
                                   {"chance_error_rate", "by chance", "{:.1f} %", 100},
                                   {"epoch_s", "s/epoch", "{:.3g}", 1}};
  std::erase_if(measures, [&](const Measure& measure) { return !any_has(measure.column); });
  TextTable table({"task", "method", right("seed"), right("updates"), right("training loss"), right("validation loss")});
  std::vector<std::string> answers = {"method", "validation loss"};
  for (const auto& measure : measures) {
    table.add_columns({right(measure.header)});
    answers.emplace_back(measure.header);
  }
  table.add_columns({right("time"), right("updates/s"), "failed because"});
  table.choose({.answers = std::move(answers),
                .kept = {"task", "seed", "failed because"},
                .left_out_first = {"updates/s", "training loss", "updates"}});
  for (const auto& line : ended) {
    const bool failed = line.value("outcome", "") != outcome::measured;
    const auto updates = number_in(line, "update"), s = number_in(line, "training_s");
    std::vector<std::string> row = {line.value("task", ""),
                                    line.value("method", ""),
                                    line.at("seed").dump(),
                                    number_text(updates, "{:.0f}"),
                                    number_text(number_in(line, "training_loss"), "{:.4g}"),
                                    number_text(number_in(line, "validation_loss"), "{:.4g}")};
    for (const auto& measure : measures)
      row.push_back(
          number_text(measure.factor * number_in(line, measure.column), measure.form) +
          (measure.column == std::string_view("epoch_s") && line.value("epoch_extrapolated", false) ? " (extrapolated)" : ""));
    row.insert(row.end(), {std::isnan(s) ? "–" : format_seconds(s), number_text(updates / s, "{:.3g}"),
                           failed ? line.value("reason", "") : ""});
    table.add_row(row, failed ? Tone::bad : Tone::plain);
  }
  print_table(table, format);
}

int run_training(const WorkerProgram& worker, const TrainOptions& options) {
  SweepOverrides overrides;
  for (const auto& setting : options.settings) overrides.add_setting(setting);
  TrainingRun run(worker, experiments_beside_this_program(),
                  TrainingFile(find_file(kTrainings, options.file), Catalogue::load(worker), overrides.settings), options.out,
                  options.resume == "none");
  const auto due = run.due();
  size_t failed = 0;
  try {
    TrainingProgress progress(options.quiet);
    failed = run.train(progress);
  } catch (const Interrupted&) {
    print_notice(fmt::format("{}: interrupted; the same command continues at the last checkpoint\n", run.folder()));
    throw;
  }
  if (!options.quiet)
    print_notice(fmt::format(
        "{}: {}{}\n", run.folder(),
        due == 0 ? "all trainings have ended" : fmt::format("{} {} ended", count_of(due, "training"), has_or_have(due)),
        failed > 0 ? fmt::format(", {} of them failed", failed) : ""));
  print_trainings(run.ended(), options.format);
  // Standard output may be a pipe that someone waits for the end of; drawing takes seconds.
  std::fflush(stdout);
  const auto drawn = draw_training_curves(run.folder());
  if (!options.quiet) print_notice(drawn + "\n");
  return failed > 0 ? exit_code::failure : exit_code::success;
}

}  // namespace

Run add_train_command(Command& command) {
  const auto options = std::make_shared<TrainOptions>();
  command.add("file", &options->file, "settings file, or the name of a training that `attnbench list trainings` shows",
              {.required = true, .completion = Completion::trainings});
  command.add("--out", &options->out, "folder that the curves are written to",
              {.placeholder = "FOLDER", .default_text = "results/TRAINING/MACHINE", .completion = Completion::files});
  command.add("--resume", &options->resume,
              "which trainings run if the folder holds some: those that have not ended, from their last checkpoints, or all from "
              "their beginning",
              {.choices = {"missing", "none"}});
  add_set_option(command, options->settings);
  add_format_option(command, options->format);
  add_quiet_option(command, options->quiet);
  command.add_example("train copy-task-short", "trains four methods on a short copy task, and prints the table of their curves");
  command.add_example("train copy-task --set method=linear --set updates=100 --out /tmp/try", "makes 100 updates of one method");
  return [options](const WorkerProgram& worker) { return run_training(worker, *options); };
}

}  // namespace attnbench
