// Verifies methods in workers: each case is sent to a worker, which compares it with the float64 reference.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/process/worker_process.h"
#include "harness/verification/verified_rows.h"

namespace attnbench {

struct VerificationOptions {
  // Whether one worker verifies every method, which is faster where a method has few cases, because the start of a worker takes
  // longer than these. Otherwise each method has a worker of its own.
  bool one_worker = false;
  double deadline_s = 900;  // of one worker
};

// Who is told of the progress.
struct VerificationProgress {
  std::function<void(const VerifiedRow& row)> begins;        // the first row that is not complete
  std::function<void(const std::string& method)> has_ended;  // every row of the method is complete
};

// Verifies the cases of all rows, and adds their records to the rows. The rows of one method must stand together. If a worker
// ends too early, the case that it was verifying has failed, and the later cases of the method as well. Throws UsageError if a
// worker cannot be started, and Interrupted on SIGINT or SIGTERM.
void verify_rows(const WorkerProgram& worker, std::vector<VerifiedRow>& rows, const VerificationOptions& options,
                 const VerificationProgress& progress);

}  // namespace attnbench
