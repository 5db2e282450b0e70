// Declares the worker's subcommands with CLI11, reads their requests and sends the answers.
#include "harness/worker/commands.h"

#include <c10/util/Exception.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/machine/machine.h"
#include "harness/schema/answer.h"
#include "harness/worker/cpu/ceilings.h"
#include "harness/worker/cpu/probe.h"
#include "harness/worker/device.h"
#include "harness/worker/environment.h"
#include "harness/worker/fork_server.h"
#include "harness/worker/inputs/inputs.h"
#include "harness/worker/measure.h"
#include "harness/worker/methods/methods.h"
#include "harness/worker/methods/plugins.h"
#include "harness/worker/subject.h"
#include "harness/worker/timing/noise.h"
#include "harness/worker/timing/turns.h"

namespace attnbench {
namespace {

// Does `work` with a case, whose method may come from a plug-in.
Record record_of(const Case& c, Plugins& plugins, const std::function<Record(const Case&)>& work) {
  try {
    plugins.load_for(c.method);
  } catch (const c10::Error& error) {
    Record record;
    record.set_failed(kind::error, error.what_without_backtrace());
    return record;
  }
  auto record = work(c);
  if (const auto* const plugin = plugins.plugin_of(c.method)) record.set("method_digest", plugin->digest);
  return record;
}

// Reads the request from standard input, which is one case or an array of cases, and answers each case with a record.
void answer_each(Answer& answer, Plugins& plugins, const std::function<Record(const Case&)>& work) {
  const auto request = read_request();
  for (const auto& item : request.is_array() ? request : Json::array({request})) {
    auto c = case_from_json(item);
    c.complete();
    answer.send(record_of(c, plugins, work).to_json());
  }
}

// The methods of attnbench and of all plug-ins or, if a plug-in cannot be used, {"refused": why}.
Json methods_with(Plugins& plugins) {
  try {
    plugins.load_all();
  } catch (const c10::Error& error) {
    return {{"refused", error.what_without_backtrace()}};
  }
  auto methods = describe_methods();
  for (auto& method : methods)
    if (const auto* const plugin = plugins.plugin_of(method.at("name").get<std::string>())) {
      method["plugin"] = plugin->path;
      method["method_digest"] = plugin->digest;
    }
  return methods;
}

// The best time of the arithmetic probe at this moment, in microseconds. The memory probe is left out, because its time depends
// on what a case leaves in the caches.
double best_arithmetic_probe_us() {
  constexpr int kProbes = 300;
  Probe probe(available_processors());
  std::vector<ProbeTimes> probes;
  for (int i = 0; i < kProbes; ++i) probes.push_back(probe.take());
  return best_of(probes).arithmetic_us;
}

Json ceilings_of_machine() {
  const auto c = measure_ceilings(available_processors());
  return {{"read_gb_s", c.read_gb_s},
          {"copy_gb_s", c.copy_gb_s},
          {"fma_float32_gflop_s", c.fma_float32_gflop_s},
          {"fma_float64_gflop_s", c.fma_float64_gflop_s},
          {"fma_float32_avx2_gflop_s", c.fma_float32_avx2_gflop_s},
          {"fma_instruction_set", c.fma_instruction_set},
          {"array_bytes", c.array_bytes},
          {"threads", c.threads},
          {"probe_arithmetic_us", best_arithmetic_probe_us()},
          {"gpu", gpu_ceilings()}};
}

int run_words(std::vector<std::string> words) {
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return run_worker_command(int(words.size()), pointers.data());
}

}  // namespace

int run_worker_command(int argc, char** argv) {
  CLI::App app("Runs single cases for attnbench: requests on standard input, answers as JSON lines.", "attnbench-worker");
  int descriptor = 1;
  app.add_option("--answer-fd", descriptor, "file descriptor that answers are written to");
  const auto add_list = [&](const std::string& name, std::vector<std::string>& values, const std::string& meaning) {
    app.add_option(name, values, meaning + "; can be given more than once")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->allow_extra_args(false);
  };
  std::vector<std::string> methods_folders, plugin_paths;
  add_list("--methods-folder", methods_folders,
           "folder in which files of Python methods and of inputs are looked for, instead of the current one");
  add_list("--plugin", plugin_paths, "shared library with further methods");
  app.require_subcommand(1);
  auto* const describe_command = app.add_subcommand("describe", "the registered methods");
  auto* const environment_command = app.add_subcommand("environment", "build and machine, as record columns");
  auto* const ceilings_command = app.add_subcommand("ceilings", "measured bandwidth and arithmetic rate of the machine");
  auto* const noise_command = app.add_subcommand("noise", "the times of work that is always the same");
  double noise_s = 60;
  noise_command->add_option("--seconds", noise_s, "how long the work is repeated");
  auto* const plan_command = app.add_subcommand("plan", "predicted cost of each case, or why it cannot run");
  auto* const verify_command = app.add_subcommand("verify", "agreement of each case with the float64 reference");
  bool is_small = false;
  verify_command->add_flag("--small", is_small, "verify each case at a size that takes a fraction of a second");
  auto* const count_command = app.add_subcommand("count", "calls of each case, for a profiler to count instructions");
  auto* const measure_command = app.add_subcommand("measure", "time and memory of each case");
  std::vector<int> turns;
  measure_command
      ->add_option("--turns", turns, "two file descriptors: the turn is read from the first and passed on to the second")
      ->delimiter(',')
      ->expected(2);
  bool no_small_check = false;
  measure_command->add_flag("--no-small-check", no_small_check,
                            "do not check the agreement at a small size, because another process has done so");
  bool quality = false;
  measure_command->add_flag("--quality", quality, "compare the outputs with exact attention, too");
  std::string compared_digest;
  measure_command->add_option("--compared", compared_digest,
                              "digest of results that another process has compared with the reference; results with the same "
                              "bits are not compared again");
  double best_probe_us = 0;
  measure_command->add_option("--best-probe", best_probe_us, "best time of the arithmetic probe so far, in microseconds");
  int processor = -1;
  measure_command->add_option("--processor", processor, "processor on which a case of one thread takes its turns");
  auto* const serve_command = app.add_subcommand("serve", "load Python, and fork a process for each request");
  int requests = -1;
  serve_command->add_option("--requests", requests, "file descriptor of the socket that requests come from")->required();
  CLI11_PARSE(app, argc, argv);
  if (*serve_command) return serve(requests, run_words);
  if (descriptor != 1 && !end_with_driver(descriptor, SIGKILL)) return 1;

  try {
    Answer answer(descriptor);
    const WorkerContext context{.folders = methods_folders};
    Plugins plugins(plugin_paths);
    if (*describe_command) answer.send(methods_with(plugins));
    if (*environment_command) answer.send(environment().to_json());
    if (*ceilings_command) answer.send(ceilings_of_machine());
    if (*noise_command) answer.send(measure_noise(noise_s).to_json());
    if (*plan_command) answer_each(answer, plugins, [&](const Case& c) { return plan(c, context); });
    if (*verify_command)
      answer_each(answer, plugins, [&](const Case& c) { return verify(is_small ? small_case(c, context) : c, context); });
    if (*count_command) answer_each(answer, plugins, [&](const Case& c) { return count(c, context); });
    if (*measure_command) {
      std::optional<Turns> taken;
      if (!turns.empty()) taken.emplace(turns[0], turns[1], processor);
      const MeasureOptions options{taken ? &*taken : nullptr, !no_small_check, quality, best_probe_us, compared_digest};
      answer_each(answer, plugins, [&](const Case& c) { return measure(c, options, context); });
    }
    // All answers are written. This skips the destructors: those of LibTorch's operators take a fifth of the time of a short
    // answer, those of a CUDA context that an error has left unusable could fail, and threads of Python packages may still run.
    std::fflush(nullptr);
    std::_Exit(0);
  } catch (const std::exception& error) {
    std::cerr << "attnbench-worker: " << error.what() << "\n";
    return 2;
  }
}

}  // namespace attnbench
