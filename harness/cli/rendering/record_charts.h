// Small charts of times against lengths, which `table` and `analyse` show on a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "harness/cli/command_line.h"
#include "harness/cli/shared_options.h"
#include "harness/schema/record.h"

namespace attnbench {

// When charts are printed.
enum class Charts { on_terminals, always, never };
// Adds --charts.
void add_charts_option(Command& command, Charts& charts);

// The most charts that are shown.
inline constexpr size_t kMaxCharts = 4;

struct RecordCharts {
  std::vector<std::vector<std::string>> charts;  // the rows of text of each
  std::string note;                              // says how many charts are left out; empty if all are shown
};

// The charts of the time of a sequence in ms against its length, one for each setting: those of the settings with the most
// points. A setting needs a method with times at two lengths. No row of a chart has more than `width` columns. There are no
// charts if the width is too small for one.
RecordCharts charts_of(const std::vector<Record>& records, size_t width, bool colours);

// Prints the charts, as many beside each other as fit, and an empty line below them.
void print_charts(const std::vector<Record>& records, Charts charts);
// Prints what print_records() prints, and the charts beside the end of the table, or below it where they do not fit.
void print_records_beside_charts(const std::vector<Record>& records, Rows rows, Charts charts);
// Throws UsageError if charts are asked for in an output that has none.
void check_charts(Charts charts, bool has_charts);

}  // namespace attnbench
