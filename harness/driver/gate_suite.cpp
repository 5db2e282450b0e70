#include "harness/driver/gate_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#define TOML_ASSERT(expression) static_cast<void>(0)
#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include "harness/driver/errors.h"
#include "harness/driver/nearest.h"

namespace attnbench {

std::string case_name(const Case& c) {
  auto name = fmt::format("{} {} N={}", c.method, c.protocol, c.query_len);
  Case plain;
  plain.query_len = c.query_len;
  plain.head_dim = c.head_dim;
  plain.threads = c.threads;
  plain.protocol = c.protocol;
  plain.complete();
  for (const auto& field : fields()) {
    if (field.role != FieldRole::axis || field.name == "method") continue;
    const auto value = get(c, field);
    // Head size tells cases apart though others follow from it.
    if (value == get(plain, field) && !(field.name == "head_dim" && c.head_dim != Case().head_dim)) continue;
    if (value.is_boolean()) name += fmt::format(" {}{}", value.get<bool>() ? "" : "not ", field.name);
    else name += fmt::format(" {}={}", field.name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return name;
}

Waivers read_waivers(const std::string& path, const std::vector<std::string>& names) {
  Waivers waivers;
  if (path.empty()) return waivers;
  toml::table file;
  try {
    file = toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    const auto where = error.source().begin;
    throw UsageError(fmt::format("{}:{}:{}: {}", path, where.line, where.column, error.description()));
  }
  const auto fail = [&](const toml::node& node, const std::string& message) {
    const auto where = node.source().begin;
    throw UsageError(fmt::format("{}:{}:{}: {}", path, where.line, where.column, message));
  };
  for (const auto& [key, value] : file) {
    if (key.str() != "waive" || !value.is_array_of_tables()) fail(value, "expected only [[waive]] tables");
    for (const auto& item : *value.as_array()) {
      const auto& table = *item.as_table();
      for (const auto& [name, entry] : table)
        if ((name.str() != "case" && name.str() != "reason") || !entry.is_string())
          fail(entry, fmt::format("'{}' in [[waive]], expected case and reason as text", name.str()));
      const auto name = table["case"].value_or<std::string>(""), reason = table["reason"].value_or<std::string>("");
      if (name.empty()) fail(item, "a waiver without a case");
      if (reason.empty()) fail(item, fmt::format("the waiver of '{}' has no reason", name));
      if (std::find(names.begin(), names.end(), name) == names.end())
        fail(item, fmt::format("the suite has no case '{}'{}", name, suggestion(name, names)));
      waivers[name] = reason;
    }
  }
  return waivers;
}

double median_log_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) ratios.push_back(std::log(b[i] / a[i]));
  return median(std::move(ratios));
}

GateReport report_of(const std::vector<SuiteCase>& suite, const std::vector<Judgement>& judgements, const Waivers& waivers,
                     double memory_shift) {
  GateReport report;
  bool any[4] = {};
  for (size_t i = 0; i < suite.size(); ++i) {
    const auto& c = suite[i];
    auto& line = report.lines.emplace_back();
    line.name = c.name;
    line.judgement = judgements.at(i);
    line.processes = std::max(c.sides[0].medians.size(), c.sides[1].medians.size());
    const auto &before = c.sides[0].peak_extra_bytes, &after = c.sides[1].peak_extra_bytes;
    if (!before.empty() && !after.empty())
      line.memory_regression =
          *std::min_element(after.begin(), after.end()) > *std::max_element(before.begin(), before.end()) * (1 + memory_shift);
    auto result = GateResult::pass;
    if (!c.unusable.empty()) {
      result = GateResult::unusable;
      line.verdict = "unusable: " + c.unusable;
    } else {
      line.verdict = verdict_name(line.judgement.verdict);
      if (line.judgement.verdict == Verdict::inconclusive) result = GateResult::inconclusive;
      if (line.judgement.verdict == Verdict::regression || line.memory_regression) result = GateResult::regression;
      if (line.memory_regression)
        line.verdict += line.judgement.verdict == Verdict::regression ? ", memory too" : ", regression in memory";
    }
    const auto waiver = waivers.find(c.name);
    if (waiver != waivers.end() && result != GateResult::pass) line.waived = waiver->second;
    else any[size_t(result)] = true;
  }
  for (const auto result : {GateResult::unusable, GateResult::regression, GateResult::inconclusive})
    if (any[size_t(result)]) {
      report.result = result;
      break;
    }
  // A certain slowdown is one, whatever else could not be told.
  if (any[size_t(GateResult::regression)]) report.result = GateResult::regression;
  return report;
}

}  // namespace attnbench
