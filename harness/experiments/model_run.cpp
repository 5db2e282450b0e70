// Runs the processes that measure models in rounds, and records what each says.
#include "harness/experiments/model_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "harness/sweep/case_runner.h"
#include "harness/text/errors.h"

namespace attnbench {
namespace {

constexpr auto kModelRecord = "a record of a process that measured a model";
constexpr double kModelAskDeadlineS = 300;

void check_model_record(const Json& line) {
  model_process_of(line);
  if (!line.value("settings", Json()).is_object()) throw std::invalid_argument("it has no settings, expected an object");
}

bool was_measured(const Json& record) { return record.value("outcome", "") == outcome::measured; }

}  // namespace

Json process_settings(const ModelSettings& settings) {
  return {{"tokens", settings.tokens}, {"generated", settings.generated}, {"repeats", settings.repeats},
          {"steps", settings.steps},   {"threads", settings.threads},     {"tiny", settings.tiny}};
}

ModelCatalogue ask_models(const WorkerProgram& python) {
  const auto answer = run_worker(python, "list", Json::object(), kModelAskDeadlineS);
  if (const auto fault = fault_of(answer, 1); !fault.empty())
    throw UsageError(fmt::format("the Python package of attnbench cannot say which models it measures: {}", fault));
  const auto& said = answer.lines.front();
  if (said.contains("error")) throw UsageError(said.at("error").get<std::string>());
  return read_answer(python, "list", [&] {
    ModelCatalogue catalogue = {.models = {}, .versions = said.at("versions")};
    for (const auto& model : said.at("models")) {
      ModelEntry entry = {.name = model.at("name"),
                          .shaped_like = model.at("shaped_like"),
                          .scale = model.at("scale").dump(),
                          .op = model.at("operator"),
                          .phases = {}};
      for (const auto& phase : model.at("phases"))
        entry.phases.push_back({phase.at("name"), phase.at("variants").get<std::vector<std::string>>(), phase.at("timed")});
      catalogue.models.push_back(std::move(entry));
    }
    return catalogue;
  });
}

ModelProcess model_process_of(const Json& record) {
  const auto text = [&](const char* name) {
    const auto found = record.find(name);
    if (found == record.end() || !found->is_string()) throw std::invalid_argument(fmt::format("{} is no text", name));
    return found->get<std::string>();
  };
  const auto round = record.find("round");
  if (round == record.end() || !round->is_number_integer()) throw std::invalid_argument("round is no whole number");
  return {.model = text("model"), .phase = text("phase"), .variant = text("variant"), .round = round->get<int>()};
}

ModelRun::ModelRun(const WorkerProgram& worker, WorkerProgram python, const ModelCatalogue& catalogue,
                   std::vector<ModelEntry> models, ModelSettings settings, const std::string& out)
    : python_(std::move(python)),
      versions_(catalogue.versions),
      models_(std::move(models)),
      settings_(settings),
      folder_(worker, kModelsExperiment, out),
      file_(folder(), kModelProcessesFile, kModelRecord, lines_into(records_, check_model_record)) {
  folder_.write_environment("models of transformers, alone and with the operators of this project", !records_.empty(),
                            "choose another folder with --out");
  for (const auto& record : records_)
    if (record.value("versions", Json()) != versions_)
      throw StaleFolderError(
          fmt::format("{} holds results of the versions {}, but {} are installed\nchoose another folder with --out", folder(),
                      record.value("versions", Json()).dump(), versions_.dump()));
}

std::vector<Json> ModelRun::records() const {
  std::vector<Json> found;
  const auto wanted = process_settings(settings_);
  std::copy_if(records_.begin(), records_.end(), std::back_inserter(found),
               [&](const Json& record) { return record.at("settings") == wanted; });
  return found;
}

bool ModelRun::is_measured(const ModelProcess& process) const {
  const auto wanted = process_settings(settings_);
  return std::any_of(records_.begin(), records_.end(), [&](const Json& record) {
    return was_measured(record) && record.at("settings") == wanted && model_process_of(record) == process;
  });
}

std::vector<ModelProcess> ModelRun::due() const {
  std::vector<ModelProcess> found;
  const auto add = [&](const ModelEntry& model, const ModelEntry::Phase& phase, int round) {
    auto variants = phase.variants;
    // The same order when a run is continued.
    std::mt19937_64 random(std::hash<std::string>{}(fmt::format("{} {} {}", model.name, phase.name, round)));
    std::shuffle(variants.begin(), variants.end(), random);
    for (const auto& variant : variants)
      if (const ModelProcess process = {model.name, phase.name, variant, round}; !is_measured(process)) found.push_back(process);
  };
  for (int round = 0; round <= settings_.rounds; ++round)
    for (const auto& model : models_)
      for (const auto& phase : model.phases)
        if (phase.is_timed == (round > 0)) add(model, phase, round);
  return found;
}

size_t ModelRun::measure(ModelRunObserver& observer) {
  const auto began = std::chrono::steady_clock::now();
  const auto processes = due();
  size_t number = 0, failed = 0;
  for (const auto& process : processes) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() >= 60 * settings_.minutes) break;
    observer.starting(++number, processes.size(), process);
    file_.append(records_.emplace_back(run(process)));
    failed += was_measured(records_.back()) ? 0 : 1;
    observer.finished(number, processes.size(), records_.back());
  }
  return failed;
}

Json ModelRun::run(const ModelProcess& process) const {
  auto request = process_settings(settings_);
  request.update({{"model", process.model}, {"phase", process.phase}, {"variant", process.variant}});
  const auto answer = run_worker(python_, "measure", request, settings_.deadline_s);
  Json record = {{"model", process.model},
                 {"phase", process.phase},
                 {"variant", process.variant},
                 {"round", process.round},
                 {"settings", process_settings(settings_)},
                 {"versions", versions_},
                 {"finished_at", now_utc()},
                 {"process_s", answer.wall_s}};
  if (const auto fault = fault_of(answer, 1); !fault.empty()) {
    record["outcome"] = outcome::failed;
    record["failure_kind"] = failure_kind(answer);
    record["reason"] = fault;
  } else {
    record["outcome"] = outcome::measured;
    record.update(answer.lines.front());
  }
  return record;
}

}  // namespace attnbench
