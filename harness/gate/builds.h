// Finds or makes the worker of another build, so that it can be compared with this one.
#pragma once

#include <string>

#include "harness/process/worker_process.h"

namespace attnbench {

// The worker of a build. `build_or_revision` names a build folder, a driver or worker in one, or a git revision of the repository
// that the current folder belongs to. A revision is built for the CPU under build-gate/REVISION of that repository, with the
// repository's .venv. A finished build is used again; one that failed or was interrupted is continued.
// Throws UsageError when there is no such build or revision, or when the revision does not build; the message names the log.
// Throws Interrupted when SIGINT or SIGTERM arrives meanwhile; nothing of the build is running then.
WorkerProgram worker_of(const std::string& build_or_revision);

}  // namespace attnbench
