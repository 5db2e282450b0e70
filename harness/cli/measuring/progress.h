// Shows the progress of a sweep: on a terminal in one line that rewrites itself, elsewhere in a line for each case.
#pragma once

#include <cstdio>
#include <string>

#include "harness/cli/rendering/case_names.h"
#include "harness/cli/terminal.h"
#include "harness/sweep/sweep_run.h"

namespace attnbench {

// `quiet` prints nothing. `verbose` prints a line for each case on a terminal too, and below it how the case was measured.
enum class Verbosity { quiet, normal, verbose };

class Progress : public SweepObserver {
 public:
  Progress(Verbosity verbosity, CaseNames names, FILE* out = stderr);

  void starting(const Place& place, const Record& planned, double rest_s) override;
  void finished(const Place& place, const Record& record) override;

 private:
  Verbosity verbosity_;
  CaseNames names_;
  StatusLine line_;
  double began_s_;
  std::string last_result_;
  size_t told_added_ = 0;  // the number of added processes that a printed line has told
};

}  // namespace attnbench
