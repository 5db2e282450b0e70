// Runs the processes of all cases in rounds, continues what a folder holds, and refuses what does not belong to it.
#include "harness/sweep/sweep_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "harness/machine/machine.h"
#include "harness/records/environment_file.h"
#include "harness/records/folder_names.h"
#include "harness/records/provenance.h"
#include "harness/statistics/statistics.h"
#include "harness/sweep/case_plans.h"
#include "harness/sweep/case_runner.h"
#include "harness/sweep/catalogue.h"
#include "harness/sweep/plausibility.h"
#include "harness/sweep/process_records.h"
#include "harness/text/errors.h"

namespace attnbench {
namespace {

std::string folder_of(const SweepPlan& plan, const Record& environment) {
  std::filesystem::path folder = default_folder("sweep", plan.sweep.stem(), environment);
  if (!plan.shard.is_all()) folder /= fmt::format("shard-{}-of-{}", plan.shard.number, plan.shard.count);
  return folder.string();
}

// What the records of one folder must have in common: the build, the machine and, if a case runs on a GPU, that GPU.
Json common_columns(const Record& environment, const std::vector<Record>& planned) {
  auto json = environment_columns(environment);
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
                     {"environment", common_columns(environment, plan.planned)},
                     {"machine", {{"system", system_name()}, {"memory_bytes", total_memory_bytes()}}},
                     {"settings", plan.sweep.settings()},
                     {"baselines", plan.sweep.baselines()}};
  if (!plan.shard.is_all()) provenance["shard"] = fmt::format("{}/{}", plan.shard.number, plan.shard.count);
  return provenance;
}

// A line for each file of a method or of inputs that has changed since its records in the folder were measured; empty if there is
// none.
std::string differences_of_files(const ResultFolder& folder, const SweepPlan& plan) {
  auto planned = plan.planned;
  for (const auto& baseline : plan.baselines)
    if (baseline) planned.push_back(baseline->planned);
  auto recorded = file_digests(folder.processes());
  recorded.merge(file_digests(folder.records()));
  return digest_differences(recorded, file_digests(planned));
}

// A line for each value in which the provenance `now` differs from that of the records in the folder; empty if there is none.
std::string differences(const ResultFolder& folder, const Json& now) {
  const auto& records = folder.records();
  if (std::all_of(records.begin(), records.end(), [](const Record& r) { return r.has("external_source"); })) return "";
  const auto before = folder.environment();
  // Each record says by itself how it was measured, so that a lost environment.json does not cost the measurements.
  if (before.is_null()) return record_differences(now, records);
  // More processes than before may be asked for: then the cases are continued.
  auto compared = now;
  auto& processes = compared["settings"]["processes"];
  if (const auto earlier = before.value("settings", Json::object()).value("processes", processes); earlier < processes)
    processes = earlier;
  auto text = provenance_differences(before, compared, ComparedNames::here);
  const auto then = before.value("shard", Json()), shard = now.value("shard", Json());
  if (then != shard) text += fmt::format("\n  shard: {} there, {} here", then.dump(), shard.dump());
  return text;
}

void learn_from(const std::vector<Record>& records, TimePredictor& predictor) {
  for (const auto& record : records)
    if (record.measured()) predictor.learn(record);
}

}  // namespace

SweepPlan plan_sweep(const WorkerProgram& worker, const std::string& file, const SweepOverrides& overrides,
                     const std::string& shard) {
  const auto catalogue = Catalogue::load(worker);
  SweepPlan plan{SweepFile(file, catalogue, overrides), Shard::parse(shard), {}, {}, {}, catalogue.diagnostics(), worker};
  for (size_t i = 0; const auto& c : plan.sweep.cases())
    if (plan.shard.has(i++)) plan.cases.push_back(c);
  if (plan.cases.empty()) throw UsageError(fmt::format("shard {} of sweep {} has no case", shard, plan.sweep.stem()));
  const auto origin_of = [&](const Case& c, const std::string& field) { return plan.sweep.origin_of(c, field); };
  plan.worker = worker_for(worker, plan.cases);
  plan.planned = plan_cases(plan.worker, plan.cases, origin_of);
  plan.baselines = plan_baselines(plan.worker, plan.cases, origin_of);
  for (auto& record : plan.planned) plan.sweep.published().annotate(record);
  return plan;
}

TimePredictor predict_without_ceilings(SweepPlan& plan, const std::vector<Record>& measured) {
  TimePredictor predictor(Ceilings::nominal(plan.cases.front().threads));
  learn_from(measured, predictor);
  for (auto& record : plan.planned) predict(record, predictor);
  for (auto& baseline : plan.baselines)
    if (baseline) predict(baseline->planned, predictor);
  return predictor;
}

