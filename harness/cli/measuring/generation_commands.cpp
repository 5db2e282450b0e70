// `attnbench latency` and `attnbench throughput`, which measure how fast models generate images.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/shared_options.h"
#include "harness/cli/terminal.h"
#include "harness/experiments/generation_run.h"
#include "harness/experiments/settings_file.h"
#include "harness/files/known_files.h"
#include "harness/sweep/sweep_file.h"
#include "harness/text/json_numbers.h"
#include "harness/text/notice.h"
#include "harness/text/safe_text.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

constexpr auto kName = "image-speed";  // of the folder of both commands

struct GenerationOptions {
  std::vector<std::string> files;
  std::string out, resume = "missing";
  std::vector<std::string> settings;
  Format format = Format::text;
  bool quiet = false;
};

std::string name_of(const Generation& g) {
  return safe_text(fmt::format("{} {} batch {} on {}", g.dataset, g.method, g.batch, g.device));
}

class GenerationProgress : public GenerationObserver {
 public:
  explicit GenerationProgress(bool quiet) : line_(stderr, quiet) {}
  void starting(size_t number, size_t of, const Generation& generation) override {
    line_.show(fmt::format("[{}/{}] {}", number, of, name_of(generation)));
  }
  void finished(size_t number, size_t of, const Json& record) override {
    const bool failed = record.value("outcome", "") != outcome::measured;
    const auto result = failed ? fmt::format("{}: {}", record.value("outcome", ""), record.value("reason", ""))
                               : fmt::format("{:.3g} s a batch{}", record.value("batch_s", 0.0),
                                             record.value("extrapolated", false) ? " (extrapolated)" : "");
    line_.print(fmt::format("[{}/{}] {}  {}", number, of, name_of(generation_of(record)), safe_text(result)),
                failed ? Tone::bad : Tone::plain);
  }

 private:
  StatusLine line_;
};

// Three significant digits; a tilde marks what was extrapolated.
std::string text_of(double value, bool extrapolated = false) { return number_text(value, extrapolated ? "~{:.3g}" : "{:.3g}"); }

// One row for each method, with its times on the CPU and the GPU.
TextTable latency_table(const std::vector<GenerationSummary>& summaries) {
  TextTable table({"dataset", "method", right("CPU s/image"), right("GPU s/image"), right("CPU/GPU"), "note"},
                  {.answers = {"method", "CPU s/image", "GPU s/image", "CPU/GPU"}, .kept = {"dataset"}});
  for (const auto& cpu : summaries) {
    if (cpu.generation.device != "cpu") continue;
    const auto gpu = std::find_if(summaries.begin(), summaries.end(), [&](const auto& other) {
      return other.generation.device == "cuda" && other.generation.dataset == cpu.generation.dataset &&
             other.generation.method == cpu.generation.method && other.generation.batch == cpu.generation.batch;
    });
    const auto cpu_s = cpu.median("batch_s"), gpu_s = gpu == summaries.end() ? std::nan("") : gpu->median("batch_s");
    auto note = cpu.measured.empty() ? cpu.last.value("reason", "") : "";
    if (gpu != summaries.end() && gpu->measured.empty()) note += (note.empty() ? "" : "; ") + gpu->last.value("reason", "");
    table.add_row({cpu.generation.dataset, cpu.generation.method, text_of(cpu_s, cpu.is_extrapolated()),
                   text_of(gpu_s, gpu != summaries.end() && gpu->is_extrapolated()), text_of(cpu_s / gpu_s), safe_text(note)});
  }
  return table;
}

// Methods are compared at equal memory with the largest batches whose processes take at most this much.
constexpr double kEqualMemoryBytes = double(int64_t{1} << 30);

