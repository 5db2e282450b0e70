// Shortens the names of methods as far as they stay different.
#include "harness/schema/method_names.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "attn/method_name.h"

namespace attnbench {
namespace {

std::vector<std::pair<std::string, std::string>> methods_of(const std::vector<const Record*>& records) {
  std::vector<std::pair<std::string, std::string>> methods;
  for (const auto* record : records) {
    methods.emplace_back(record->text("method"), record->text("method_label"));
    // A baseline may have no record, but its text has the label that the option `as` gives.
    const auto baseline = record->text("baseline");
    if (!baseline.empty()) methods.emplace_back(baseline.substr(0, baseline.find(' ')), "");
  }
  return methods;
}

std::vector<const Record*> pointers_to(const std::vector<Record>& records) {
  std::vector<const Record*> pointers;
  for (const auto& record : records) pointers.push_back(&record);
  return pointers;
}

constexpr std::string_view kAs = "as=", kLike = "like=";

// The options in the text of a method, such as "window=64".
std::vector<std::string> options_of(const std::string& method) {
  std::vector<std::string> all;
  for (auto options = attn::method_options(method); !options.empty();) {
    all.emplace_back(options.substr(0, options.find(',')));
    options.remove_prefix(std::min(options.size(), all.back().size() + 1));
  }
  return all;
}

// The label that the option `as` gives; empty if the method does not have it.
std::string label_in(const std::string& method) {
  for (const auto& option : options_of(method))
    if (option.starts_with(kAs)) return option.substr(kAs.size());
  return "";
}

// The text of a Python method without the options that do not change what it computes.
std::string without_names(const std::string& method) {
  std::string text(attn::method_name(method));
  auto separator = ':';
  for (const auto& option : options_of(method)) {
    if (option.starts_with(kLike) || option.starts_with(kAs)) continue;
    text += separator + option;
    separator = ',';
  }
  return text;
}

}  // namespace

MethodNames::MethodNames(const std::vector<const Record*>& all) : MethodNames(methods_of(all)) {}
MethodNames::MethodNames(const std::vector<Record>& all) : MethodNames(pointers_to(all)) {}

MethodNames::MethodNames(const std::vector<std::pair<std::string, std::string>>& methods) {
  // By the whole text: the names from the shortest on, each of which is taken if no other method has it.
  std::map<std::string, std::array<std::string, 3>> candidates;
  for (const auto& [method, label] : methods) {
    auto& names = candidates[method];
    names = {names[0], method, method};
    if (attn::is_python_name(attn::method_name(method))) {
      names[1] = without_names(method);
      if (names[0].empty()) names[0] = label_in(method);
    }
    if (!label.empty()) names[0] = label;
  }
  for (auto& [method, names] : candidates)
    if (names[0].empty()) names[0] = names[1];
  std::map<std::string, size_t> length;
  for (bool changed = true; changed;) {
    changed = false;
    std::map<std::string, size_t> count;
    for (const auto& [method, names] : candidates) ++count[names[length[method]]];
    for (const auto& [method, names] : candidates) {
      auto& at = length[method];
      if (at + 1 == names.size() || count[names[at]] == 1) continue;
      ++at;
      changed = true;
    }
  }
  for (const auto& [method, names] : candidates) names_[method] = names[length[method]];
}

const std::string& MethodNames::of(const std::string& method) const {
  const auto found = names_.find(method);
  return found == names_.end() ? method : found->second;
}

std::string MethodNames::text_of(const std::string& name) const {
  if (names_.contains(name)) return name;
  for (const auto& [method, shown] : names_)
    if (shown == name) return method;
  return name;
}

std::string MethodNames::baseline_name(const Record& record) const {
  const auto baseline = record.text("baseline");
  const auto method = baseline.substr(0, baseline.find(' '));
  return of(method) + baseline.substr(method.size());
}

}  // namespace attnbench