SweepRun::SweepRun(WorkerProgram worker, SweepPlan plan, const SweepRunOptions& options)
    : worker_(std::move(worker)),
      worker_of_round_(plan.worker),
      plan_(std::move(plan)),
      environment_(ask_environment(worker_)),
      folder_(options.out.empty() ? folder_of(plan_, environment_) : options.out),
      provenance_(provenance_of(plan_, environment_)),
      random_(options.order_seed),
      order_seed_(options.order_seed),
      states_(plan_.cases.size()) {
  if (const auto different = differences(folder_, provenance_) + differences_of_files(folder_, plan_); !different.empty()) {
    if (options.resume != Resume::all && options.resume != Resume::stale)
      throw StaleFolderError(fmt::format(
          "{} holds records of another build, machine or configuration:{}\nchoose another folder with --out, or measure "
          "every case again with --resume stale",
          folder_.path(), different));
    folder_.set_aside();
  }
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < plan_.planned.size(); ++i) index.emplace(plan_.planned[i].key(), i);
  std::set<std::string> measured_anew;
  for (const auto& [key, i] : index) {
    const auto* existing = folder_.find(key);
    const bool failed = existing && existing->text("outcome") == outcome::failed;
    if (options.resume == Resume::all || (options.resume == Resume::failed && failed)) measured_anew.insert(key);
  }
  folder_.drop_processes(measured_anew);
  for (const auto& line : folder_.processes())
    if (const auto found = index.find(line.key()); found != index.end()) states_[found->second].processes.push_back(line);
  restore_records();
  record_command(options.command);
  for (size_t i = 0; i < states_.size(); ++i) {
    auto& state = states_[i];
    const auto key = plan_.planned[i].key();
    const auto* existing = folder_.find(key);
    if (existing && existing->has("external_source")) existing = nullptr;
    const bool is_planned = !plan_.planned[i].has("outcome");
    const bool measured_in_part = !state.processes.empty() && state.processes.back().measured() && open_processes(i) > 0;
    // Records from before there was a file of processes cannot be continued.
    const bool has_too_few = existing && existing->measured() && state.processes.empty() &&
                             int64_t(std::max<size_t>(1, existing->get("process_medians_ms").size())) < plan_.cases[i].processes;
    state.is_due = !existing || measured_anew.contains(key) || (is_planned && (measured_in_part || has_too_few));
  }
  if (!options.across_boots) check_boots();
}

// Several commands may have added cases to the folder; environment.json holds each of them once.
void SweepRun::record_command(const std::string& command) {
  if (command.empty()) return;
  const auto environment = folder_.environment();
  auto commands = environment.is_object() ? environment.value("commands", Json()) : Json();
  if (!commands.is_array()) commands = Json::array();
  if (std::find(commands.begin(), commands.end(), command) == commands.end()) commands.push_back(command);
  provenance_["commands"] = std::move(commands);
}

// Makes the records that a killed run could not write after the last process of their case.
void SweepRun::restore_records() {
  const auto environment = folder_.environment();
  if (environment.is_object() && environment.contains("ceilings")) {
    ceilings_ = read_answer(worker_, "ceilings", [&] { return Ceilings::from_json(environment["ceilings"]); });
    for (const auto* name : {"ceilings", "ceilings_of_rounds"})
      if (environment.contains(name)) provenance_[name] = environment[name];
  }
  for (size_t i = 0; i < states_.size(); ++i) {
    const auto& processes = states_[i].processes;
    const auto* existing = folder_.find(plan_.planned[i].key());
    const auto recorded = !existing                  ? 0
                          : existing->has("process") ? existing->get("process").get<size_t>()
                                                     : std::max<size_t>(1, existing->get("process_medians_ms").size());
    if (processes.size() > recorded) record(i, record_of_processes(processes, size_t(plan_.cases[i].processes), ceilings_));
  }
}

// The number of processes that the case needs besides those that it has: up to `processes`, and then one for each disturbed one.
size_t SweepRun::open_processes(size_t i) const {
  const auto& processes = states_[i].processes;
  const auto wanted = size_t(plan_.cases[i].processes), done = processes.size();
  if (done < wanted) return wanted - done;
  const auto disturbed = size_t(std::count_if(processes.begin(), processes.end(),
                                              [](const Record& process) { return process.get("disturbed_processes") == 1; }));
  const auto replaced = done - wanted, to_replace = std::min(disturbed, wanted / 4);
  return to_replace - std::min(replaced, to_replace);
}

