// Runs the processes of measurements of generation in rounds, and sums up what the processes of each case say.
#include "harness/experiments/generation_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>
#include <utility>

#include "harness/statistics/statistics.h"
#include "harness/sweep/case_runner.h"
#include "harness/text/json_numbers.h"

namespace attnbench {
namespace {

constexpr auto kRecord = "a record of a generation";

void check_generation(const Json& line) { generation_of(line); }

bool is_of(const Json& record, const std::string& key) { return generation_key(generation_of(record)) == key; }

bool is_measured(const Json& record) { return record.value("outcome", "") == outcome::measured; }

}  // namespace

double GenerationSummary::median(const char* column) const {
  std::vector<double> values;
  for (const auto& record : measured)
    if (const auto found = record.find(column); found != record.end() && found->is_number())
      values.push_back(found->get<double>());
  return values.empty() ? std::nan("") : attnbench::median(std::move(values));
}

bool GenerationSummary::is_extrapolated() const {
  return std::any_of(measured.begin(), measured.end(), [](const Json& record) { return record.value("extrapolated", false); });
}

std::vector<GenerationSummary> summaries_of(const std::vector<Json>& records) {
  std::vector<GenerationSummary> all;
  for (const auto& record : records) {
    const auto generation = generation_of(record);
    auto found = std::find_if(all.begin(), all.end(), [&](const auto& summary) {
      return generation_key(summary.generation) == generation_key(generation);
    });
    if (found == all.end()) found = all.insert(all.end(), {generation, {}, {}});
    if (is_measured(record)) found->measured.push_back(record);
    found->last = record;
  }
  return all;
}

GenerationRun::GenerationRun(const WorkerProgram& worker, WorkerProgram experiments, std::vector<Generation> cases,
                             const std::string& name, const std::string& out, bool anew)
    : experiments_(std::move(experiments)),
      cases_(std::move(cases)),
      folder_(worker, name, out),
      file_(folder(), kGenerationsFile, kRecord, lines_into(records_, check_generation)) {
  if (anew) {
    std::erase_if(records_, [&](const Json& record) {
      return std::any_of(cases_.begin(), cases_.end(), [&](const auto& c) { return is_of(record, generation_key(c)); });
    });
  }
  folder_.write_environment("how fast models generate images, batch after batch", !records_.empty(),
                            "choose another folder with --out");
  if (anew) file_.rewrite(records_);
}

int64_t GenerationRun::processes_of(const Generation& generation) const {
  const auto key = generation_key(generation);
  return std::count_if(records_.begin(), records_.end(), [&](const Json& record) { return is_of(record, key); });
}

bool GenerationRun::is_given_up(const Generation& generation) const {
  const auto key = generation_key(generation);
  return std::any_of(records_.begin(), records_.end(),
                     [&](const Json& record) { return is_of(record, key) && !is_measured(record); });
}

size_t GenerationRun::due() const {
  size_t count = 0;
  for (const auto& generation : cases_)
    if (!is_given_up(generation)) count += size_t(std::max<int64_t>(0, generation.processes - processes_of(generation)));
  return count;
}

size_t GenerationRun::measure(GenerationObserver& observer) {
  std::mt19937_64 random(std::random_device{}());
  const auto of = due();
  size_t number = 0;
  for (int64_t process = 1; due() > 0; ++process) {
    std::vector<Generation> round;
    for (const auto& generation : cases_)
      if (process <= generation.processes && processes_of(generation) < process && !is_given_up(generation))
        round.push_back(generation);
    std::shuffle(round.begin(), round.end(), random);
    for (const auto& generation : round) {
      observer.starting(++number, of, generation);
      file_.append(records_.emplace_back(run(generation, process)));
      observer.finished(number, of, records_.back());
    }
  }
  return size_t(std::count_if(cases_.begin(), cases_.end(), [&](const Generation& generation) {
    const auto key = generation_key(generation);
    return std::any_of(records_.begin(), records_.end(),
                       [&](const Json& record) { return is_of(record, key) && record.value("outcome", "") == outcome::failed; });
  }));
}

Json GenerationRun::run(const Generation& generation, int64_t process) const {
  const auto answer = run_worker(experiments_, "generation-speed", to_json(generation), generation.deadline_s);
  auto record = to_json(generation);
  record["schema_version"] = kSchemaVersion;
  record["process"] = process;
  record["finished_at"] = now_utc();
  if (const auto fault = fault_of(answer, 1); !fault.empty()) {
    record["outcome"] = outcome::failed;
    record["failure_kind"] = failure_kind(answer);
    record["reason"] = fault;
    return record;
  }
  const auto& line = answer.lines.front();
  if (line.value("kind", "") == "error") {
    record["outcome"] = outcome::failed;
    record["failure_kind"] = line.at("failure_kind");
    record["reason"] = line.at("message");
  } else {
    record.update(line);
  }
  return record;
}

}  // namespace attnbench
