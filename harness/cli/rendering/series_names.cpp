// Describes a series by the axes in which the series of an analysis differ.
#include "harness/cli/rendering/series_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/schema/case.h"

namespace attnbench {

SeriesNames::SeriesNames(const std::vector<Series>& all) {
  const auto only_follows = [&](const std::string& axis) {
    const std::string followed(find_axis(axis)->follows);
    return !followed.empty() && std::all_of(all.begin(), all.end(), [&](const Series& series) {
      const auto place = series.setting.find(followed);
      return place != series.setting.end() && (series.setting.at(axis).is_null() || series.setting.at(axis) == place->second);
    });
  };
  for (const auto& series : all)
    for (const auto& [axis, value] : series.setting)
      if (axis != "method" && value != all.front().setting.at(axis) && !only_follows(axis)) varying_.insert(axis);
}

std::string SeriesNames::setting(const Series& series, const std::vector<std::string>& left_out) const {
  std::vector<std::string> axes;
  for (const auto& axis : varying_)
    if (std::find(left_out.begin(), left_out.end(), axis) == left_out.end()) axes.push_back(axis);
  return of(series, axes, "not");
}

std::string SeriesNames::of(const Series& series, const std::vector<std::string>& axes, const std::string& negation) {
  std::vector<std::string> parts;
  for (const auto& axis : axes) {
    const auto& value = series.setting.at(axis);
    if (value.is_boolean()) parts.push_back(value.get<bool>() ? axis : negation + " " + axis);
    else parts.push_back(value.is_string() ? value.get<std::string>() : axis + " " + value.dump());
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace attnbench
