// attnbench-worker: takes cases as JSON on standard input, gives records back as JSON lines on a descriptor of its own.
// Started by the driver; by hand it answers on standard output.
#include <poll.h>
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <iterator>
#include <optional>
#include <vector>

#include "harness/schema/machine.h"
#include "harness/worker/ceilings.h"
#include "harness/worker/device.h"
#include "harness/worker/environment.h"
#include "harness/worker/measure.h"
#include "harness/worker/turns.h"

namespace {

using attnbench::Json;

class Answer {
 public:
  explicit Answer(int descriptor) : file_(descriptor == 1 ? stdout : fdopen(descriptor, "w")) {
    if (!file_) throw std::runtime_error("cannot write to descriptor " + std::to_string(descriptor));
  }
  void send(const Json& json) {
    const auto line = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    if (std::fwrite(line.data(), 1, line.size(), file_) != line.size() || std::fflush(file_) != 0)
      throw std::runtime_error("cannot write the answer");
  }

 private:
  FILE* file_;
};

Json read_request() {
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  return Json::parse(text);
}

void answer_each(Answer& answer, const std::function<attnbench::Record(const attnbench::Case&)>& work) {
  const auto request = read_request();
  for (const auto& item : request.is_array() ? request : Json::array({request})) {
    auto c = attnbench::case_from_json(item);
    c.complete();
    answer.send(work(c).to_json());
  }
}

Json ceilings_of_machine() {
  const auto c = attnbench::measure_ceilings(attnbench::available_processors());
  return {{"read_gb_s", c.read_gb_s},
          {"copy_gb_s", c.copy_gb_s},
          {"fma_float32_gflop_s", c.fma_float32_gflop_s},
          {"fma_float64_gflop_s", c.fma_float64_gflop_s},
          {"fma_instruction_set", c.fma_instruction_set},
          {"array_bytes", c.array_bytes},
          {"threads", c.threads},
          {"gpu", attnbench::gpu_ceilings()}};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Runs single cases for attnbench: requests on standard input, answers as JSON lines.", "attnbench-worker");
  int descriptor = 1;
  app.add_option("--answer-fd", descriptor, "descriptor that answers go to");
  app.require_subcommand(1);
  auto* const describe = app.add_subcommand("describe", "the registered methods");
  auto* const environment = app.add_subcommand("environment", "build and machine, as record columns");
  auto* const ceilings = app.add_subcommand("ceilings", "measured bandwidth and arithmetic of the machine");
  auto* const plan = app.add_subcommand("plan", "predicted cost of each case, or why it cannot run");
  auto* const verify = app.add_subcommand("verify", "agreement of each case with the float64 reference");
  auto* const count = app.add_subcommand("count", "calls of each case for a profiler to count");
  auto* const measure = app.add_subcommand("measure", "time and memory of each case");
  std::vector<int> turns;
  measure->add_option("--turns", turns, "descriptors that turns come from and go to (turns.h)")->delimiter(',')->expected(2);
  int processor = -1;
  measure->add_option("--processor", processor, "the one that turns are taken on, in cases of one thread");
  CLI11_PARSE(app, argc, argv);
  // A worker must not outlive the driver that would kill it.
  if (descriptor != 1) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pollfd reader{descriptor, 0, 0};  // it may have ended before that: nobody reads the answer any more
    if (poll(&reader, 1, 0) > 0 && (reader.revents & POLLERR) != 0) return 1;
  }

  try {
    Answer answer(descriptor);
    if (*describe) answer.send(attnbench::describe_methods());
    if (*environment) answer.send(attnbench::environment().to_json());
    if (*ceilings) answer.send(ceilings_of_machine());
    if (*plan) answer_each(answer, attnbench::plan);
    if (*verify) answer_each(answer, attnbench::verify);
    if (*count) answer_each(answer, attnbench::count);
    if (*measure) {
      std::optional<attnbench::Turns> taken;
      if (!turns.empty()) taken.emplace(turns[0], turns[1], processor);
      answer_each(answer, [&](const attnbench::Case& c) { return attnbench::measure(c, taken ? &*taken : nullptr); });
    }
    // All is said. A context that an error has poisoned may not survive the clearing up.
    if (attnbench::gpu_in_use()) std::_Exit(0);
  } catch (const std::exception& error) {
    std::cerr << "attnbench-worker: " << error.what() << "\n";
    return 2;
  }
  return 0;
}
