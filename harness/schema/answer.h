// How a program that the driver has started, such as the worker, answers: in lines of JSON on a file descriptor of its own,
// because libraries print to standard output.
#pragma once

#include <cstdio>

#include "harness/schema/json.h"

namespace attnbench {

class Answer {
 public:
  // Descriptor 1 is standard output. Throws std::runtime_error if the descriptor cannot be written to.
  explicit Answer(int descriptor);
  // Writes one line. Throws std::runtime_error if the driver no longer reads, or the disk is full.
  void send(const Json& json);

 private:
  FILE* file_;
};

// Makes the system send this process `signal` when the driver ends, because only the driver would end it at its deadline. Returns
// whether the driver still reads the answer on this descriptor.
bool end_with_driver(int descriptor, int signal);

// The request on standard input. Throws Json::exception if it is not JSON.
Json read_request();

}  // namespace attnbench
