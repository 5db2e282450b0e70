// Values published elsewhere. A sweep file names the file that holds them, and tables show them beside the measured ones.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "harness/schema/record.h"

namespace attnbench {

// A CSV file. Its columns are axes and some of time_ms, memory_bytes, outcome and source. A row applies to every case that has
// the same values as the cells of its axes; an empty cell applies to any value.
class Published {
 public:
  Published() = default;
  // Throws UsageError with file and line; for an unknown column also with the known ones.
  explicit Published(const std::string& path);

  // Sets the published_… columns of the record from the rows that apply to its case.
  void annotate(Record& record) const;

 private:
  struct Row {
    std::vector<std::pair<std::string, std::string>> axes;
    std::vector<std::pair<std::string, Json>> values;
  };
  std::vector<Row> rows_;
};

}  // namespace attnbench
