#include "harness/sweep/sweep_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include "harness/sweep/case_runner.h"
#include "harness/sweep/catalogue.h"
#include "harness/text/errors.h"

namespace attnbench {
namespace {

// The name of the folder for this machine, such as "intel-r-xeon-r-processor-2-threads".
std::string machine_slug(const Record& environment) {
  std::string slug;
  for (const char c : environment.text("cpu_model") + " " + environment.get("processors").dump() + " threads") {
    if (std::isalnum(static_cast<unsigned char>(c))) slug += char(std::tolower(static_cast<unsigned char>(c)));
    else if (!slug.empty() && slug.back() != '-') slug += '-';
  }
  return slug;
}

std::string default_folder(const SweepPlan& plan, const Record& environment) {
  const auto& name = plan.sweep.stem();
  if (name.empty() || name == "." || name == "..")
    throw UsageError(fmt::format("the sweep's name '{}' cannot be the name of a folder in results/; name one with --out", name));
  auto folder = std::filesystem::path("results") / name / machine_slug(environment);
  if (!plan.shard.is_all()) folder /= fmt::format("shard-{}-of-{}", plan.shard.number, plan.shard.count);
  return folder.string();
}

// What the records of one folder must have in common: the build, the machine and, if a case runs on a GPU, that GPU.
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

// The contents of environment.json, except the ceilings, which are measured later.
Json provenance_of(const SweepPlan& plan, const Record& environment) {
  Json provenance = {{"sweep", plan.sweep.stem()},
                     {"description", plan.sweep.description()},
                     {"environment", environment_columns(environment, plan.planned)},
                     {"settings", plan.sweep.settings()}};
  if (!plan.shard.is_all()) provenance["shard"] = fmt::format("{}/{}", plan.shard.number, plan.shard.count);
  return provenance;
}

// A line for each value in which the provenance `now` differs from that of the records in the folder; empty if there is none.
std::string differences(const ResultFolder& folder, const Json& now) {
  const auto& records = folder.records();
  if (std::all_of(records.begin(), records.end(), [](const Record& r) { return r.has("external_source"); })) return "";
  const auto before = folder.environment();
  // Each record says by itself how it was measured, so that a lost environment.json does not cost the measurements.
  if (before.is_null()) return record_differences(now, records);
  auto text = provenance_differences(before, now, ComparedNames::here);
  const auto then = before.value("shard", Json()), shard = now.value("shard", Json());
  if (then != shard) text += fmt::format("\n  shard: {} there, {} here", then.dump(), shard.dump());
  return text;
}

bool is_due(const Record* existing, Resume resume) {
  if (!existing || existing->has("external_source") || resume == Resume::all) return true;
  return resume == Resume::failed && existing->text("outcome") == outcome::failed;
}

void learn_from(const std::vector<Record>& records, TimePredictor& predictor) {
  for (const auto& record : records)
    if (record.measured()) predictor.learn(record);
}

}  // namespace

SweepPlan plan_sweep(const WorkerProgram& worker, const std::string& file, const SweepOverrides& overrides,
                     const std::string& shard) {
  const auto catalogue = Catalogue::load(worker);
  SweepPlan plan{SweepFile(file, catalogue, overrides), Shard::parse(shard), {}, {}, catalogue.diagnostics()};
  for (size_t i = 0; const auto& c : plan.sweep.cases())
    if (plan.shard.has(i++)) plan.cases.push_back(c);
  if (plan.cases.empty()) throw UsageError(fmt::format("shard {} of sweep {} has no case", shard, plan.sweep.stem()));
  plan.planned =
      plan_cases(worker, plan.cases, [&](const Case& c, const std::string& reason) { return plan.sweep.origin_of(c, reason); });
  for (auto& record : plan.planned) plan.sweep.published().annotate(record);
  return plan;
}

TimePredictor predict_without_ceilings(SweepPlan& plan, const std::vector<Record>& measured) {
  TimePredictor predictor(Ceilings::nominal(plan.cases.front().threads));
  learn_from(measured, predictor);
  for (auto& record : plan.planned) predict(record, predictor);
  return predictor;
}

SweepRun::SweepRun(WorkerProgram worker, SweepPlan plan, std::string out, Resume resume)
    : worker_(std::move(worker)),
      plan_(std::move(plan)),
      environment_(ask_environment(worker_)),
      folder_(out.empty() ? default_folder(plan_, environment_) : std::move(out)),
      provenance_(provenance_of(plan_, environment_)) {
  if (const auto different = differences(folder_, provenance_); !different.empty()) {
    if (resume != Resume::all)
      throw UsageError(fmt::format(
          "{} holds records of another build, machine or configuration:{}\nchoose another folder with --out, or measure "
          "every case again with --resume all",
          folder_.path(), different));
    folder_.set_aside();
  }
  for (size_t i = 0; i < plan_.cases.size(); ++i)
    if (is_due(folder_.find(plan_.planned[i].key()), resume)) due_.push_back(i);
}

double SweepRun::remaining_s(size_t first, const TimePredictor& predictor) const {
  double sum_s = 0;
  for (size_t n = first; n < due_.size(); ++n) {
    auto preview = plan_.planned[due_[n]];
    predict(preview, predictor);
    sum_s += predicted_case_s(preview, preview.number("predicted_time_ms"));
  }
  return sum_s;
}

size_t SweepRun::measure(SweepObserver& observer) {
  if (due_.empty()) {
    folder_.write_csv();
    return 0;
  }
  const auto measured_ceilings = ask_worker(worker_, "ceilings", nullptr, 1)[0];
  const auto ceilings = read_answer(worker_, "ceilings", [&] { return Ceilings::from_json(measured_ceilings); });
  provenance_["ceilings"] = measured_ceilings;
  folder_.write_environment(provenance_);
  folder_.write_schema(plan_.diagnostics);
  TimePredictor predictor(ceilings);
  learn_from(folder_.records(), predictor);
  size_t failed = 0;
  try {
    for (size_t n = 0; n < due_.size(); ++n) {
      auto& planned = plan_.planned[due_[n]];
      const auto rest_s = remaining_s(n, predictor);
      predict(planned, predictor);
      observer.starting(n + 1, planned, rest_s);
      const auto record = run_case(worker_, plan_.cases[due_[n]], planned, environment_, ceilings);
      folder_.append(record);
      if (record.measured()) predictor.learn(record);
      failed += record.text("outcome") == outcome::failed ? 1 : 0;
      observer.finished(n + 1, record);
    }
  } catch (const Interrupted&) {
    folder_.write_csv();
    throw;
  }
  folder_.write_csv();
  return failed;
}

}  // namespace attnbench
