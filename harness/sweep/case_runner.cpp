#include "harness/sweep/case_runner.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "attn/former_options.h"
#include "attn/method_name.h"
#include "harness/schema/machine.h"
#include "harness/statistics/disturbance.h"
#include "harness/statistics/equivalence.h"
#include "harness/statistics/statistics.h"
#include "harness/sweep/plausibility.h"
#include "harness/sweep/python_files.h"
#include "harness/text/errors.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

// The text of the column time_ci_scope for a case with so many processes.
std::string scope_text(size_t processes) {
  const auto name = scope_name(scope_of(processes));
  return name.empty() ? kSpreadWithinProcess : name;
}

// Marks a time that a side effect may have made longer. Memory that is kept between calls should cause no page faults.
void add_suspicion(Record& record) {
  constexpr double kMaxFaults = 100, kMaxSystemShare = 0.05;
  const auto faults = record.number("page_faults_per_call"), share = record.number("system_share");
  if (record.text("allocation") == "kept" && faults > kMaxFaults && share > kMaxSystemShare)
    record.set("suspect",
               fmt::format("{:.0f} page faults a call and {:.0f} % of the processor time in the system, although memory "
                           "is kept between calls",
                           faults, 100 * share));
}

// Adds the columns that are computed from the samples of one process.
void add_statistics(Record& record) {
  if (const auto wall = record.numbers("wall_samples_ms"); !wall.empty()) record.set("wall_median_ms", median(wall));
  const auto max_share = record.number("max_disturbance");
  const auto shares = record.numbers("sample_disturbances"), all = record.numbers("time_samples_ms");
  if (all.empty()) return;
  auto [samples, disturbed] = counted(all, shares, max_share);
  record.set("disturbed_samples", int64_t(all.size() - undisturbed(all, shares, max_share).size()));
  record.set("disturbed_processes", disturbed ? 1 : 0);
  std::sort(samples.begin(), samples.end());
  record.set("time_median_ms", quantile(samples, 0.5));
  record.set("time_q1_ms", quantile(samples, 0.25));
  record.set("time_q3_ms", quantile(samples, 0.75));
  record.set("time_ci_low_ms", quantile(samples, 0.25));
  record.set("time_ci_high_ms", quantile(samples, 0.75));
  record.set("time_ci_scope", scope_text(1));
  record.set("time_per_sample_ms", quantile(samples, 0.5) / std::max(1.0, record.number("batch")));
  add_suspicion(record);
}

// How a baseline was measured beside a case, as the column ratio_pairing says it.
constexpr std::string_view kInTurns = "turns", kInProcesses = "processes";

void set_no_baseline(Record& record, const NoBaseline& why) {
  record.set("ratio_pairing", nullptr);
  record.set("ratio_failure_kind", why.kind.empty() ? Json() : Json(why.kind));
  record.set("ratio_reason", why.reason);
}

// The failure of a baseline that was not measured.
NoBaseline failure_of(const Record& baseline) { return {baseline.text("failure_kind"), baseline.text("reason")}; }

// Adds the columns of the ratio, from the records of one process of the case and one of its baseline.
void add_ratio(Record& record, const Record& baseline, std::string_view pairing) {
  record.set("ratio_pairing", pairing);
  const auto samples = baseline.numbers("time_samples_ms"), shares = baseline.numbers("sample_disturbances");
  record.set("baseline_samples_ms", samples);
  record.set("baseline_disturbances", shares);
  record.set("baseline_median_ms", baseline.number("time_median_ms"));
  if (pairing == kInProcesses)
    return record.set("ratio_median", record.number("time_median_ms") / baseline.number("time_median_ms"));
  auto [ratios, disturbed] = counted_ratios(record.numbers("time_samples_ms"), record.numbers("sample_disturbances"), samples,
                                            shares, record.number("max_disturbance"));
  if (ratios.empty()) return set_no_baseline(record, {"", "it ended before its first sample"});
  if (disturbed) record.set("disturbed_processes", 1);
  std::sort(ratios.begin(), ratios.end());
  record.set("ratio_median", quantile(ratios, 0.5));
  record.set("ratio_ci_low", quantile(ratios, 0.25));
  record.set("ratio_ci_high", quantile(ratios, 0.75));
}

