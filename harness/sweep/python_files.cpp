// Runs a script that parses the Python files of methods, and takes its findings.
#include "harness/sweep/python_files.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "attn/method_name.h"
#include "harness/files/text_file.h"
#include "harness/process/child_process.h"
#include "harness/schema/file_search.h"
#include "harness/text/errors.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

constexpr double kDeadlineS = 10;
constexpr size_t kMaxPathBytes = 4096;
constexpr size_t kMaxOutputBytes = size_t{1} << 24;

std::string name_of(const Case& c) { return std::string(attn::method_name(c.method)); }

// What the script, which reads the sources, prints for this request; null if it does not run.
Json asked(const std::string& interpreter, const std::string& script, const Json& request) {
  std::string printed;
  const auto receive = [&](std::string_view more) {
    printed += more;
    return printed.size() <= kMaxOutputBytes;
  };
  const auto ignore = [](std::string_view) { return true; };
  try {
    const auto result = ChildProcess({.words = {interpreter, "-S", "-P", "-W", "ignore", script},
                                      .input = request.dump(),
                                      .outputs = {{{STDOUT_FILENO}, receive}, {{STDERR_FILENO}, ignore}}})
                            .finish(kDeadlineS);
    if (result.end == ChildEnd::exited && result.code == 0) return parse_json(printed);
  } catch (const UsageError&) {  // the interpreter cannot be started
  } catch (const JsonError&) {
  }
  return {};
}

}  // namespace

std::string interpreter_of(const WorkerProgram& worker) {
  if (const char* const chosen = std::getenv("ATTNBENCH_PYTHON"); chosen && *chosen) return chosen;
  std::error_code error;
  const auto file = fs::path(worker.path).parent_path() / "python-path";  // written when a build is configured
  return fs::exists(file, error) ? read_text_file(file.string(), kMaxPathBytes) : "";
}

// In a source tree the package attnbench is in the folder python beside the build folder. An installed worker is inside the
// package.
std::string package_file(const WorkerProgram& worker, const std::string& name) {
  for (const auto* const package : {"../python/attnbench", "../.."}) {
    std::error_code error;
    auto path = (fs::path(worker.path).parent_path() / package / name).lexically_normal();
    if (fs::exists(path, error)) return path.string();
  }
  return "";
}

bool any_python_method(const std::vector<Case>& cases) {
  return std::any_of(cases.begin(), cases.end(), [](const Case& c) { return attn::is_python_name(name_of(c)); });
}

std::map<std::string, std::string> mistakes_in_python_files(const WorkerProgram& worker, const std::vector<Case>& cases) {
  std::vector<std::string> names;
  auto request = Json::array();
  for (const auto& c : cases) {
    const auto name = name_of(c);
    if (!attn::is_python_name(name) || std::find(names.begin(), names.end(), name) != names.end()) continue;
    const auto [file, function] = attn::split_python_name(name);
    names.push_back(name);
    try {
      request.push_back({find_in_folders(worker.methods_folders, file), function});
    } catch (const fs::filesystem_error&) {  // the worker says what is wrong with the folder
      return {};
    }
  }
  if (names.empty()) return {};
  const auto interpreter = interpreter_of(worker), script = package_file(worker, "_source_check.py");
  if (interpreter.empty() || script.empty()) return {};
  const auto answer = asked(interpreter, script, request);
  std::map<std::string, std::string> mistakes;
  if (!answer.is_array() || answer.size() != names.size()) return mistakes;
  for (size_t i = 0; i < names.size(); ++i)
    if (answer[i].is_string()) mistakes.emplace(names[i], answer[i].get<std::string>());
  return mistakes;
}

}  // namespace attnbench
