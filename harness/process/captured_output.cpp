// Implements captured runs, with a bound on the output and the message about a program that fails.
#include "harness/process/captured_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string_view>
#include <utility>

namespace attnbench {
namespace {

constexpr size_t kMaxOutputBytes = size_t{256} << 20;
constexpr size_t kMaxQuotedBytes = 4096;

std::string how_it_ended(const ChildResult& result) {
  switch (result.end) {
    case ChildEnd::signalled: return fmt::format("ended by signal {}", result.code);
    case ChildEnd::flooded: return fmt::format("was ended because it wrote more than {} MiB", kMaxOutputBytes >> 20);
    case ChildEnd::deadline: return "was ended at its deadline";
    case ChildEnd::exited: break;
  }
  return fmt::format("ended with exit code {}", result.code);
}

// The end of the text, without spaces and line ends around it.
std::string end_of(std::string text) {
  if (text.size() > kMaxQuotedBytes) text.erase(0, text.size() - kMaxQuotedBytes);
  const auto begin = text.find_first_not_of(" \n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \n") + 1 - begin);
}

}  // namespace

std::string CapturedOutput::failure() const {
  auto said = end_of(errors);
  if (said.empty()) said = end_of(output);
  return fmt::format("{}; it said: {}", how_it_ended(result), said.empty() ? "nothing" : said);
}

CapturedOutput run_captured(ChildCommand command, double deadline_s) {
  CapturedOutput captured;
  const auto receive_into = [](std::string& text) {
    return [&text](std::string_view more) {
      text += more;
      return text.size() <= kMaxOutputBytes;
    };
  };
  command.outputs = {{{STDOUT_FILENO}, receive_into(captured.output)}, {{STDERR_FILENO}, receive_into(captured.errors)}};
  captured.result = ChildProcess(std::move(command)).finish(deadline_s);
  return captured;
}

}  // namespace attnbench
