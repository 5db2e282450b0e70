// Descriptions of the series of an analysis.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "harness/analysis/series.h"

namespace attnbench {

// Describes a series by those axes in which the series of an analysis differ. The method is not part of the description, nor an
// axis that has in every series the value of the axis that it follows (Field::follows).
class SeriesNames {
 public:
  explicit SeriesNames(const std::vector<Series>& all);
  // The description by all of these axes except those in `left_out`.
  std::string setting(const Series& series, const std::vector<std::string>& left_out = {}) const;
  // The description by these axes. `negation` is put before the name of a flag that is false.
  static std::string of(const Series& series, const std::vector<std::string>& axes, const std::string& negation = "no");

 private:
  std::set<std::string> varying_;
};

}  // namespace attnbench
