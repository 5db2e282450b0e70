// `attnbench paper`: has plots/run.py draw a figure of the paper or print one of its tables.
#include <fmt/format.h>

#include <memory>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/plot_scripts.h"
#include "harness/cli/shared_options.h"

namespace attnbench {

Run add_paper_command(Command& command) {
  struct PaperOptions {
    std::string what, results, out, width, format, python;
  };
  const auto options = std::make_shared<PaperOptions>();
  command.add(
      "what", &options->what,
      "figure or table of the paper; long: loss of long sequences against time; memory: what the peak memory consists of; "
      "break-even: from which length on a GPU is faster than the CPU",
      {.choices = {"figure1", "figure2", "figure3", "figure4", "figure5", "table1", "table2", "table3", "table4", "table5",
                   "long", "memory", "break-even"},
       .required = true});
  command.add("--results", &options->results, "folder with folders of results, or one of these",
              {.placeholder = "DIR", .default_text = "results of the project", .completion = Completion::files});
  command.add("--out", &options->out, "folder for the files of a figure",
              {.placeholder = "DIR", .default_text = "the current one", .completion = Completion::files});
  command.add("--width", &options->width, "width of a figure: of a column or of a page of a paper",
              {.choices = {"column", "page"}, .default_text = "a file for each"});
  command.add("--format", &options->format, "format of a table", {.choices = {"markdown", "latex"}, .default_text = "markdown"});
  add_python_option(command, options->python);
  command.add_example("paper figure1 --out /tmp/paper", "draws Figure 1 of the paper from results/, as PDF, SVG and PNG");
  command.add_example("paper table5 --format latex", "prints Table 5 with our numbers beside those of the paper");
  return [options](const WorkerProgram&) {
    Script script = {.name = "paper", .arguments = {options->what}, .python = options->python};
    script.add_option("results", options->results);
    script.add_option("out", options->out);
    script.add_option("width", options->width);
    script.add_option("format", options->format);
    print_text(run_script(script));
    return exit_code::success;
  };
}

}  // namespace attnbench