// Says what is wrong with a worker's result for the case `asked`, as the end of a sentence that begins with "the worker's
// answer". Returns nothing if the result can be recorded.
std::optional<std::string> fault_of_result(const Record& result, const Record& asked) {
  const auto ended = result.text("outcome");
  if (ended != outcome::measured && ended != outcome::skipped && ended != outcome::failed)
    return fmt::format("has the outcome '{}', expected measured, skipped or failed", ended);
  if (ended != outcome::measured && !result.has("failure_kind"))
    return fmt::format("has the outcome '{}' without a failure_kind", ended);
  const auto& samples = result.get("time_samples_ms");
  const auto is_number = [](const Json& sample) { return sample.is_number(); };
  if (ended == outcome::measured &&
      (!samples.is_array() || samples.empty() || !std::all_of(samples.begin(), samples.end(), is_number)))
    return "has the outcome 'measured' without numbers in time_samples_ms";
  for (const auto& field : fields())
    if (result.has(field.name) && result.get(field.name) != asked.get(field.name))
      return fmt::format("is about another case: its {} is not the requested one", field.name);
  return std::nullopt;
}

// Merges the worker's answer into the record. If the answer is not as it should be, the case has failed.
void take_answer(Record& record, const WorkerAnswer& answer) {
  if (auto fault = fault_of(answer, 1); !fault.empty()) return record.set_failed(failure_kind(answer), std::move(fault));
  try {
    const auto result = Record::parse(answer.lines[0]);
    if (const auto fault = fault_of_result(result, record))
      return record.set_failed(kind::protocol, "the worker's answer " + *fault);
    if (const auto planned = record.text("method_digest"); !planned.empty() && result.text("method_digest") != planned)
      return record.set_failed(kind::error, "the file of the method has changed since the case was planned");
    if (const auto planned = record.text("inputs_digest"); !planned.empty() && result.text("inputs_digest") != planned)
      return record.set_failed(kind::error, "the file of the inputs has changed since the case was planned");
    record.merge(result);
  } catch (const std::invalid_argument& error) {
    record.set_failed(kind::protocol, fmt::format("the worker's answer is not a record: {}", error.what()));
  }
}

// The values of a column in these records, without the missing ones.
std::vector<double> values_of(const std::vector<const Record*>& records, std::string_view column) {
  std::vector<double> values;
  for (const auto* record : records)
    if (record->has(column)) values.push_back(record->number(column));
  return values;
}

// The processes that count for the estimates: the undisturbed ones, unless fewer than `wanted` would remain.
std::vector<const Record*> counted_processes(const std::vector<Record>& processes, size_t wanted) {
  std::vector<const Record*> all, undisturbed;
  for (const auto& process : processes) {
    all.push_back(&process);
    if (process.get("disturbed_processes") != 1) undisturbed.push_back(&process);
  }
  return undisturbed.size() < std::min(wanted, all.size()) ? all : undisturbed;
}

// Sets a median of the processes' values, its interval, and the list of the values.
void set_across(Record& record, const std::vector<double>& values, const std::string& median_column,
                const std::string& low_column, const std::string& high_column, const std::string& list_column) {
  for (const auto& column : {median_column, low_column, high_column, list_column}) record.set(column, nullptr);
  if (values.empty()) return;
  record.set(median_column, median(values));
  record.set(list_column, values);
  if (values.size() < 2) return;
  const auto [low, high] = order_statistic_interval(values);
  record.set(low_column, low);
  record.set(high_column, high);
}

