// Sends cases to workers to be planned, many at a time, and turns a refusal into an error that says where the case is from.
#include "harness/sweep/case_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "attn/method_name.h"
#include "harness/sweep/python_files.h"
#include "harness/text/errors.h"

namespace attnbench {
namespace {

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

Record ask_environment(const WorkerProgram& worker) {
  const auto answer = ask_worker(worker, "environment", nullptr, 1)[0];
  return read_answer(worker, "environment", [&] { return Record::parse(answer); });
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

}  // namespace attnbench
