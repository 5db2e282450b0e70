// `attnbench report`: has plots/run.py write a page of HTML about folders.
#include <fmt/format.h>

#include <memory>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/plot_scripts.h"
#include "harness/cli/shared_options.h"

namespace attnbench {
namespace {

constexpr const char* kReportPackages = "numpy, matplotlib, altair, vl-convert-python and Jinja2";

}  // namespace

Run add_report_command(Command& command) {
  struct ReportOptions {
    std::vector<std::string> folders;
    std::string out = "report.html", title, python;
  };
  const auto options = std::make_shared<ReportOptions>();
  command.add("folders", &options->folders,
              "folder of a sweep, of trainings or of generated images, or a folder that contains such folders; two folders of "
              "one sweep are compared, and more are shown as a history",
              {.required = true, .completion = Completion::files});
  command.add("--out", &options->out, "file to write",
              {.short_name = "-o", .placeholder = "FILE", .completion = Completion::files});
  command.add("--title", &options->title, "title of the page",
              {.placeholder = "TEXT", .default_text = "the names of what it shows"});
  add_python_option(command, options->python, kReportPackages);
  command.add_example("report results/figure1 --out /tmp/figure1.html",
                      "writes a page that answers what the records say, with charts and a table of all records");
  command.add_example("report results/repeat --out /tmp/two-runs.html", "compares two runs of one sweep");
  return [options](const WorkerProgram&) {
    Script script = {.name = "report",
                     .arguments = {fmt::format("--out={}", options->out)},
                     .python = options->python,
                     .packages = kReportPackages};
    script.add_option("title", options->title);
    script.arguments.emplace_back("--");
    script.arguments.insert(script.arguments.end(), options->folders.begin(), options->folders.end());
    print_text(run_script(script));
    return exit_code::success;
  };
}

}  // namespace attnbench
