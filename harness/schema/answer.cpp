// Writes answers to the descriptor that the driver gave, and has this process end when the driver ends.
#include "harness/schema/answer.h"

#include <poll.h>
#include <sys/prctl.h>

#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace attnbench {

Answer::Answer(int descriptor) : file_(descriptor == 1 ? stdout : fdopen(descriptor, "w")) {
  if (!file_) throw std::runtime_error("cannot write to descriptor " + std::to_string(descriptor));
}

void Answer::send(const Json& json) {
  const auto line = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_) != line.size() || std::fflush(file_) != 0)
    throw std::runtime_error("cannot write the answer");
}

bool end_with_driver(int descriptor, int signal) {
  prctl(PR_SET_PDEATHSIG, signal);
  // If the driver ended before that call took effect, the pipe has no reader.
  pollfd reader{descriptor, 0, 0};
  return poll(&reader, 1, 0) <= 0 || (reader.revents & POLLERR) == 0;
}

Json read_request() {
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  return Json::parse(text);
}

}  // namespace attnbench