// Gives the record of the first process the samples and the sums of all processes, and the statistics across them.
void add_processes(Record& record, const std::vector<Record>& processes, size_t wanted) {
  for (const auto* column :
       {"time_samples_ms", "wall_samples_ms", "sample_disturbances", "baseline_samples_ms", "baseline_disturbances"}) {
    auto joined = Json::array();
    for (const auto& process : processes)
      for (const auto& sample : process.get(column)) joined.push_back(sample);
    record.set(column, joined.empty() ? Json() : joined);
  }
  std::vector<const Record*> all;
  for (const auto& process : processes) all.push_back(&process);
  for (const auto* column : {"measured_s", "samples", "samples_with_launches", "warmup_calls", "disturbed_samples",
                             "disturbed_processes", "involuntary_switches"}) {
    const auto values = values_of(all, column);
    const auto sum = std::accumulate(values.begin(), values.end(), 0.0);
    const bool is_integer = find_column(column)->type == ColumnType::integer;
    record.set(column, values.empty() ? Json() : is_integer ? Json(int64_t(std::llround(sum))) : Json(sum));
  }
  const auto counting = counted_processes(processes, wanted);
  for (const auto* column : {"time_q1_ms", "time_q3_ms", "wall_median_ms", "baseline_median_ms", "probe_arithmetic_us",
                             "probe_memory_us", "probe_best_arithmetic_us", "probe_best_memory_us", "processor_share",
                             "system_share", "run_delay_share", "steal_share", "page_faults_per_call", "load", "cpu_clock_mhz"})
    if (const auto values = values_of(counting, column); !values.empty()) record.set(column, median(values));
  set_across(record, values_of(counting, "time_median_ms"), "time_median_ms", "time_ci_low_ms", "time_ci_high_ms",
             "process_medians_ms");
  record.set("process_q1_ms", values_of(counting, "time_q1_ms"));
  record.set("process_rounds", values_of(counting, "round"));
  record.set("time_ci_scope", scope_text(counting.size()));
  record.set("time_per_sample_ms", record.number("time_median_ms") / std::max(1.0, record.number("batch")));
  set_across(record, values_of(counting, "ratio_median"), "ratio_median", "ratio_ci_low", "ratio_ci_high", "process_ratios");
  for (const auto* column : {"ratio_pairing", "ratio_failure_kind", "ratio_reason"}) {
    std::set<std::string> texts;
    for (const auto& process : processes)
      if (process.has(column)) texts.insert(process.text(column));
    record.set(column, texts.empty() ? Json() : Json(fmt::format("{}", fmt::join(texts, "; "))));
  }
  add_suspicion(record);
}

// The error about a case that makes no sense, because of this field.
UsageError refusal(const Case& c, const std::string& field, const std::string& reason, const OriginOf& origin_of) {
  const auto origin = origin_of ? origin_of(c, field) : "";
  return UsageError(origin.empty() ? reason : fmt::format("{}: {}", origin, reason));
}

// The record of a case with the worker's plan for it.
Record planned_record(const Case& c, const Json& plan, const OriginOf& origin_of) {
  const auto broken = [&](const std::string& how) {
    return WorkerError(fmt::format("method '{}' broke while its cost was predicted: {}", c.method, how));
  };
  Record record(c);
  try {
    record.merge(Record::parse(plan));
  } catch (const std::invalid_argument& error) {
    throw broken(error.what());
  }
  const auto reason = record.text("reason");
  if (record.is_refused()) throw refusal(c, record.text("failure_field"), reason, origin_of);
  if (record.text("outcome") == outcome::failed) throw broken(reason);
  return record;
}

}  // namespace

std::optional<NoBaseline> why_no_baseline(const Record& process) {
  if (!process.has("ratio_reason")) return std::nullopt;
  return NoBaseline{process.text("ratio_failure_kind"), process.text("ratio_reason")};
}

