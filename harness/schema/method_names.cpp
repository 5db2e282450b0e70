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

// The value of an option in the text of a method; empty if it has none.
std::string option_of(std::string_view options, std::string_view wanted) {
  while (!options.empty()) {
    const auto option = options.substr(0, options.find(','));
    options.remove_prefix(std::min(options.size(), option.size() + 1));
    if (option.starts_with(wanted)) return std::string(option.substr(wanted.size()));
  }
  return "";
}

// The text of a Python method without the options that do not change what it computes.
std::string without_names(const std::string& method) {
  std::string text(attn::method_name(method));
  auto separator = ':';
  for (auto options = attn::method_options(method); !options.empty();) {
    const auto option = options.substr(0, options.find(','));
    options.remove_prefix(std::min(options.size(), option.size() + 1));
    if (option.starts_with("like=") || option.starts_with("as=")) continue;
    text += separator + std::string(option);
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
      if (names[0].empty()) names[0] = option_of(attn::method_options(method), "as=");
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
  for (const auto& [method, shown] : names_)
    if (shown == name) return method;
  return name;
}

std::string MethodNames::of_baseline(const Record& record) const {
  const auto baseline = record.text("baseline");
  const auto method = baseline.substr(0, baseline.find(' '));
  return of(method) + baseline.substr(method.size());
}

}  // namespace attnbench
