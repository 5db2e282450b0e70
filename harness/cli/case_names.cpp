#include "harness/cli/case_names.h"

#include <fmt/format.h>

#include <map>

#include "harness/cli/record_table.h"

namespace attnbench {
namespace {

// A flag is named only where it is set.
std::string part_of_name(const Record& record, const std::string& axis) {
  const auto& value = record.get(axis);
  if (value.is_boolean()) return value.get<bool>() ? " " + axis : "";
  return fmt::format(" {}={}", axis, plain_text(value));
}

}  // namespace

CaseNames::CaseNames(const std::vector<Record>& all) {
  std::vector<std::string> names;
  for (const auto& record : all) names.push_back(of(record));
  for (const auto& field : fields()) {
    if (field.role != FieldRole::axis) continue;
    const std::string axis(field.name);
    std::map<std::string, std::string> part_by_name;
    bool is_needed = false;
    for (size_t i = 0; i < all.size(); ++i) {
      const auto part = part_of_name(all[i], axis);
      is_needed = is_needed || part_by_name.emplace(names[i], part).first->second != part;
    }
    if (!is_needed) continue;
    others_.push_back(axis);
    for (size_t i = 0; i < all.size(); ++i) names[i] += part_of_name(all[i], axis);
  }
}

std::string CaseNames::of(const Record& record) const {
  auto name = fmt::format("{} {} N={}{}", record.text("method"), record.text("protocol"), record.get("query_len").dump(),
                          part_of_name(record, "causal"));
  for (const auto& axis : others_) name += part_of_name(record, axis);
  return name;
}

}  // namespace attnbench
