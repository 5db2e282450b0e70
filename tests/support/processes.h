// Functions with which tests watch processes that they or the code under test have started.
#pragma once

#include <sys/types.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "tests/support/temp_folder.h"

namespace attnbench {

// Whether the process exists and is not a zombie.
inline bool is_running(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto after_name = text.rfind(") ");
  return after_name != std::string::npos && std::string("ZX").find(text[after_name + 2]) == std::string::npos;
}

// Whether the process has ended. A killed process may take a moment to end, so this waits for it for at most two seconds.
inline bool is_gone(pid_t process) {
  for (int i = 0; i < 200 && is_running(process); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return !is_running(process);
}

// Whether this process has no child, not even a zombie.
inline bool has_no_child() { return waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD; }

// Returns the process id that a script writes as a line to this file of the folder. Waits for it for at most two seconds.
inline pid_t pid_in(const TempFolder& folder, const std::string& name) {
  std::string text;
  for (int i = 0; i < 200 && text.find('\n') == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    text = folder.read(name);
  }
  return pid_t(std::stol(text));
}

}  // namespace attnbench