size_t SweepRun::missing_processes(size_t i) const {
  if (!states_[i].is_due) return 0;
  return plan_.planned[i].has("outcome") ? 1 : open_processes(i);  // a record is written in place of a process
}

// The number of processes, ended or due, that replace disturbed ones.
size_t SweepRun::replacing_processes() const {
  size_t sum = 0;
  for (size_t i = 0; i < states_.size(); ++i) {
    const auto all = states_[i].processes.size() + (states_[i].is_due ? open_processes(i) : 0);
    sum += all - std::min(all, size_t(plan_.cases[i].processes));
  }
  return sum;
}

size_t SweepRun::due_cases() const {
  return size_t(std::count_if(states_.begin(), states_.end(), [](const State& state) { return state.is_due; }));
}

size_t SweepRun::due() const {
  size_t sum = 0;
  for (size_t i = 0; i < states_.size(); ++i) sum += missing_processes(i);
  return sum;
}

// Processes of one case on several hosts, or before and after a reboot, differ for reasons that have nothing to do with the case.
void SweepRun::check_boots() const {
  const auto host = host_name(), boot = boot_id();
  for (const auto& state : states_) {
    if (!state.is_due) continue;
    for (const auto& process : state.processes) {
      if (process.text("host") == host && process.text("boot") == boot) continue;
      throw UsageError(fmt::format(
          "{}: processes of this sweep ran {}; continue with --across-boots, which the records then say, or measure every case "
          "again with --resume all",
          folder_.path(),
          process.text("host") == host ? "before a reboot of this machine" : "on the host " + process.text("host")));
    }
  }
}

namespace {

// The predicted seconds of so many processes of a planned case and its baseline.
double predicted_s(Record planned, std::optional<PlannedCase> baseline, int64_t processes, const TimePredictor& predictor) {
  planned.set("processes", processes);
  predict(planned, predictor);
  if (baseline) predict(baseline->planned, predictor);
  return predicted_case_s(planned, baseline ? &baseline->planned : nullptr);
}

// The larger value of each number of two answers of `attnbench-worker ceilings`: what disturbs the machine makes ceilings lower.
// Times, of which the smaller one counts, have names that end in "_us".
Json best_ceilings(const Json& before, const Json& now) {
  if (!before.is_object() || !now.is_object()) return now;
  auto best = now;
  for (const auto& [name, value] : before.items()) {
    auto& mine = best[name];
    if (value.is_object()) mine = best_ceilings(value, mine);
    else if (value.is_number() && mine.is_number()) mine = name.ends_with("_us") ? std::min(value, mine) : std::max(value, mine);
  }
  return best;
}

}  // namespace

// Measures the ceilings of the machine again, and keeps the best of all rounds.
void SweepRun::measure_ceilings() {
  const auto measured = ask_worker(worker_, "ceilings", nullptr, 1)[0];
  const auto best = best_ceilings(provenance_.value("ceilings", Json()), measured);
  ceilings_ = read_answer(worker_, "ceilings", [&] { return Ceilings::from_json(best); });
  provenance_["ceilings"] = best;
  provenance_["ceilings_of_rounds"].push_back(measured);
  folder_.write_environment(provenance_);
}

// The best time of the arithmetic probe on this machine, so far: the first decile of the processes' bests, since a few processes
// may have met a processor that ran faster than it can for long. 0 before the first process.
double SweepRun::best_arithmetic_us() const {
  std::vector<double> bests;
  const auto take = [&](double best) {
    if (best > 0) bests.push_back(best);
  };
  const auto boot = boot_id();
  for (const auto& process : folder_.processes())
    if (process.text("boot") == boot) take(process.number("probe_best_arithmetic_us"));
  for (const auto& round : provenance_.value("ceilings_of_rounds", Json::array())) {
    const auto found = round.find("probe_arithmetic_us");
    if (found != round.end() && found->is_number()) take(found->get<double>());
  }
  std::sort(bests.begin(), bests.end());
  return bests.empty() ? 0 : quantile(bests, 0.1);
}

double SweepRun::remaining_s(const TimePredictor& predictor) const {
  double sum_s = 0;
  for (size_t i = 0; i < states_.size(); ++i) {
    if (!states_[i].is_due || plan_.planned[i].has("outcome")) continue;
    const auto processes = int64_t(missing_processes(i));
    sum_s += predicted_s(plan_.planned[i], plan_.baselines[i], processes, predictor);
  }
  return sum_s;
}

void SweepRun::record(size_t i, Record record) {
  record.merge(environment_);
  record.set("processes", plan_.cases[i].processes);
  if (!record.has("finished_at")) record.set("finished_at", now_utc());
  for (const auto* column : {"published_time_ms", "published_memory_bytes", "published_outcome", "published_source"})
    if (plan_.planned[i].has(column)) record.set(column, plan_.planned[i].get(column));
  folder_.append(record);
}

