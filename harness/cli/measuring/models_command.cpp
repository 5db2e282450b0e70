// `attnbench models`, which measures small models of transformers, alone and with the operators of this project.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/plot_scripts.h"
#include "harness/cli/shared_options.h"
#include "harness/cli/terminal.h"
#include "harness/experiments/model_run.h"
#include "harness/experiments/model_summary.h"
#include "harness/files/installation.h"
#include "harness/files/replace_file.h"
#include "harness/text/json_numbers.h"
#include "harness/text/nearest.h"
#include "harness/text/notice.h"
#include "harness/text/safe_text.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

struct ModelsOptions {
  std::vector<std::string> models, phases;
  ModelSettings settings;
  std::string out, python;
  Format format = Format::text;
  bool quiet = false;
};

std::string name_of(const ModelProcess& process) {
  return safe_text(fmt::format("{} {} {}", process.model, process.phase, process.variant));
}

class ModelsProgress : public ModelRunObserver {
 public:
  explicit ModelsProgress(bool quiet) : line_(stderr, quiet) {}
  void starting(size_t number, size_t of, const ModelProcess& process) override {
    line_.show(fmt::format("[{}/{}] {}", number, of, name_of(process)));
  }
  void finished(size_t number, size_t of, const Json& record) override {
    const bool failed = record.value("outcome", "") != outcome::measured;
    const auto seconds = number_in(record, "seconds");
    const auto result = failed ? record.value("reason", "") : std::isnan(seconds) ? "done" : format_ms(1e3 * seconds);
    line_.print(fmt::format("[{}/{}] {}  {}", number, of, name_of(model_process_of(record)), safe_text(result)),
                failed ? Tone::bad : Tone::plain);
  }

 private:
  StatusLine line_;
};

// The Python that has the package attnbench: that of a checkout is found through PYTHONPATH.
WorkerProgram models_program(const std::string& python) {
  if (!is_installed()) {
    const char* const before = std::getenv("PYTHONPATH");
    const auto folder = (project_folder() / "python").string();
    setenv("PYTHONPATH", before && *before ? fmt::format("{}:{}", folder, before).c_str() : folder.c_str(), /*overwrite=*/1);
  }
  return {.path = "attnbench.models.worker", .launcher = {python.empty() ? project_python() : python, "-m"}};
}

std::vector<ModelEntry> chosen_models(const ModelCatalogue& catalogue, const std::vector<std::string>& names) {
  if (names.empty()) return catalogue.models;
  std::vector<std::string> known;
  for (const auto& model : catalogue.models) known.push_back(model.name);
  std::vector<ModelEntry> chosen;
  for (const auto& name : names) {
    const auto found = std::find(known.begin(), known.end(), name);
    if (found == known.end())
      throw UsageError(fmt::format("--models: there is no model '{}'{}", safe_text(name), suggestion(name, known)));
    chosen.push_back(catalogue.models[size_t(found - known.begin())]);
  }
  return chosen;
}

// The models with these phases alone, if there are any.
std::vector<ModelEntry> with_phases(std::vector<ModelEntry> models, const std::vector<std::string>& phases) {
  if (phases.empty()) return models;
  for (auto& model : models)
    std::erase_if(model.phases,
                  [&](const auto& phase) { return std::find(phases.begin(), phases.end(), phase.name) == phases.end(); });
  return models;
}

std::string estimate_text(const std::optional<RatioEstimate>& estimate) {
  return estimate ? fmt::format("{:.3g} ×", std::exp(estimate->ratio.estimate)) : "–";
}
std::string interval_text(const std::optional<RatioEstimate>& estimate) {
  if (!estimate || estimate->scope == IntervalScope::none || !std::isfinite(estimate->ratio.interval.low)) return "–";
  return fmt::format("{:.3g} to {:.3g}", std::exp(estimate->ratio.interval.low), std::exp(estimate->ratio.interval.high));
}
std::string seconds_text(const std::optional<ModelTimes>& times) { return times ? format_ms(1e3 * times->median_s) : "–"; }
std::string memory_text(const std::optional<ModelTimes>& times) { return times ? format_bytes(times->peak_extra_bytes) : "–"; }

TextTable times_table(const std::vector<ModelSummary>& summaries) {
  TextTable table({"model", "what", right("transformers"), right("attnbench"), right("times as fast"), right("interval"),
                   right("memory, transformers"), right("memory, attnbench")},
                  {.answers = {"model", "what", "times as fast"}});
  for (const auto& summary : summaries)
    for (const auto& phase : summary.phases) {
      if (!phase.transformers && !phase.attnbench) continue;
      table.add_row({summary.model.name, phase.name, seconds_text(phase.transformers), seconds_text(phase.attnbench),
                     estimate_text(phase.speedup), interval_text(phase.speedup), memory_text(phase.transformers),
                     memory_text(phase.attnbench)});
      if (phase.floor)
        table.add_row({summary.model.name, phase.name + " without the operator", "–", seconds_text(phase.floor),
                       phase.to_floor ? fmt::format("1 / {:.3g}", std::exp(phase.to_floor->ratio.estimate)) : "–", "–", "–",
                       memory_text(phase.floor)});
    }
  return table;
}

