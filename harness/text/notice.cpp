#include "harness/text/notice.h"

#include "harness/text/safe_text.h"

namespace attnbench {

void print_notice(std::string_view text, FILE* out) { print_styled(safe_text(text, LineEnds::kept), out); }

void print_styled(std::string_view text, FILE* out) {
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

}  // namespace attnbench
