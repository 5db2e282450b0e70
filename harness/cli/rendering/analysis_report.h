// What `attnbench analyse` prints: how time and memory grow, where methods cross over, and which lengths fit into memory.
#pragma once

#include <string>
#include <vector>

#include "harness/analysis/analysis.h"
#include "harness/cli/rendering/series_names.h"
#include "harness/cli/shared_options.h"
#include "harness/text/text_table.h"

namespace attnbench {

// Each of these prints a section for the format `text` or `markdown`. With `all`, it also shows every row.
void print_growth(const Analysis& analysis, const SeriesNames& names, bool all, Format format);
void print_crossovers(const Analysis& analysis, const SeriesNames& names, bool all, Format format);
void print_budget_fits(const Analysis& analysis, const SeriesNames& names, bool all, Format format);

// How many declared orders and how many comparisons have which verdict, in two sentences.
std::vector<std::string> verdicts_in_words(const Analysis& analysis);

// Parts of the sections.
std::string heading(const std::string& title, Format format);
void print_section(const std::string& title, const TextTable& table, Format format);
// Prints an item of a list, whose text Markdown is not to interpret.
void print_item(const std::string& text, Format format);
// "all 4" or "3 of the 4"
std::string share_text(size_t count, size_t total);

}  // namespace attnbench