// One row for each case, with marks at the best batch of each method and at its largest within kEqualMemoryBytes.
TextTable throughput_table(const std::vector<GenerationSummary>& summaries) {
  const auto method_of = [](const GenerationSummary& s) {
    return std::tuple(s.generation.dataset, s.generation.method, s.generation.device, s.generation.threads);
  };
  std::map<decltype(method_of(summaries.front())), double> best;
  std::map<decltype(method_of(summaries.front())), int64_t> largest;
  for (const auto& summary : summaries) {
    if (summary.measured.empty()) continue;
    auto& highest = best[method_of(summary)];
    highest = std::max(highest, summary.median("images_per_s"));
    if (summary.median("peak_rss_bytes") > kEqualMemoryBytes) continue;
    auto& batch = largest[method_of(summary)];
    batch = std::max(batch, summary.generation.batch);
  }
  TextTable table({"dataset", "method", "device", right("batch"), right("images/s"), right("s/batch"), right("state"),
                   right("memory"), "note"},
                  {.answers = {"method", "batch", "images/s"},
                   .kept = {"dataset", "device"},
                   .left_out_first = {"state", "s/batch", "memory"}});
  for (const auto& summary : summaries) {
    const auto& g = summary.generation;
    const auto rate = summary.median("images_per_s");
    std::string note = summary.measured.empty() ? safe_text(summary.last.value("reason", "")) : "";
    if (rate == best[method_of(summary)]) note = "best batch";
    if (g.batch == largest[method_of(summary)])
      note += (note.empty() ? "" : ", ") + fmt::format("largest within {}", format_bytes(kEqualMemoryBytes));
    const auto bytes = [&](const char* column) { return format_bytes(summary.median(column)); };
    table.add_row({g.dataset, g.method, g.device, std::to_string(g.batch), text_of(rate, summary.is_extrapolated()),
                   text_of(summary.median("batch_s"), summary.is_extrapolated()), bytes("state_bytes"), bytes("peak_rss_bytes"),
                   note});
  }
  return table;
}

using MakeTable = TextTable (*)(const std::vector<GenerationSummary>& summaries);

int run_speed(const WorkerProgram& worker, const GenerationOptions& options, MakeTable make_table) {
  const auto catalogue = Catalogue::load(worker);
  SweepOverrides overrides;
  for (const auto& setting : options.settings) overrides.add_setting(setting);
  auto paths = options.files;
  if (paths.empty())
    for (const auto& path : known_files(kSpeeds)) paths.push_back(path.string());
  std::vector<Generation> cases;
  for (const auto& path : paths) {
    const GenerationFile file(find_file(kSpeeds, path), catalogue, overrides.settings);
    cases.insert(cases.end(), file.items().begin(), file.items().end());
  }
  GenerationRun run(worker, experiments_beside_this_program(), cases, kName, options.out, options.resume == "none");
  size_t failed = 0;
  {
    GenerationProgress progress(options.quiet);
    failed = run.measure(progress);
  }
  std::vector<Json> records;
  for (const auto& record : run.records())
    if (std::any_of(cases.begin(), cases.end(),
                    [&](const auto& c) { return generation_key(c) == generation_key(generation_of(record)); }))
      records.push_back(record);
  if (!options.quiet) print_notice(fmt::format("{}: {} recorded\n", run.folder(), count_of(records.size(), "process")));
  if (options.format == Format::json) {
    print_json(Json(records));
  } else {
    print_table(make_table(summaries_of(records)), options.format);
    if (options.format == Format::text)
      print_notice("Medians of the processes; ~ marks a time that is extrapolated from tokens at some positions.\n");
  }
  return failed > 0 ? exit_code::failure : exit_code::success;
}

std::shared_ptr<GenerationOptions> add_generation_options(Command& command) {
  const auto options = std::make_shared<GenerationOptions>();
  command.add("file", &options->files, "settings files, or names of files in experiments/speed (default: all of them)",
              {.completion = Completion::files});
  command.add(
      "--out", &options->out, "folder that the records are written to",
      {.placeholder = "FOLDER", .default_text = fmt::format("results/{}/MACHINE", kName), .completion = Completion::files});
  command.add("--resume", &options->resume,
              "which cases are measured if the folder holds records: those that miss processes, or all",
              {.choices = {"missing", "none"}});
  add_set_option(command, options->settings);
  add_format_option(command, options->format);
  add_quiet_option(command, options->quiet);
  return options;
}

}  // namespace

Run add_latency_command(Command& command) {
  const auto options = add_generation_options(command);
  command.add_example("latency mnist", "measures the time of one MNIST image with every method, on the CPU and the GPU");
  return [options](const WorkerProgram& worker) {
    auto single = *options;
    single.settings.emplace_back("batch=1");
    return run_speed(worker, single, latency_table);
  };
}

Run add_throughput_command(Command& command) {
  const auto options = add_generation_options(command);
  command.add_example("throughput mnist --set batch=[1,64]", "measures images per second with batches of 1 and 64 images");
  return [options](const WorkerProgram& worker) { return run_speed(worker, *options, throughput_table); };
}

}  // namespace attnbench
