// Finds or builds the worker of another build, so that it can be compared with this one.
#pragma once

#include <string>

#include "harness/process/worker_process.h"

namespace attnbench {

// Returns the worker of a build. `build_or_revision` names a build folder, a driver or worker in one, or a git revision of the
// repository that the current folder belongs to. A revision is built for the CPU in the folder build-gate/COMMIT of that
// repository, with the Python of its .venv. A finished build is used again; a build that failed or was interrupted is continued.
// Throws UsageError if there is no such build or revision, or if the revision does not build; then the message names the log.
// Throws Interrupted if SIGINT or SIGTERM arrives meanwhile; nothing of the build runs any more then.
WorkerProgram worker_of(const std::string& build_or_revision);

}  // namespace attnbench