std::string now_utc() {
  return fmt::format("{:%FT%TZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
}

Json portable_request(const Case& c) {
  const Case defaults;
  Json request;
  for (const auto& field : fields()) {
    // A newer axis that follows another one has no default of its own, and case_from_json() lets it follow.
    const bool follows = field.since > 1 && !field.follows.empty() && get(c, field) == get(c, *find_field(field.follows));
    if (get(c, field) != get(defaults, field) && !follows) request[std::string(field.name)] = get(c, field);
    // Workers of earlier versions know the former names of options only, and this version's know both.
    if (field.name == "method" || field.name == "baseline")
      if (const auto found = request.find(field.name); found != request.end())
        *found = attn::with_former_options(found->get_ref<const std::string&>());
  }
  return request;
}

std::vector<Record> run_in_turns(const std::vector<CaseOfBuild>& sides, uint64_t random) {
  std::vector<WorkerRequest> requests;
  double deadline_s = 0;
  bool one_thread = true;
  for (const auto& [worker, c, arguments] : sides) {
    requests.push_back({worker, portable_request(c), arguments});
    deadline_s += c.deadline_s;  // each worker waits for the turns of the others
    one_thread = one_thread && c.threads == 1;
  }
  const auto processors = available_processor_numbers();
  const int processor = one_thread && !processors.empty() ? processors[random % processors.size()] : -1;
  const auto answers = run_in_turns(requests, processor, deadline_s);
  std::vector<Record> records;
  for (size_t i = 0; i < sides.size(); ++i) {
    auto& record = records.emplace_back(sides[i].c);
    take_answer(record, answers[i]);
    if (record.text("failure_kind") == kind::timeout)
      record.set("reason", record.text("reason") + "; this worker, or one that it took turns with, hung");
    record.set("worker_s", answers[i].wall_s);
    record.set("process_start", answers[i].start);
    if (record.measured()) add_statistics(record);
  }
  return records;
}

namespace {

std::vector<std::string> measure_arguments(const ProcessOptions& options) {
  std::vector<std::string> arguments;
  // The agreement at the small size does not depend on the process, so it is checked in the first one.
  if (!options.is_first) arguments.emplace_back("--no-small-check");
  if (options.best_arithmetic_us > 0) arguments.push_back(fmt::format("--best-probe={:.4g}", options.best_arithmetic_us));
  return arguments;
}

// The quality of a case does not depend on the process either, and is no part of a comparison of builds.
std::vector<std::string> measure_arguments_of_case(const ProcessOptions& options) {
  auto arguments = measure_arguments(options);
  if (options.is_first) arguments.emplace_back("--quality");
  return arguments;
}

// The case as the worker is asked to measure it, with the memory budget of the plan.
Case asked_case(const PlannedCase& planned) {
  auto c = planned.c;
  if (planned.planned.has("memory_limit_bytes")) c.memory_limit_bytes = planned.planned.get("memory_limit_bytes").get<int64_t>();
  return c;
}

// Runs a case without others beside it.
Record run_alone(const WorkerProgram& worker, const PlannedCase& planned, const ProcessOptions& options) {
  auto record = planned.planned;
  const auto answer =
      run_worker(worker, "measure", to_json(asked_case(planned)), planned.c.deadline_s, {}, measure_arguments_of_case(options));
  take_answer(record, answer);
  record.set("worker_s", answer.wall_s);
  record.set("process_start", answer.start);
  if (record.measured()) add_statistics(record);
  return record;
}

Record run_after_each_other(const WorkerProgram& worker, const MeasuredCase& measured, const ProcessOptions& options) {
  Record baseline, record;
  const bool begins = options.random % 2 == 0;
  if (!begins) baseline = run_alone(worker, *measured.baseline, options);
  record = run_alone(worker, measured, options);
  if (begins) baseline = run_alone(worker, *measured.baseline, options);
  if (!record.measured()) return record;
  if (baseline.measured()) add_ratio(record, baseline, kInProcesses);
  else set_no_baseline(record, failure_of(baseline));
  return record;
}

Record run_beside_baseline(const WorkerProgram& worker, const MeasuredCase& measured, const ProcessOptions& options) {
  std::vector<CaseOfBuild> sides = {{worker, asked_case(measured), measure_arguments_of_case(options)},
                                    {worker, asked_case(*measured.baseline), measure_arguments(options)}};
  const size_t place = options.random % 2;
  if (place == 1) std::swap(sides[0], sides[1]);
  const auto answers = run_in_turns(sides, options.random / 2);
  const auto &answer = answers[place], &baseline = answers[1 - place];
  auto record = measured.planned;
  record.merge(answer);
  if (record.measured() && baseline.measured()) {
    add_ratio(record, baseline, kInTurns);
    return record;
  }
  if (record.measured()) {
    set_no_baseline(record, failure_of(baseline));
    return record;
  }
  // The turns end when either process ends, and both share the deadline and the memory. What the case does alone decides.
  const bool is_own_failure = baseline.measured() || baseline.text("failure_kind") == kind::error;
  auto why = failure_of(is_own_failure ? record : baseline);
  if (is_own_failure) why.reason = "beside the baseline, the case failed: " + why.reason;
  record = run_alone(worker, measured, options);
  if (record.measured()) set_no_baseline(record, why);
  return record;
}

}  // namespace

Record run_process(const WorkerProgram& worker, const MeasuredCase& measured, const ProcessOptions& options) {
  auto no_baseline = options.no_baseline;
  if (measured.baseline && measured.baseline->planned.has("outcome")) no_baseline = failure_of(measured.baseline->planned);
  Record record;
  if (!measured.baseline || no_baseline) {
    record = run_alone(worker, measured, options);
    if (measured.baseline && record.measured()) set_no_baseline(record, *no_baseline);
  } else {
    const auto need = predicted_need_bytes(measured.planned) + predicted_need_bytes(measured.baseline->planned);
    const bool both_fit = !(need > measured.planned.number("memory_limit_bytes"));
    record = both_fit ? run_beside_baseline(worker, measured, options) : run_after_each_other(worker, measured, options);
  }
  record.set("host", host_name());
  record.set("boot", boot_id());
  record.set("finished_at", now_utc());
  return record;
}

Record record_of_processes(const std::vector<Record>& processes, size_t wanted, const std::optional<Ceilings>& ceilings) {
  auto record = processes.back().measured() ? processes.front() : processes.back();
  for (const auto* column : {"round", "place", "boot"}) record.set(column, nullptr);
  record.set("process", int64_t(processes.size()));
  std::set<std::string> hosts, boots, starts;
  double worker_s = 0;
  for (const auto& process : processes) {
    hosts.insert(process.text("host"));
    boots.insert(process.text("boot"));
    if (process.has("process_start")) starts.insert(process.text("process_start"));
    worker_s += process.number("worker_s");
  }
  record.set("host", fmt::format("{}", fmt::join(hosts, ", ")));
  if (!starts.empty()) record.set("process_start", fmt::format("{}", fmt::join(starts, "; ")));
  if (boots.size() > 1) record.set("boots", int64_t(boots.size()));
  record.set("worker_s", worker_s);
  record.set("finished_at", processes.back().get("finished_at"));
  if (!record.measured()) return record;
  if (processes.size() > 1) add_processes(record, processes, wanted);
  if (ceilings) mark_too_fast(record, *ceilings);
  return record;
}

Record run_case(const WorkerProgram& worker, const MeasuredCase& measured, const Record& environment,
                const std::optional<Ceilings>& ceilings) {
  auto record = measured.planned;
  if (!record.has("outcome")) {
    const auto wanted = size_t(measured.c.processes);
    std::vector<Record> processes;
    std::random_device random;
    auto used = worker;
    do {
      // Processes that are forked from the same server have the same addresses, and are no independent samples of these.
      if (worker.server && !processes.empty()) used = worker_for(worker, {measured.c});
      auto options = next_process(processes);
      options.random = random();
      processes.push_back(run_process(used, measured, options));
    } while (processes.back().measured() && processes.size() < wanted);
    record = record_of_processes(processes, wanted, ceilings);
  }
  record.merge(environment);
  record.set("finished_at", now_utc());
  return record;
}

WorkerProgram worker_for(const WorkerProgram& worker, const std::vector<Case>& cases) {
  bool takes_turns = false;
  auto methods = cases;
  for (const auto& c : cases)
    if (const auto baseline = baseline_of(c)) {
      takes_turns = true;
      methods.push_back(*baseline);
    }
  const bool on_cpu = std::all_of(cases.begin(), cases.end(), [](const Case& c) { return c.device == "cpu"; });
  return worker.forks && on_cpu && any_python_method(methods) ? forking(worker, takes_turns) : worker;
}

ProcessOptions next_process(const std::vector<Record>& processes) {
  ProcessOptions options;
  options.is_first = processes.empty();
  for (const auto& process : processes) {
    const auto best = process.number("probe_best_arithmetic_us");
    if (best > 0 && (options.best_arithmetic_us == 0 || best < options.best_arithmetic_us)) options.best_arithmetic_us = best;
  }
  return options;
}

void take_line(Record& record, const Json& line) {
  try {
    record.merge(Record::parse(line));
  } catch (const std::invalid_argument& error) {
    record.set_failed(kind::protocol, fmt::format("the worker's answer is not a record: {}", error.what()));
  }
}

const char* failure_kind(const WorkerAnswer& answer) {
  if (answer.end == WorkerAnswer::End::deadline) return kind::timeout;
  const bool crashed =
      answer.end == WorkerAnswer::End::signalled || (answer.end == WorkerAnswer::End::exited && answer.code != 0);
  return crashed ? kind::crashed : kind::protocol;
}

Record ask_environment(const WorkerProgram& worker) {
  const auto answer = ask_worker(worker, "environment", nullptr, 1)[0];
  return read_answer(worker, "environment", [&] { return Record::parse(answer); });
}

std::vector<std::optional<PlannedCase>> plan_baselines(const WorkerProgram& worker, const std::vector<Case>& cases,
                                                       const OriginOf& origin_of) {
  // Several cases may have the same baseline.
  std::map<std::string, size_t> index;
  std::vector<Case> distinct;
  std::vector<std::optional<size_t>> places;
  for (const auto& c : cases) {
    auto& place = places.emplace_back();
    const auto baseline = baseline_of(c);
    if (!baseline) continue;
    const auto [found, is_new] = index.emplace(case_key(to_json(*baseline)), distinct.size());
    if (is_new) distinct.push_back(*baseline);
    place = found->second;
  }
  const auto planned = plan_cases(worker, distinct, origin_of);
  std::vector<std::optional<PlannedCase>> baselines;
  for (const auto& place : places) {
    auto& baseline = baselines.emplace_back();
    if (place) baseline = PlannedCase{distinct[*place], planned[*place]};
  }
  return baselines;
}

std::vector<Record> plan_cases(const WorkerProgram& worker, const std::vector<Case>& cases, const OriginOf& origin_of) {
  // One worker plans so few cases that it ends long before its deadline.
  constexpr size_t kCasesPerWorker = 2000;
  const auto mistakes = mistakes_in_python_files(worker, cases);
  for (const auto& c : cases)
    if (const auto found = mistakes.find(std::string(attn::method_name(c.method))); found != mistakes.end())
      throw refusal(c, "method", found->second, origin_of);
  std::vector<Record> planned;
  while (planned.size() < cases.size()) {
    const auto begin = planned.size(), end = std::min(cases.size(), begin + kCasesPerWorker);
    auto request = Json::array();
    for (size_t i = begin; i < end; ++i) request.push_back(to_json(cases[i]));
    const auto plans = ask_worker(worker, "plan", request, end - begin);
    for (size_t i = begin; i < end; ++i) planned.push_back(planned_record(cases[i], plans[i - begin], origin_of));
  }
  return planned;
}

}  // namespace attnbench
