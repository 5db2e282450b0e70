// Times and memory published elsewhere, such as in a paper. A sweep file names the file that holds them, and tables show them
// beside the measured values.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "harness/schema/record.h"

namespace attnbench {

// The rows of a CSV file whose columns are axes and some of time_ms, memory_bytes, outcome and source. A row applies to every
// case whose axes have the values of the row's cells; an empty cell applies to any value.
class Published {
 public:
  Published() = default;
  // Reads the file. Throws UsageError that names the file and the line, and for an unknown column also lists the known ones.
  explicit Published(const std::string& path);

  // Sets the published_… columns of the record from the rows that apply to its case. Where several rows set the same column, the
  // last row counts.
  void annotate(Record& record) const;

 private:
  struct Row {
    std::vector<std::pair<std::string, std::string>> axes;
    std::vector<std::pair<std::string, Json>> values;
  };
  std::vector<Row> rows_;
};

}  // namespace attnbench
