// Where a history is kept: in a file, or in the file history.jsonl of a branch of a remote repository.
#pragma once

#include <string>
#include <vector>

#include "harness/history/history_line.h"

namespace attnbench {

// The file of a branch.
inline constexpr auto kHistoryFile = "history.jsonl";

// A place that ends in ".jsonl" is a file. Any other is REMOTE/BRANCH, of a remote of the git repository that the folder
// `repository` lies in.
bool is_history_file(const std::string& place);

// The text of the history; empty for a branch that does not exist. Throws UsageError for a file that cannot be read, a remote
// that cannot be reached, and a place that is neither, and Interrupted.
std::string read_history_text(const std::string& place, const std::string& repository);

// Adds lines. To a file, they are appended in one step while no other process appends, and the file is made if it is missing. To
// a branch, a commit is made and pushed without touching the working tree; if another job has pushed meanwhile, it is made again
// on top of that, as often as it takes up to 20 times. Throws UsageError with git's message where that does not work; nothing
// that was in the history is lost.
void append_history(const std::string& place, const std::string& repository, const std::vector<HistoryLine>& lines);

}  // namespace attnbench
