// Reads files of comma-separated values up to a length that no table of measurements has.
#include "harness/files/csv_file.h"

#include "harness/files/text_file.h"

namespace attnbench {

std::vector<CsvRow> read_csv(const std::string& path) {
  constexpr size_t kMaxBytes = size_t{256} << 20;
  return parse_csv(read_text_file(path, kMaxBytes), path);
}

}  // namespace attnbench
