// Tells how far a sweep is: one line that rewrites itself on a terminal, a line a case elsewhere.
#pragma once

#include <cstdio>
#include <string>

#include "harness/schema/record.h"

namespace attnbench {

enum class Verbosity { quiet, normal, verbose };

class Progress {
 public:
  Progress(size_t cases, Verbosity verbosity, FILE* out = stderr);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Before case `number` (from 1); `rest_s` is what this and all later cases are expected to take.
  void starting(size_t number, const Record& planned, double rest_s);
  void finished(size_t number, const Record& record);

 private:
  void rewrite(const std::string& line);

  size_t cases_;
  Verbosity verbosity_;
  FILE* out_;
  bool terminal_;
  double began_s_;
  std::string last_result_;
};

}  // namespace attnbench
