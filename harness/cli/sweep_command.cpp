#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>

#include "harness/cli/commands.h"
#include "harness/cli/progress.h"
#include "harness/cli/record_table.h"
#include "harness/process/worker_process.h"
#include "harness/records/result_folder.h"
#include "harness/sweep/case_runner.h"
#include "harness/sweep/catalogue.h"
#include "harness/sweep/shard.h"
#include "harness/sweep/sweep_file.h"
#include "harness/text/errors.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

struct SweepOptions {
  std::string file, out, shard, resume = "missing";
  std::vector<std::string> methods, settings;
  bool dry_run = false, json = false, quiet = false, verbose = false;
};

// A folder name that tells machines apart: "intel-r-xeon-r-processor-2-threads".
std::string machine_slug(const Record& environment) {
  std::string slug;
  for (const char c : environment.text("cpu_model") + " " + environment.get("processors").dump() + " threads") {
    if (std::isalnum(static_cast<unsigned char>(c))) slug += char(std::tolower(static_cast<unsigned char>(c)));
    else if (!slug.empty() && slug.back() != '-') slug += '-';
  }
  return slug;
}

// "softmax,linear:chunk=64" as given to --methods, once or several times. A comma also parts a method's options: what holds
// an equals sign but no colon belongs to the method before it.
std::vector<std::string> split_methods(const std::vector<std::string>& given) {
  std::vector<std::string> methods;
  for (const auto& text : given) {
    for (size_t begin = 0; begin <= text.size();) {
      const auto end = std::min(text.find(',', begin), text.size());
      const auto piece = text.substr(begin, end - begin);
      if (begin > 0 && piece.find('=') != std::string::npos && piece.find(':') == std::string::npos)
        methods.back() += "," + piece;
      else methods.push_back(piece);
      begin = end + 1;
    }
  }
  return methods;
}

SweepOverrides overrides_of(const SweepOptions& options) {
  SweepOverrides overrides{split_methods(options.methods), {}};
  for (const auto& setting : options.settings) overrides.add_setting(setting);
  return overrides;
}

// What records of one folder must share: the build, the machine and, where cases run on one, the GPU.
Json environment_columns(const Record& environment, const std::vector<Record>& planned) {
  Json json;
  for (const auto& column : columns())
    if (column.group == "environment") json[column.name] = environment.get(column.name);
  const auto on_gpu = std::find_if(planned.begin(), planned.end(), [](const Record& record) { return record.has("gpu"); });
  if (on_gpu == planned.end()) return json;
  for (const auto& column : columns())
    if (column.group == "gpu" && on_gpu->has(column.name)) json[column.name] = on_gpu->get(column.name);
  return json;
}

// How these would differ from the folder's records; empty when they would not.
std::string differences(const ResultFolder& folder, const Json& now) {
  const auto& records = folder.records();
  if (std::all_of(records.begin(), records.end(), [](const Record& r) { return r.has("external_source"); })) return "";
  const auto before = folder.environment();
  if (before.is_null()) return "\n  environment.json, which says how they came about, is missing";
  auto text = provenance_differences(before, now);
  const auto then = before.value("shard", Json()), shard = now.value("shard", Json());
  if (then != shard) text += fmt::format("\n  shard: {} there, {} now", then.dump(), shard.dump());
  return text;
}

bool is_due(const Record* existing, const std::string& resume) {
  if (!existing || existing->has("external_source") || resume == "all") return true;
  return resume == "failed" && existing->text("outcome") == outcome::failed;
}

void print_plan(const std::vector<Record>& planned, const TimePredictor& predictor, bool json) {
  if (json) {
    auto all = Json::array();
    for (const auto& record : planned) all.push_back(record.to_json());
    return fmt::print("{}\n", all.dump(2));
  }
  TextTable table;
  for (const auto* header : {"method", "protocol"}) table.add_column(header);
  for (const auto* header : {"batch", "query_len", "predicted time", "predicted memory"})
    table.add_column(header, TextTable::Align::right);
  table.add_column("");
  double total_s = 0;
  for (const auto& record : planned) {
    const auto call_ms = record.number("predicted_time_ms");
    total_s += predicted_case_s(record, call_ms);
    table.add_row({record.text("method"), record.text("protocol"), record.get("batch").dump(), record.get("query_len").dump(),
                   (predictor.has_seen(record) ? "" : "≥ ") + format_ms(call_ms), format_bytes(predicted_need_bytes(record)),
                   record.has("outcome") ? fmt::format("{}: {}", record.text("failure_kind"), record.text("reason")) : ""});
  }
  fmt::print("{}\n{} cases, at least {}\n", table.render(), planned.size(), format_seconds(total_s));
}

