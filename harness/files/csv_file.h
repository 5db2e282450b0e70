// Reads files of comma-separated values.
#pragma once

#include <string>
#include <vector>

#include "harness/text/csv.h"

namespace attnbench {

// The rows of a file, as parse_csv() gives them. Throws UsageError as parse_csv() and read_text_file() do.
std::vector<CsvRow> read_csv(const std::string& path);

}  // namespace attnbench
