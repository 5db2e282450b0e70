// Declares the subcommands, and stops a training at its next update when a signal arrives.
#include "experiments/commands.h"

#include <c10/util/Exception.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>

#include "experiments/decoding/generation_speed.h"
#include "experiments/training/image_samples.h"
#include "experiments/training/trainer.h"
#include "harness/schema/answer.h"
#include "harness/schema/record.h"

namespace experiments {
namespace {

using attnbench::Answer;
using attnbench::Json;

volatile std::sig_atomic_t stop_signal = 0;

// Lets the running update end after SIGINT or SIGTERM, so that a checkpoint can be written.
void stop_on_signals() {
  struct sigaction action {};
  action.sa_handler = [](int signal) { stop_signal = signal; };
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  // A write beyond the limit on the size of files then fails with an error that says so.
  std::signal(SIGXFSZ, SIG_IGN);
}

using Clock = std::chrono::steady_clock;
constexpr auto kProgressInterval = std::chrono::milliseconds(500);

// Trains until the end or a signal. The driver gets a line when the training begins or goes on ("begun"), for each point of the
// curve ("point"), twice a second in between ("progress"), and at the end ("ended"). Returns the exit code.
int train(Answer& answer, const Json& request) {
  stop_on_signals();
  const auto training = attnbench::training_of(request.at("training"));
  const auto path = request.at("checkpoint").get<std::string>();
  Trainer trainer(training, request.at("data").get<std::string>());
  if (request.at("resume").get<bool>() && std::filesystem::exists(path)) trainer.load(path);
  answer.send({{"kind", "begun"}, {"update", trainer.updates()}, {"points", trainer.curve()}});
  auto ended = attnbench::to_json(training);
  auto shown = Clock::now();
  try {
    while (!trainer.is_done()) {
      if (stop_signal != 0) {
        trainer.save(path);
        return 128 + stop_signal;
      }
      trainer.update();
      if (trainer.is_point()) {
        answer.send({{"kind", "point"}, {"point", trainer.record_point()}});
        shown = Clock::now();
      } else if (Clock::now() - shown > kProgressInterval) {
        answer.send({{"kind", "progress"},
                     {"point",
                      {{"update", trainer.updates()},
                       {"training_s", trainer.training_s()},
                       {"training_loss", trainer.last_loss()},
                       {"updates_per_s", trainer.updates_per_s()}}}});
        shown = Clock::now();
      }
      if (trainer.updates() % training.checkpoint_every == 0 || trainer.is_done()) trainer.save(path);
    }
    ended = trainer.summary();
    ended["outcome"] = attnbench::outcome::measured;
  } catch (const NotFinite& error) {
    const bool is_kept = std::filesystem::exists(path);
    ended.update({{"outcome", attnbench::outcome::failed},
                  {"failure_kind", "not_finite"},
                  {"update", trainer.updates()},
                  {"reason", std::string(error.what()) + (is_kept ? "; the last checkpoint is kept in " + path : "")}});
  }
  answer.send({{"kind", "ended"}, {"training", ended}});
  return 0;
}

// The result of the validation of a checkpoint's model.
Json evaluate(const Json& request) {
  const auto trainer =
      Trainer::from_checkpoint(request.at("checkpoint").get<std::string>(), request.at("data").get<std::string>());
  auto result = attnbench::to_json(trainer->training());
  result["schema_version"] = attnbench::kSchemaVersion;
  result["update"] = trainer->updates();
  result.update(trainer->validate());
  return result;
}

Json generate(const Json& request) {
  const auto text = [&](const char* name) { return request.at(name).get<std::string>(); };
  const auto number = [&](const char* name) { return request.at(name).get<int64_t>(); };
  return generate_image_samples({.checkpoint = text("checkpoint"),
                                 .data = text("data"),
                                 .samples = number("samples"),
                                 .completions = number("completions"),
                                 .seed = request.at("seed").get<uint64_t>(),
                                 .sampler = text("sampler"),
                                 .threads = number("threads"),
                                 .samples_file = text("samples_file"),
                                 .completions_file = text("completions_file")});
}

}  // namespace

int run_command(int argc, char** argv) {
  CLI::App app("Trains models for attnbench: a request on standard input, answers as JSON lines.", "attnbench-experiments");
  int descriptor = 1;
  app.add_option("--answer-fd", descriptor, "file descriptor that answers are written to");
  app.require_subcommand(1);
  auto* const train_command = app.add_subcommand("train", "train one model");
  auto* const evaluate_command = app.add_subcommand("evaluate", "validate the model of a checkpoint");
  auto* const generate_command = app.add_subcommand("generate", "write images that the model of a checkpoint generates");
  auto* const generation_command = app.add_subcommand("generation-speed", "measure how fast a model generates images");
  CLI11_PARSE(app, argc, argv);
  // A trainer whose driver was killed writes a checkpoint before it ends.
  if (descriptor != 1 && !attnbench::end_with_driver(descriptor, SIGTERM)) return 1;
  // The driver gets what fails, such as a file that cannot be used, as an answer: {"kind": "error", "failure_kind": …,
  // "message": …}. A user who calls this program without the driver gets exit code 2.
  std::optional<Answer> answer;
  const auto refuse = [&](const char* kind, const std::string& message) {
    std::cerr << "attnbench-experiments: " << message << "\n";
    if (!answer || descriptor == 1) return 2;
    answer->send({{"kind", "error"}, {"failure_kind", kind}, {"message", message}});
    return 0;
  };
  try {
    answer.emplace(descriptor);
    const auto request = attnbench::read_request();
    if (*evaluate_command) answer->send(evaluate(request));
    if (*generate_command) answer->send(generate(request));
    if (*generation_command) answer->send(generation_speed(attnbench::generation_of(request)));
    if (*train_command) return train(*answer, request);
  } catch (const std::bad_alloc&) {
    return refuse("oom", "the system ran out of memory");
  } catch (const c10::OutOfMemoryError& error) {
    return refuse("oom", error.what_without_backtrace());
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    return refuse(what.find("can't allocate memory") != std::string::npos ? "oom" : "error", what);
  } catch (const std::exception& error) {
    return refuse("error", error.what());
  }
  return 0;
}

}  // namespace experiments
