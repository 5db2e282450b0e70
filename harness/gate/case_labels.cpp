// Names the cases of a suite by their axes, in full and without the axes that no two cases differ in.
#include "harness/gate/case_labels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

namespace attnbench {
namespace {

// The axes in the order in which names have them.
std::vector<const Field*> axes() {
  const auto leading = {std::string_view("method"), std::string_view("protocol"), std::string_view("query_len")};
  std::vector<const Field*> first, others;
  for (const auto& field : fields()) {
    if (field.role != FieldRole::axis) continue;
    (std::find(leading.begin(), leading.end(), field.name) != leading.end() ? first : others).push_back(&field);
  }
  std::sort(first.begin(), first.end(), [&](const Field* a, const Field* b) {
    return std::find(leading.begin(), leading.end(), a->name) < std::find(leading.begin(), leading.end(), b->name);
  });
  first.insert(first.end(), others.begin(), others.end());
  return first;
}

// The part of a name that an axis makes, such as "linear", "N=4096", "not causal" or "heads=8".
std::string part(const Case& c, const Field& field, const MethodNames& names) {
  const auto value = get(c, field);
  if (value.is_boolean()) return fmt::format("{}{}", value.get<bool>() ? "" : "not ", field.name);
  auto text = value.is_string() ? value.get<std::string>() : value.dump();
  if (field.name == "method") return names.of(text);
  if (field.name == "protocol") return text;
  return fmt::format("{}={}", field.name == "query_len" ? "N" : field.name, text);
}

bool differ_in(const std::vector<Case>& cases, const Field& field) {
  return std::any_of(cases.begin(), cases.end(), [&](const Case& c) { return get(c, field) != get(cases[0], field); });
}

// Whether the full name of the case has the axis.
bool is_in_full_name(const Case& c, const Field& field, bool cases_differ) {
  if (field.name == "threads") return cases_differ;
  return field.name == "method" || field.name == "protocol" || field.name == "query_len" || !is_default(c, field);
}

std::vector<std::string> names_of(const std::vector<Case>& cases, const MethodNames& methods) {
  std::vector<std::vector<std::string>> parts(cases.size());
  for (const auto* field : axes()) {
    const bool cases_differ = differ_in(cases, *field);
    for (size_t i = 0; i < cases.size(); ++i)
      if (is_in_full_name(cases[i], *field, cases_differ)) parts[i].push_back(part(cases[i], *field, methods));
  }
  std::vector<std::string> names;
  for (const auto& of_case : parts) names.push_back(fmt::format("{}", fmt::join(of_case, " ")));
  return names;
}

}  // namespace

std::vector<std::string> full_names(const std::vector<Case>& cases) { return names_of(cases, {}); }

CaseLabels label_cases(const std::vector<Case>& cases, const MethodNames& methods) {
  if (cases.size() < 2) return {names_of(cases, methods), ""};
  std::vector<std::vector<std::string>> parts(cases.size());
  std::vector<std::string> shared;
  for (const auto* field : axes()) {
    const bool cases_differ = differ_in(cases, *field);
    const bool is_named =
        std::any_of(cases.begin(), cases.end(), [&](const Case& c) { return is_in_full_name(c, *field, cases_differ); });
    if (!is_named) continue;
    if (!cases_differ) shared.push_back(part(cases[0], *field, methods));
    else
      for (size_t i = 0; i < cases.size(); ++i) parts[i].push_back(part(cases[i], *field, methods));
  }
  CaseLabels labels{{}, fmt::format("{}", fmt::join(shared, ", "))};
  for (const auto& of_case : parts) labels.names.push_back(fmt::format("{}", fmt::join(of_case, " ")));
  return labels;
}

}  // namespace attnbench
