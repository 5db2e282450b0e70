// The command `serve`: a process that has loaded Python and torch, and forks workers that then need not load them.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace attnbench {

// Loads what Python methods need, but nothing of the user. Then forks a process for each request on the socket `requests`
// (harness/schema/forking.h) until the driver closes it. `run` gets the words of the command line in the forked process, and
// returns its exit code. Returns an exit code.
int serve(int requests, const std::function<int(std::vector<std::string>)>& run);

}  // namespace attnbench
