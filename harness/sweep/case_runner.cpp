#include "harness/sweep/case_runner.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "harness/schema/machine.h"
#include "harness/statistics/statistics.h"
#include "harness/text/errors.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

constexpr size_t kMinProcesses95 = 6;  // the fewest values whose order statistics give a 95 % interval of the median

// Adds the columns that are computed from the samples. If several processes measured the case, their medians are the samples of
// the median and of its interval.
void add_statistics(Record& record) {
  if (const auto& wall = record.get("wall_samples_ms"); wall.is_array() && !wall.empty())
    record.set("wall_median_ms", median(wall.get<std::vector<double>>()));
  const auto& list = record.get("time_samples_ms");
  if (!list.is_array() || list.empty()) return;
  auto samples = list.get<std::vector<double>>();
  const auto& medians = record.get("process_medians_ms");
  const bool across = medians.is_array();
  const auto counted = across ? medians.get<std::vector<double>>() : samples;
  const auto [low, high] = across ? order_statistic_interval(counted) : median_interval(counted);
  const auto middle = median(counted);
  record.set("time_ci_scope", !across                             ? "within process"
                              : counted.size() >= kMinProcesses95 ? "across processes"
                                                                  : "range of processes");
  std::sort(samples.begin(), samples.end());
  record.set("time_median_ms", middle);
  record.set("time_q1_ms", quantile(samples, 0.25));
  record.set("time_q3_ms", quantile(samples, 0.75));
  record.set("time_ci_low_ms", low);
  record.set("time_ci_high_ms", high);
  record.set("time_per_sample_ms", middle / std::max(1.0, record.number("batch")));
}

// Marks the record as implausible if its time is below what the machine's ceilings allow. Then something other than the method
// was timed.
void add_plausibility(Record& record, const Ceilings& machine) {
  const auto* const found = machine.of(record);
  if (!found) return;
  const auto& ceilings = *found;
  constexpr double slack = 0.9;  // because the measured ceilings have an error, too
  const auto time_ms = record.number("time_median_ms");
  const auto refuse_below = [&](double min_ms, const std::string& ceiling) {
    if (time_ms < slack * min_ms)
      record.set("implausible", fmt::format("{} is below the {} that {} allows", format_ms(time_ms), format_ms(min_ms), ceiling));
  };
  // Data that fits into the caches can move faster than the bandwidth of main memory allows.
  if (record.number("min_bytes") > ceilings.array_bytes)
    refuse_below(record.number("min_bytes") / ceilings.bandwidth_gb_s / 1e6,
                 fmt::format("the measured bandwidth of {:.1f} GB/s", ceilings.bandwidth_gb_s));
  const auto rate = ceilings.rate_gflop_s(record.text("dtype"));
  refuse_below(record.number("flops") / rate / 1e6, fmt::format("the measured arithmetic rate of {:.0f} GFLOP/s", rate));
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
    record.merge(result);
  } catch (const std::invalid_argument& error) {
    record.set_failed(kind::protocol, fmt::format("the worker's answer is not a record: {}", error.what()));
  }
}

// Gives the record of the first process the samples and the sums of all processes, and the median of each.
void add_processes(Record& record, const std::vector<Record>& processes) {
  auto medians = Json::array();
  double measured_s = 0;
  int64_t samples = 0, warmup_calls = 0;
  for (const auto* column : {"time_samples_ms", "wall_samples_ms"}) {
    auto all = Json::array();
    for (const auto& process : processes)
      for (const auto& sample : process.get(column)) all.push_back(sample);
    if (!all.empty()) record.set(column, all);
  }
  for (const auto& process : processes) {
    medians.push_back(median(process.get("time_samples_ms").get<std::vector<double>>()));
    measured_s += process.number("measured_s");
    samples += process.get("samples").get<int64_t>();
    warmup_calls += process.get("warmup_calls").get<int64_t>();
  }
  record.set("process_medians_ms", medians);
  record.set("measured_s", measured_s);
  record.set("samples", samples);
  record.set("warmup_calls", warmup_calls);
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
  if (record.text("failure_kind") == kind::usage) {
    const auto origin = origin_of ? origin_of(c, reason) : "";
    throw UsageError(origin.empty() ? reason : fmt::format("{}: {}", origin, reason));
  }
  if (record.text("outcome") == outcome::failed) throw broken(reason);
  return record;
}

}  // namespace

std::string now_utc() {
  return fmt::format("{:%FT%TZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
}

Json portable_request(const Case& c) {
  const Case defaults;
  Json request;
  for (const auto& field : fields())
    if (get(c, field) != get(defaults, field)) request[std::string(field.name)] = get(c, field);
  return request;
}

std::vector<Record> run_in_turns(const std::vector<CaseOfBuild>& sides, uint64_t random) {
  std::vector<WorkerRequest> requests;
  double deadline_s = 0;
  bool one_thread = true;
  for (const auto& [worker, c] : sides) {
    requests.push_back({worker, portable_request(c)});
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
    if (record.measured()) add_statistics(record);
  }
  return records;
}

Record run_process(const WorkerProgram& worker, const Case& c, const Record& planned, bool is_first) {
  Record record = planned;
  auto asked = c;
  if (record.has("memory_limit_bytes")) asked.memory_limit_bytes = record.get("memory_limit_bytes").get<int64_t>();
  // The agreement at the small size does not depend on the process, so it is checked in the first one.
  const std::vector<std::string> arguments = is_first ? std::vector<std::string>{} : std::vector<std::string>{"--no-small-check"};
  const auto answer = run_worker(worker, "measure", to_json(asked), c.deadline_s, {}, arguments);
  take_answer(record, answer);
  record.set("worker_s", answer.wall_s);
  record.set("host", host_name());
  record.set("boot", boot_id());
  record.set("finished_at", now_utc());
  if (record.measured()) add_statistics(record);
  return record;
}

Record record_of_processes(const std::vector<Record>& processes, const std::optional<Ceilings>& ceilings) {
  auto record = processes.back().measured() ? processes.front() : processes.back();
  for (const auto* column : {"process", "round", "place", "boot"}) record.set(column, nullptr);
  std::set<std::string> hosts, boots;
  double worker_s = 0;
  for (const auto& process : processes) {
    hosts.insert(process.text("host"));
    boots.insert(process.text("boot"));
    worker_s += process.number("worker_s");
  }
  record.set("host", fmt::format("{}", fmt::join(hosts, ", ")));
  if (boots.size() > 1) record.set("boots", int64_t(boots.size()));
  record.set("worker_s", worker_s);
  record.set("finished_at", processes.back().get("finished_at"));
  if (!record.measured()) return record;
  if (processes.size() > 1) add_processes(record, processes);
  add_statistics(record);
  if (ceilings) add_plausibility(record, *ceilings);
  return record;
}

Record run_case(const WorkerProgram& worker, const Case& c, const Record& planned, const Record& environment,
                const std::optional<Ceilings>& ceilings) {
  Record record = planned;
  if (!record.has("outcome")) {
    std::vector<Record> processes;
    do processes.push_back(run_process(worker, c, planned, processes.empty()));
    while (processes.back().measured() && int64_t(processes.size()) < c.processes);
    record = record_of_processes(processes, ceilings);
  }
  record.merge(environment);
  record.set("finished_at", now_utc());
  return record;
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

std::vector<Record> plan_cases(const WorkerProgram& worker, const std::vector<Case>& cases, const OriginOf& origin_of) {
  // One worker plans so few cases that it ends long before its deadline.
  constexpr size_t kCasesPerWorker = 2000;
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
