// Runs the processes that measure a case, alone or in turns with others, and takes what workers answer into records.
#include "harness/sweep/case_runner.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <utility>

#include "attn/former_options.h"
#include "harness/machine/machine.h"
#include "harness/sweep/python_files.h"
#include "harness/text/errors.h"

namespace attnbench {
namespace {

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

}  // namespace

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

// `digest` is that of the results which an earlier process has compared, or empty.
std::vector<std::string> measure_arguments(const ProcessOptions& options, const std::string& digest) {
  std::vector<std::string> arguments;
  // The agreement at the small size does not depend on the process, so it is checked in the first one.
  if (!options.is_first) arguments.emplace_back("--no-small-check");
  if (!digest.empty()) arguments.push_back("--compared=" + digest);
  if (options.best_arithmetic_us > 0) arguments.push_back(fmt::format("--best-probe={:.4g}", options.best_arithmetic_us));
  return arguments;
}

// The quality of a case does not depend on the process either, and is no part of a comparison of builds.
std::vector<std::string> measure_arguments_of_case(const ProcessOptions& options) {
  auto arguments = measure_arguments(options, options.digest);
  if (options.is_first) arguments.emplace_back("--quality");
  return arguments;
}

// The case as the worker is asked to measure it, with the memory budget of the plan.
Case asked_case(const PlannedCase& planned) {
  auto c = planned.c;
  if (planned.planned.has("memory_limit_bytes")) c.memory_limit_bytes = planned.planned.get("memory_limit_bytes").get<int64_t>();
  return c;
}

// The program that has the ranks of a case started and measured, as a worker that is no C++ program: it ends the ranks at the
// case's deadline, and says which was late. Nothing if there is no interpreter or no package.
std::optional<WorkerProgram> program_of_ranks(const WorkerProgram& worker) {
  const auto interpreter = interpreter_of(worker), script = package_file(worker, "distributed/case.py");
  if (interpreter.empty() || script.empty()) return std::nullopt;
  return WorkerProgram{.path = script, .launcher = {interpreter, "-P"}};
}

// Runs a case without others beside it.
Record run_alone(const WorkerProgram& worker, const PlannedCase& planned, const ProcessOptions& options) {
  constexpr double kGraceS = 30, kCleaningS = 5;  // in which the program of ranks ends them, and removes its files
  auto record = planned.planned;
  const auto c = asked_case(planned);
  const auto ranks = c.ranks > 1 ? program_of_ranks(worker) : std::nullopt;
  if (c.ranks > 1 && !ranks) {
    record.set_skipped(kind::unsupported,
                       "several ranks need the Python package attnbench, which this program does not find; `make python` builds "
                       "it, and the environment variable ATTNBENCH_PYTHON names the interpreter");
    return record;
  }
  const auto answer = ranks ? run_worker(*ranks, "measure", to_json(c), c.deadline_s + kGraceS, {},
                                         {"--build=" + std::filesystem::path(worker.path).parent_path().string()}, kCleaningS)
                            : run_worker(worker, "measure", to_json(c), c.deadline_s, {}, measure_arguments_of_case(options));
  take_answer(record, answer);
  record.set("worker_s", answer.wall_s);
  record.set("process_start", answer.start);
  if (record.measured()) add_statistics(record);
  return record;
}

Record run_after_each_other(const WorkerProgram& worker, const MeasuredCase& measured, const ProcessOptions& options) {
  Record baseline, record;
  auto of_baseline = options;
  of_baseline.digest = options.baseline_digest;
  const bool begins = options.random % 2 == 0;
  if (!begins) baseline = run_alone(worker, *measured.baseline, of_baseline);
  record = run_alone(worker, measured, options);
  if (begins) baseline = run_alone(worker, *measured.baseline, of_baseline);
  if (!record.measured()) return record;
  if (baseline.measured()) add_ratio(record, baseline, kInProcesses);
  else set_no_baseline(record, failure_of(baseline));
  return record;
}

Record run_beside_baseline(const WorkerProgram& worker, const MeasuredCase& measured, const ProcessOptions& options) {
  std::vector<CaseOfBuild> sides = {
      {worker, asked_case(measured), measure_arguments_of_case(options)},
      {worker, asked_case(*measured.baseline), measure_arguments(options, options.baseline_digest)}};
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
    const bool takes_turns = both_fit && measured.c.ranks == 1 && measured.baseline->c.ranks == 1;
    record = takes_turns ? run_beside_baseline(worker, measured, options) : run_after_each_other(worker, measured, options);
  }
  record.set("host", host_name());
  record.set("boot", boot_id());
  record.set("finished_at", now_utc());
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
  // The first process has compared its results, because it was told of none.
  if (!processes.empty() && processes.front().measured()) {
    options.digest = processes.front().text("results_digest");
    options.baseline_digest = processes.front().text("baseline_digest");
  }
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

}  // namespace attnbench
