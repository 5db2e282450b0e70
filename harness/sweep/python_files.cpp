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

// The interpreter in which the worker runs Python methods; empty if that is not known here.
std::string interpreter_of(const fs::path& worker_folder) {
  if (const char* const chosen = std::getenv("ATTNBENCH_PYTHON"); chosen && *chosen) return chosen;
  std::error_code error;
  const auto file = worker_folder / "python-path";  // written when a build is configured
  return fs::exists(file, error) ? read_text_file(file.string(), kMaxPathBytes) : "";
}

// The script that reads the sources. In a source tree the package attnbench is in the folder python beside the build folder. An
// installed worker is inside the package. Empty if there is none.
std::string script_of(const fs::path& worker_folder) {
  for (const auto* const package : {"../python/attnbench", "../.."}) {
    std::error_code error;
    const auto script = (worker_folder / package / "_source_check.py").lexically_normal();
    if (fs::exists(script, error)) return script.string();
  }
  return "";
}

// What the script prints for this request; null if it does not run.
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
  const auto folder = fs::path(worker.path).parent_path();
  const auto interpreter = interpreter_of(folder), script = script_of(folder);
  if (interpreter.empty() || script.empty()) return {};
  const auto answer = asked(interpreter, script, request);
  std::map<std::string, std::string> mistakes;
  if (!answer.is_array() || answer.size() != names.size()) return mistakes;
  for (size_t i = 0; i < names.size(); ++i)
    if (answer[i].is_string()) mistakes.emplace(names[i], answer[i].get<std::string>());
  return mistakes;
}

}  // namespace attnbench
