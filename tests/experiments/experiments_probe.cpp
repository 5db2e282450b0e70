// Lets the tests in Python call the training experiments. Each line of standard input is a JSON array [function, arguments…]; its
// result is written as one line of JSON to standard output, and the message of an exception as {"error": message}.
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>

#include "harness/schema/json.h"
#include "tests/experiments/data/data_probe.h"

namespace {

using attnbench::Json;

Json call(const Json& request) {
  if (auto result = experiments::call_data(request)) return std::move(*result);
  throw std::invalid_argument("no function " + request.at(0).dump());
}

Json answer(const std::string& line) {
  try {
    return call(Json::parse(line));
  } catch (const std::exception& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int main() {
  // std::endl, because the other side waits for each line.
  for (std::string line; std::getline(std::cin, line);) std::cout << answer(line).dump() << std::endl;
}
