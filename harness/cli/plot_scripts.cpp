// Finds a Python with the packages that plots/run.py needs, runs it, and turns its exit codes into errors.
#include "harness/cli/plot_scripts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string_view>

#include "harness/files/installation.h"
#include "harness/files/text_file.h"
#include "harness/process/child_process.h"
#include "harness/text/errors.h"
#include "harness/text/notice.h"
#include "harness/text/shell_words.h"

namespace attnbench {
namespace {

constexpr double kNoDeadline = std::numeric_limits<double>::infinity();
constexpr size_t kMaxOutputBytes = size_t{1} << 24;
// The exit codes of the scripts.
constexpr int kRefused = 2, kMissingPackage = 3;

std::string entry_path() { return (project_folder() / "plots/run.py").string(); }

// The Python that the build was configured with. CMake writes its path to a file, and not into this program, because an installed
// program must not depend on the folders of its build.
std::string python_of_build() {
  constexpr size_t kMaxPathBytes = 4096;
  return read_text_file((program_folder() / "python-path").string(), kMaxPathBytes);
}

std::string python_of(const Script& script) {
  if (!script.python.empty()) return script.python;
  if (const char* const of_package = std::getenv("ATTNBENCH_PYTHON"); of_package && *of_package) return of_package;
  if (is_installed()) {
    // The Python of a virtual environment that attnbench was installed into, or else the first one in PATH.
    const auto beside = (program_folder() / "python3").string();
    return access(beside.c_str(), X_OK) == 0 ? beside : "python3";
  }
  const auto of_project = (project_folder() / ".venv/bin/python").string();
  return access(of_project.c_str(), X_OK) == 0 ? of_project : python_of_build();
}

std::vector<std::string> words_of(const Script& script) {
  std::vector<std::string> words = {python_of(script), entry_path(), script.name};
  words.insert(words.end(), script.arguments.begin(), script.arguments.end());
  return words;
}

// What plots/run.py wrote to standard error without its name in front and the line end.
std::string message_in(std::string text, const Script& script) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  const auto prefix = "run.py " + script.name + ": ";
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

}  // namespace

void Script::add_option(const std::string& option, const std::string& value) {
  if (!value.empty()) arguments.push_back(fmt::format("--{}={}", option, value));
}

void add_python_option(Command& command, std::string& python, const std::string& packages) {
  command.add("--python", &python, fmt::format("Python that has {}", packages),
              {.placeholder = "FILE",
               .default_text = "that of the project or, if attnbench is installed, python3",
               .completion = Completion::files});
}

std::string project_python() { return python_of({}); }

std::string command_text(const Script& script) { return shell_text(words_of(script)); }

std::string run_script(const Script& script) {
  const auto path = entry_path(), python = python_of(script);
  const auto missing = [&](const std::string& what, const std::string& advice) {
    throw UsageError(fmt::format("{}; {}, and then run\n  {}", what, advice, command_text(script)));
  };
  if (access(path.c_str(), R_OK) != 0)
    throw UsageError(fmt::format("{}: no such script; expected the folder plots of attnbench there", path));
  const bool is_path = python.find('/') != std::string::npos;
  if (is_path && access(python.c_str(), X_OK) != 0)
    missing(fmt::format("no Python at {}", python), "install it with `make setup`, or name another with --python");

  std::string printed, told;
  const auto receive_into = [](std::string& text) {
    return [&text](std::string_view more) {
      text += more;
      return text.size() <= kMaxOutputBytes;
    };
  };
  const auto result = ChildProcess({.words = words_of(script),
                                    .outputs = {{{STDOUT_FILENO}, receive_into(printed)}, {{STDERR_FILENO}, receive_into(told)}}})
                          .finish(kNoDeadline);
  const auto message = message_in(told, script);
  if (result.end == ChildEnd::exited && result.code == 0) {
    if (!message.empty()) print_notice(message + "\n");
    return printed;
  }
  if (result.end == ChildEnd::exited && result.code == kRefused) throw UsageError(message);
  if (result.end == ChildEnd::exited && result.code == kMissingPackage)
    missing(fmt::format("{}: {}", python, message),
            is_installed() ? fmt::format("install {} for this Python, or name another one with --python", script.packages)
                           : "install the packages of requirements.txt with `make setup`, or name another Python with --python");
  throw UsageError(fmt::format("{} ended {}; it said: {}", path,
                               result.end == ChildEnd::signalled ? fmt::format("by signal {}", result.code)
                                                                 : fmt::format("with exit code {}", result.code),
                               message.empty() ? "nothing" : message));
}

namespace {

std::string draw(const std::string& script, const std::string& what, const std::string& folder) {
  try {
    run_script({.name = script, .arguments = {"--", folder}});
    return fmt::format("{}: drawn as {}.svg, {}.png and {}.pdf", folder, what, what, what);
  } catch (const UsageError& error) {
    return fmt::format("{}: the {} were not drawn: {}", folder, what, error_text(error));
  }
}

}  // namespace

std::string draw_training_curves(const std::string& folder) { return draw("plot", "curves", folder); }
std::string draw_images(const std::string& folder) { return draw("images", "images", folder); }
std::string draw_models(const std::string& folder) { return draw("models", "models", folder); }

}  // namespace attnbench
