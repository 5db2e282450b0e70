#include <fmt/format.h>

#include <memory>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/plot_scripts.h"
#include "harness/cli/shared_options.h"

namespace attnbench {

Run add_verdicts_command(Command& command) {
  struct Options {
    std::string results = "results", claims, python;
  };
  const auto options = std::make_shared<Options>();
  command.add("results", &options->results, "folder in which the folders of sweeps, trainings and generations are looked for",
              {.completion = Completion::files});
  command.add("--claims", &options->claims, "file of claims",
              {.placeholder = "FILE",
               .default_text = "experiments/published/claims.toml of the project",
               .completion = Completion::files});
  add_python_option(command, options->python);
  command.add_example("verdicts", "prints each published number beside ours, and a verdict on each claim, as Markdown");
  return [options](const WorkerProgram&) {
    Script script = {.name = "verdicts", .arguments = {}, .python = options->python};
    script.add_option("claims", options->claims);
    script.arguments.insert(script.arguments.end(), {"--", options->results});
    print_text(run_script(script));
    return exit_code::success;
  };
}

}  // namespace attnbench
