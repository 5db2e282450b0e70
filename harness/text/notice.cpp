#include "harness/text/notice.h"

namespace attnbench {

void print_notice(std::string_view text, FILE* out) {
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

}  // namespace attnbench