TextTable parts_table(const std::vector<ModelSummary>& summaries) {
  TextTable table({"model", "part of a training step", right("transformers"), right("attnbench")});
  for (const auto& summary : summaries)
    for (const auto& part : summary.parts)
      table.add_row({summary.model.name, part.name.empty() ? "loss, optimizer and the rest" : part.name,
                     format_ms(1e3 * part.transformers_s), format_ms(1e3 * part.attnbench_s)});
  return table;
}

TextTable aims_table(const std::vector<ModelAim>& aims) {
  TextTable table({"aim", "found", "verdict"});
  for (const auto& aim : aims)
    table.add_row({aim.text, aim.found, aim.verdict}, aim.verdict == "missed" ? Tone::bad : Tone::plain);
  return table;
}

// Calls that went to what would have run without this project, which the times of attnbench contain.
void print_passed_on(const std::vector<ModelSummary>& summaries) {
  for (const auto& summary : summaries)
    for (const auto& [op, reasons] : summary.passed_on.items())
      for (const auto& [reason, count] : reasons.items())
        print_notice(safe_text(fmt::format("{}: {} of {} went to transformers: {}", summary.model.name,
                                           count_of(count.get<int64_t>(), "call"), op, reason)) +
                     "\n");
}

int run_models(const WorkerProgram& worker, const ModelsOptions& options) {
  const auto python = models_program(options.python);
  const auto catalogue = ask_models(python);
  const auto models = with_phases(chosen_models(catalogue, options.models), options.phases);
  ModelRun run(worker, python, catalogue, models, options.settings, options.out);
  size_t failed = 0;
  {
    ModelsProgress progress(options.quiet);
    failed = run.measure(progress);
  }
  // What was measured before counts as well.
  const auto summaries = model_summaries(catalogue.models, run.records());
  const auto aims = model_aims(summaries);
  const auto summary = to_json(summaries, aims, options.settings);
  replace_file(run.folder(), kModelSummaryFile, summary.dump(2) + "\n");
  if (options.format == Format::json) {
    print_json(summary);
  } else {
    print_table(times_table(summaries), options.format);
    fmt::print("\n");
    print_table(parts_table(summaries), options.format);
    fmt::print("\n");
    print_table(aims_table(aims), options.format);
    if (options.format == Format::text) print_passed_on(summaries);
  }
  if (!options.quiet) {
    if (!summaries.empty()) print_notice(draw_models(run.folder()) + "\n");
    if (const auto left = run.due().size(); left > 0)
      print_notice(fmt::format("{}: {} left; the same command continues\n", run.folder(), count_of(left, "process")));
  }
  return failed > 0 ? exit_code::failure : exit_code::success;
}

}  // namespace

Run add_models_command(Command& command) {
  const auto options = std::make_shared<ModelsOptions>();
  auto& settings = options->settings;
  command.add("--models", &options->models, "models to measure, separated by commas",
              {.placeholder = "NAME,…", .default_text = "all", .separator = ','});
  command.add("--phases", &options->phases, "what to measure, separated by commas",
              {.placeholder = "PHASE,…",
               .choices = {"logits", "losses", "profile", "step", "prefill", "generation", "operator"},
               .default_text = "all",
               .separator = ','});
  command.add("--out", &options->out, "folder that the records are written to; the same command continues",
              {.placeholder = "FOLDER",
               .default_text = fmt::format("results/{}/MACHINE", kModelsExperiment),
               .completion = Completion::files});
  command.add("--rounds", &settings.rounds, "processes of each variant; from 6 on intervals are of 95 %",
              {.min = 1, .max = 1000});
  command.add("--minutes", &settings.minutes, "start no process after so many minutes", {.min = 0, .default_text = "no limit"});
  command.add("--tokens", &settings.tokens, "tokens of a training step and of a prefill", {.min = 2, .max = 1 << 20});
  command.add("--generated", &settings.generated, "tokens to generate", {.min = 1, .max = 1 << 20});
  command.add("--repeats", &settings.repeats, "how often a process repeats what it times", {.min = 1, .max = 1000});
  command.add("--steps", &settings.steps, "training steps whose losses are compared", {.min = 1, .max = 100000});
  command.add("--threads", &settings.threads, "threads of PyTorch; 0 for its default", {.min = 0, .max = 4096});
  command.add("--deadline", &settings.deadline_s, "after so many seconds a process is ended",
              {.unit = "s", .min = 0.001, .max = 1e6});
  command.add("--tiny", &settings.tiny, "models that take a fraction of a second, to try the command");
  add_format_option(command, options->format, {Format::text, Format::markdown, Format::json});
  add_python_option(command, options->python, "transformers");
  add_quiet_option(command, options->quiet, "print no progress, and draw nothing");
  command.add_example("models", "measures training steps, prefills and generation of six models, alone and with our operators");
  command.add_example("models --models qwen3.5 --rounds 2", "measures one model in two rounds");
  return [options](const WorkerProgram& worker) { return run_models(worker, *options); };
}

}  // namespace attnbench
