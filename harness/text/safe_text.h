// Makes text from elsewhere, such as names, paths and a worker's messages, safe to show.
#pragma once

#include <string>
#include <string_view>

namespace attnbench {

enum class LineEnds { kept, replaced };

// Returns the text with a space in place of each character that could move the cursor, change colours or reorder what a terminal
// or a page shows: the control characters U+0000 to U+001F and U+007F to U+009F, the separators U+2028 and U+2029, and the marks
// of the writing direction. Bytes that are not UTF-8 become U+FFFD.
std::string safe_text(std::string_view text, LineEnds line_ends = LineEnds::replaced);

}  // namespace attnbench
