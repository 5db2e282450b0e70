// Values published elsewhere, that a sweep file refers to so that tables can show them beside our own.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "harness/schema/record.h"

namespace attnbench {

// A CSV file whose columns are axes (a row holds for every case that agrees with its non-empty cells) and some of time_ms,
// memory_bytes, outcome and source.
class Published {
 public:
  Published() = default;
  // Throws UsageError with file and line, and the known column names.
  explicit Published(const std::string& path);

  // Sets the published_… columns of the case's record from the rows that match it.
  void annotate(Record& record) const;

 private:
  struct Row {
    std::vector<std::pair<std::string, std::string>> axes;
    std::vector<std::pair<std::string, Json>> values;
  };
  std::vector<Row> rows_;
};

}  // namespace attnbench