int run_sweep(const WorkerProgram& worker, const SweepOptions& options) {
  const auto catalogue = Catalogue::load(worker);
  const SweepFile sweep(options.file, catalogue, overrides_of(options));
  const auto shard = Shard::parse(options.shard);
  std::vector<Case> cases;
  for (size_t i = 0; const auto& c : sweep.cases())
    if (shard.has(i++)) cases.push_back(c);
  if (cases.empty()) throw UsageError(fmt::format("shard {} of sweep {} has no case", options.shard, sweep.stem()));
  auto planned = plan_cases(worker, cases);
  for (auto& record : planned) sweep.published().annotate(record);

  if (options.dry_run) {
    TimePredictor predictor(Ceilings::nominal(cases.front().threads));
    if (!options.out.empty() && std::filesystem::exists(std::filesystem::path(options.out) / "records.jsonl"))
      for (const auto& record : read_records(options.out))
        if (record.measured()) predictor.learn(record);
    for (auto& record : planned) predict(record, predictor);
    print_plan(planned, predictor, options.json);
    return 0;
  }

  const auto environment = Record::parse(ask_worker(worker, "environment", nullptr, 1)[0]);
  auto out = options.out;
  if (out.empty()) {
    auto place = std::filesystem::path("results") / sweep.stem() / machine_slug(environment);
    if (!shard.is_all()) place /= fmt::format("shard-{}-of-{}", shard.number, shard.count);
    out = place.string();
  }
  ResultFolder folder(out);
  Json made_by = {{"sweep", sweep.stem()},
                  {"description", sweep.description()},
                  {"environment", environment_columns(environment, planned)},
                  {"settings", sweep.settings()}};
  if (!shard.is_all()) made_by["shard"] = options.shard;
  if (const auto different = differences(folder, made_by); !different.empty()) {
    if (options.resume != "all")
      throw UsageError(fmt::format(
          "{} holds records of another build, machine or configuration:{}\nchoose another folder with --out, or measure "
          "every case again with --resume all",
          folder.path(), different));
    folder.set_aside();
  }

  std::vector<size_t> due;
  for (size_t i = 0; i < cases.size(); ++i)
    if (is_due(folder.find(planned[i].key()), options.resume)) due.push_back(i);
  const auto verbosity = options.quiet ? Verbosity::quiet : options.verbose ? Verbosity::verbose : Verbosity::normal;
  if (due.empty()) {
    folder.write_csv();
    if (!options.quiet) fmt::print(stderr, "{}: all {} cases are recorded\n", folder.path(), cases.size());
    return 0;
  }

  const auto ceilings_json = ask_worker(worker, "ceilings", nullptr, 1)[0];
  const auto ceilings = Ceilings::from_json(ceilings_json);
  TimePredictor predictor(ceilings);
  for (const auto& record : folder.records())
    if (record.measured()) predictor.learn(record);
  made_by["ceilings"] = ceilings_json;
  folder.write_environment(made_by);
  folder.write_schema(catalogue.diagnostics());
  size_t failed = 0;
  try {
    Progress progress(due.size(), verbosity);
    for (size_t n = 0; n < due.size(); ++n) {
      double rest_s = 0;
      for (size_t later = n; later < due.size(); ++later) {
        auto preview = planned[due[later]];
        predict(preview, predictor);
        rest_s += predicted_case_s(preview, preview.number("predicted_time_ms"));
      }
      auto& plan = planned[due[n]];
      predict(plan, predictor);
      progress.starting(n + 1, plan, rest_s);
      const auto record = run_case(worker, cases[due[n]], plan, environment, ceilings);
      folder.append(record);
      if (record.measured()) predictor.learn(record);
      failed += record.text("outcome") == outcome::failed ? 1 : 0;
      progress.finished(n + 1, record);
    }
  } catch (const Interrupted&) {
    folder.write_csv();
    fmt::print(stderr, "{}: interrupted; the same command goes on where it stopped\n", folder.path());
    throw;
  }
  folder.write_csv();
  if (!options.quiet)
    fmt::print(stderr, "{}: {} cases recorded{}\n", folder.path(), due.size(),
               failed > 0 ? fmt::format(", {} failed", failed) : "");
  return failed > 0 ? 1 : 0;
}

}  // namespace

Run add_sweep_command(CLI::App& command) {
  const auto options = std::make_shared<SweepOptions>();
  command.add_option("file", options->file, "sweep file")->required();
  command.add_option("--out", options->out, "folder of records; by default results/SWEEP/MACHINE");
  command.add_option("--resume", options->resume, "cases to run when some are recorded: missing, failed or all")
      ->check(CLI::IsMember({"missing", "failed", "all"}));
  command.add_option("--methods", options->methods, "methods instead of the file's: softmax,linear:chunk=64")
      ->allow_extra_args(false);
  command
      .add_option("--set", options->settings,
                  "an axis or a setting instead of the file's: query_len=512-2048*2, memory_limit_bytes=\"4 GiB\"")
      ->allow_extra_args(false);
  command.add_option("--shard", options->shard, "a part of the cases, such as 2/8; see merge");
  command.add_flag("--dry-run", options->dry_run, "list the cases with predicted time and memory, and run none");
  command.add_flag("--json", options->json, "the dry run as JSON");
  auto* const quiet = command.add_flag("-q,--quiet", options->quiet, "no progress");
  command.add_flag("-v,--verbose", options->verbose, "more about each case")->excludes(quiet);
  return [options](const WorkerProgram& worker) { return run_sweep(worker, *options); };
}

}  // namespace attnbench
