// Expands the lists of values of a sweep file into cases.
#include "harness/sweep/sweep_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "harness/process/interrupts.h"
#include "harness/text/errors.h"

namespace attnbench {

std::vector<Case> SweepFile::cases() const {
  std::map<std::string, std::string> seen;  // the baseline of each case by its key
  std::vector<Case> unique;
  for (const auto& block : blocks_)
    for (auto& c : cases_of(block)) {
      throw_if_interrupted();
      c.complete();
      const auto [known, is_new] = seen.emplace(case_key(to_json(c)), c.baseline);
      if (known->second != c.baseline)
        throw UsageError(fmt::format("sweep {} has a case with two baselines, '{}' and '{}', expected one: {}", stem_,
                                     known->second, c.baseline, known->first));
      if (is_new) unique.push_back(std::move(c));
      if (unique.size() > kMaxCases) throw too_many_cases();
    }
  return unique;
}

UsageError SweepFile::too_many_cases() const {
  return UsageError(fmt::format("sweep {} has more than {} cases", stem_, kMaxCases));
}

std::vector<Case> SweepFile::cases_of(const Block& block) const {
  const auto& axes = block.axes;
  Case base = settings_;
  if (block.baseline) base.baseline = *block.baseline;
  base.complete();  // asks the system for the defaults of this machine once, not for each case
  // An axis whose default is the value of another axis gets it later, from the other axis of each case.
  for (const auto& field : fields())
    if (!field.follows.empty()) set_to_default(base, field);
  std::vector<Case> all = {base};
  // Axes are taken in the order of their declaration, and ratios after all others, because a ratio depends on another axis.
  const auto widen = [&](const Axis& axis, const auto& values_for) {
    std::vector<Case> wider;
    for (const auto& c : all) {
      throw_if_interrupted();
      for (const auto& value : values_for(c)) set(wider.emplace_back(c), *axis.field, value);
      if (wider.size() > kMaxCases) throw too_many_cases();
    }
    all = std::move(wider);
  };
  for (const auto& field : fields())
    for (const auto& axis : axes)
      if (axis.field == &field && !axis.ratio) widen(axis, [&](const Case&) { return axis.values; });
  for (const auto& axis : axes) {
    if (!axis.ratio) continue;
    widen(axis, [&](Case c) {
      c.complete();
      const auto divisor = get(c, *axis.ratio->denominator).get<int64_t>();
      return std::vector<Json>{std::max<int64_t>(1, axis.ratio->numerator / std::max<int64_t>(1, divisor))};
    });
  }
  return all;
}

std::string SweepFile::origin_of(const Case& c, const std::string& name) const {
  for (const auto& block : blocks_)
    for (const auto& axis : block.axes) {
      if (axis.field->name != name) continue;
      const auto value = std::find(axis.values.begin(), axis.values.end(), get(c, *axis.field));
      if (value != axis.values.end()) return axis.origins[size_t(value - axis.values.begin())];
    }
  return "";
}

Json SweepFile::settings() const {
  Json settings;
  for (const auto& field : fields())
    if (field.role == FieldRole::setting && field.name != "baseline") settings[std::string(field.name)] = get(settings_, field);
  return settings;
}

std::vector<std::string> SweepFile::baselines() const {
  std::vector<std::string> all;
  for (const auto& block : blocks_) all.push_back(block.baseline.value_or(settings_.baseline));
  return all;
}

}  // namespace attnbench
