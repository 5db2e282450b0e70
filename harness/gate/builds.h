// Workers of other builds, for comparing them with this one.
#pragma once

#include <string>

#include "harness/process/worker_process.h"

namespace attnbench {

// The worker of a build: of a build folder, of a driver or worker in one, or of a git revision of the repository around the
// current folder. A revision is built, once, under build-gate/REVISION of that repository, with this repository's .venv, for
// the CPU. Throws UsageError when there is no such build, or the revision does not build: the log is named.
WorkerProgram worker_of(const std::string& build_or_revision);

}  // namespace attnbench
