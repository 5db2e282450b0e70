// A line of a history: what one run of one commit measured of one case on one machine.
//
// A history is a file of JSON Lines. Lines stand for themselves and their order means nothing, so that two histories are merged
// by keeping the lines of both, as git does with the attribute merge=union. A line that is there twice counts once; several lines
// of one commit, case, measure and machine are several runs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/schema/json.h"

namespace attnbench {

struct HistoryLine {
  std::string commit;        // 40 or 64 hexadecimal digits
  std::string committed_at;  // such as 2026-11-25T01:44:28Z
  std::string subject;       // the first line of its message; may be empty
  std::string machine;       // machines are never compared with each other
  std::string name;          // of the case
  std::string measure;       // such as "time"
  std::string unit;          // such as "s"; may be empty
  bool more_is_better = false;
  double value = 0;          // finite and above 0
  double low = 0, high = 0;  // the 95 % interval; NaN if there is none
  std::string measured_at;   // may be empty

  bool operator==(const HistoryLine&) const = default;
};

// The text of a line with its line end.
std::string text_of(const HistoryLine& line);
// Reads the text of a history. A last line without a line end is left out, since a killed program leaves such behind. Throws
// UsageError, which names `where` and the line, for a line that is none.
std::vector<HistoryLine> read_history(std::string_view text, const std::string& where);

// The most bytes of a history.
inline constexpr size_t kLongestHistory = size_t{512} << 20;

}  // namespace attnbench
