// Runs the command in a shell, and reads what it wrote.
#include "harness/gate/commands/benchmark_command.h"

#include <fmt/format.h>

#include <string_view>
#include <system_error>

#include "harness/files/text_file.h"
#include "harness/process/captured_output.h"
#include "harness/text/errors.h"
#include "harness/text/shell_words.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOut = "{out}";
// Time for the command to end what it has started, after SIGTERM.
constexpr double kBenchmarkGraceS = 5;

std::string with_file(std::string text, const fs::path& file) {
  const auto word = shell_text({file.string()});
  for (size_t at = 0; (at = text.find(kOut, at)) != std::string::npos; at += word.size()) text.replace(at, kOut.size(), word);
  return text;
}

}  // namespace

ForeignRun run_benchmark_command(const BenchmarkCommand& command, const std::string& side,
                                 const std::vector<std::string>& launcher, const std::vector<std::string>& variables,
                                 const fs::path& folder) {
  const auto file = folder / "benchmark-results.json";
  const bool writes_file = command.text.find(kOut) != std::string::npos;
  const auto where = fmt::format("--command: `{}` in the copy of the {}", command.text, side);
  std::error_code error;
  fs::remove(file, error);
  auto words = launcher;
  words.insert(words.end(), variables.begin(), variables.end());
  words.insert(words.end(), {"sh", "-c", with_file(command.text, file)});
  const auto captured =
      run_captured({.words = std::move(words), .grace_s = kBenchmarkGraceS, .ends_as_group = true}, command.deadline_s);
  if (captured.result.end == ChildEnd::deadline)
    throw WorkerError(fmt::format("{} had not ended after {} (--deadline) and {}", where, format_seconds(command.deadline_s),
                                  captured.failure()));
  if (!captured.succeeded()) throw WorkerError(fmt::format("{} {}", where, captured.failure()));
  const auto lacks_results = [&](const std::string& why) {
    return WorkerError(fmt::format("{} wrote no benchmark results: {}; it {}", where, why, captured.failure()));
  };
  try {
    if (!writes_file) return read_foreign_run(captured.output, "standard output", command.measure);
    if (!fs::exists(file)) throw lacks_results("there is no file {out}");
    auto run = read_foreign_run(read_text_file(file.string(), kLongestForeignFile), "{out}", command.measure);
    fs::remove(file, error);
    return run;
  } catch (const UsageError& wrong) {
    throw lacks_results(wrong.what());
  }
}

}  // namespace attnbench
