// `attnbench verdicts`: has plots/run.py evaluate the claims, and compare the paper's numbers with ours.
#include <fmt/format.h>

#include <memory>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/plot_scripts.h"
#include "harness/cli/shared_options.h"
#include "harness/cli/terminal.h"

namespace attnbench {

Run add_verdicts_command(Command& command) {
  struct VerdictsOptions {
    std::string results = "results", claims, python;
    Format format = Format::text;
  };
  const auto options = std::make_shared<VerdictsOptions>();
  command.add("results", &options->results, "folder in which the folders of sweeps, trainings and generations are looked for",
              {.completion = Completion::files});
  command.add("--claims", &options->claims, "file of claims",
              {.placeholder = "FILE",
               .default_text = "experiments/published/claims.toml of the project",
               .completion = Completion::files});
  add_python_option(command, options->python);
  add_format_option(command, options->format, {Format::text, Format::markdown});
  command.add_example("verdicts", "counts the verdicts on the claims, then prints each, and each published number beside ours");
  return [options](const WorkerProgram&) {
    Script script = {.name = "verdicts", .arguments = {}, .python = options->python};
    script.add_option("claims", options->claims);
    script.add_option("format", options->format == Format::text ? "text" : "markdown");
    if (const auto width = table_width(stdout); width > 0) script.add_option("width", std::to_string(width));
    script.arguments.insert(script.arguments.end(), {"--", options->results});
    print_text(run_script(script));
    return exit_code::success;
  };
}

}  // namespace attnbench
