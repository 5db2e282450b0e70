// `attnbench plot`: has plots/run.py draw the figures of a folder.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <optional>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/plot_scripts.h"
#include "harness/cli/shared_options.h"

namespace attnbench {

Run add_plot_command(Command& command) {
  struct PlotOptions {
    std::string folder, y, series, width, out, python;
    std::vector<std::string> x, facets, filters, methods;
  };
  const auto options = std::make_shared<PlotOptions>();
  command.add("folder", &options->folder,
              "folder that a sweep or a training was recorded in, or a folder that contains one such folder",
              {.required = true, .completion = Completion::files});
  command.add(
      "--x", &options->x,
      "column of the horizontal axis; given twice, two panels side by side. `attnbench list columns` lists the columns of "
      "sweeps, and `attnbench list schema` also those of trainings",
      {.placeholder = "COLUMN", .default_text = "query_len; for trainings update and training_s"});
  command.add("--y", &options->y, "column of the vertical axis",
              {.placeholder = "COLUMN",
               .default_text = "time_per_sample_ms, or ratio_median if there are only ratios; for trainings validation_loss"});
  command.add("--series", &options->series, "column that has a line for each of its values",
              {.placeholder = "COLUMN", .default_text = "method"});
  command.add("--facet", &options->facets,
              "column that has a panel for each of its values; other axes with several values also get panels",
              {.placeholder = "COLUMN"});
  command.add("--methods", &options->methods,
              "draws only these methods, such as softmax,linear; the options of a method may be left out",
              {.placeholder = "METHODS", .default_text = "all of the folder", .completion = Completion::methods});
  command.add("--filter", &options->filters, "draws only the lines with this value in this column",
              {.placeholder = "COLUMN=VALUE"});
  command.add("--out", &options->out, "file that ends in .pdf, .svg or .png, or folder for all three",
              {.placeholder = "FILE_OR_DIR", .default_text = "the folder that is drawn", .completion = Completion::files});
  command.add("--width", &options->width, "width of the figure: of a column or of a page of a paper",
              {.choices = {"column", "page"}, .default_text = "page"});
  add_python_option(command, options->python);
  command.add_example("plot results/figure1 --out /tmp/figure", "draws time against length for every method");
  command.add_example("plot results/figure1 --methods linear,softmax --width column --out /tmp/memory.svg",
                      "draws two methods, for a column of a paper");
  return [options](const WorkerProgram&) {
    Script script = {.name = "plot", .arguments = {}, .python = options->python};
    for (const auto& x : options->x) script.add_option("x", x);
    script.add_option("y", options->y);
    script.add_option("series", options->series);
    for (const auto& facet : options->facets) script.add_option("facet", facet);
    for (const auto& filter : options->filters) script.add_option("filter", filter);
    script.add_option("methods", fmt::format("{}", fmt::join(options->methods, ",")));
    script.add_option("out", options->out);
    script.add_option("width", options->width);
    script.arguments.insert(script.arguments.end(), {"--", options->folder});
    print_text(run_script(script));
    return exit_code::success;
  };
}

}  // namespace attnbench
