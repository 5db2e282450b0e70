// The command `serve`: a process that loads Python and torch once, and then forks workers, which need not load them.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace attnbench {

// Loads what Python methods need, but none of the user's files. Then forks a process for each request on the socket `requests`
// (harness/schema/forking.h) until the driver closes it. In the forked process `run` is called with the words of a command line,
// and returns the exit code of that process. Returns an exit code of this process.
int serve(int requests, const std::function<int(std::vector<std::string>)>& run);

}  // namespace attnbench