// Counts a process that is about to start.
SweepObserver::Place SweepRun::next_place() {
  const auto of = started_ + due(), replacing = replacing_processes();
  return {++started_, of, replacing - std::min(replacing, replacing_at_first_)};
}

// Runs the next process of the case. Returns its record with the columns of the environment.
Record SweepRun::run_next_process(size_t i, const Record& planned, const TimePredictor& predictor) {
  auto& state = states_[i];
  MeasuredCase measured{{plan_.cases[i], planned}, plan_.baselines[i]};
  if (measured.baseline) predict(measured.baseline->planned, predictor);
  auto options = next_process(state.processes);
  options.best_arithmetic_us = best_arithmetic_us();
  options.random = random_();
  options.no_baseline = state.no_baseline;
  auto process = run_process(worker_of_round_, measured, options);
  if (auto no_baseline = why_no_baseline(process); no_baseline && !no_baseline->may_pass())
    state.no_baseline = std::move(no_baseline);
  process.merge(environment_);
  return process;
}

// Runs one process of each of these cases, in this order.
void SweepRun::run_round(const std::vector<size_t>& order, int64_t round, TimePredictor& predictor, SweepObserver& observer) {
  for (size_t place = 0; place < order.size(); ++place) {
    const auto i = order[place];
    auto& state = states_[i];
    auto planned = plan_.planned[i];
    const auto rest_s = remaining_s(predictor);
    predict(planned, predictor);
    if (planned.has("outcome")) {
      // A prediction that rests on a disturbed measurement of another case may be better in the next round.
      const bool is_final = plan_.planned[i].has("outcome") || ++state.visits >= plan_.cases[i].processes;
      if (!is_final) continue;
      const auto number = next_place();
      state.is_due = false;
      observer.starting(number, planned, rest_s);
      record(i, planned);
      observer.finished(number, planned);
      continue;
    }
    const auto number = next_place();
    observer.starting(number, planned, rest_s);
    auto process = run_next_process(i, planned, predictor);
    process.set("process", int64_t(state.processes.size() + 1));
    process.set("round", round);
    process.set("place", int64_t(place + 1));
    folder_.append_process(process);
    state.processes.push_back(process);
    record(i, record_of_processes(state.processes, size_t(plan_.cases[i].processes), ceilings_));
    if (process.measured()) predictor.learn(process);
    if (!process.measured() || missing_processes(i) == 0) state.is_due = false;
    observer.finished(number, process);
  }
}

// Writes the records in the order of the plan, since rounds end in a random one. Only now are the neighbours of all records
// known.
void SweepRun::finish() {
  if (ceilings_)
    for (const auto& record : too_slow(folder_.records(), *ceilings_)) folder_.append(record);
  std::vector<std::string> keys;
  for (const auto& planned : plan_.planned) keys.push_back(planned.key());
  folder_.arrange(keys);
  folder_.write_csv();
}

size_t SweepRun::measure(SweepObserver& observer) {
  if (due_cases() == 0) {
    finish();
    return 0;
  }
  provenance_["order_seed"] = order_seed_;
  replacing_at_first_ = replacing_processes();
  measure_ceilings();
  folder_.write_schema(plan_.diagnostics);
  TimePredictor predictor(*ceilings_);
  learn_from(folder_.records(), predictor);
  std::vector<size_t> measured;
  for (size_t i = 0; i < states_.size(); ++i)
    if (states_[i].is_due) measured.push_back(i);
  try {
    int64_t round = 0;
    for (const auto& process : folder_.processes())
      if (process.has("round")) round = std::max(round, process.get("round").get<int64_t>());
    for (auto order = measured; !order.empty();) {
      std::shuffle(order.begin(), order.end(), random_);
      if (!worker_of_round_.server) worker_of_round_ = worker_for(worker_, plan_.cases);
      run_round(order, ++round, predictor, observer);
      // Processes that are forked from the same server have the same addresses. The processes of a case are independent samples
      // of these, too, because each round has a server of its own.
      worker_of_round_.server.reset();
      std::erase_if(order, [&](size_t i) { return !states_[i].is_due; });
      if (!order.empty()) measure_ceilings();
    }
  } catch (const Interrupted&) {
    finish();
    throw;
  }
  finish();
  return size_t(std::count_if(measured.begin(), measured.end(), [&](size_t i) {
    return folder_.find(plan_.planned[i].key())->text("outcome") == outcome::failed;
  }));
}

}  // namespace attnbench
