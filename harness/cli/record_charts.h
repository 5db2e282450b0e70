// Small charts of times against lengths, which `table` and `analyse` show on a terminal.
#pragma once

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

// The charts of the time of a sequence against its length, one for each setting, as rows of text: at most kMaxCharts, those of the
// settings with the most points. A setting needs a method with times at two lengths.
inline constexpr size_t kMaxCharts = 4;
std::vector<std::vector<std::string>> charts_of(const std::vector<Record>& records, bool colours);

// Prints the charts, as many beside each other as fit, and an empty line below them.
void print_charts(const std::vector<Record>& records, Charts charts);
// Prints what print_records() prints, and the charts beside the table, or below it where they do not fit.
void print_records_beside_charts(const std::vector<Record>& records, Rows rows, Charts charts);

}  // namespace attnbench
