// Options that several commands have alike.
#pragma once

#include <CLI/CLI.hpp>

#include "harness/statistics/comparison.h"
#include "harness/text/text_table.h"

namespace attnbench {

void add_format_option(CLI::App& command, TableFormat& format);    // --format
void add_criteria_options(CLI::App& command, Criteria& criteria);  // --alpha, --min-shift, --margin

}  // namespace attnbench
