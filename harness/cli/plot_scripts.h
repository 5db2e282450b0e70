// Runs plots/run.py, which draws figures and prints the verdicts.
#pragma once

#include <string>
#include <vector>

#include "harness/cli/command_line.h"

namespace attnbench {

// A script and what it is started with.
struct Script {
  std::string name;                               // of an entry of plots/run.py, such as "plot"
  std::vector<std::string> arguments;             // as on the command line
  std::string python = {};                        // the program; empty for that of the project
  std::string packages = "numpy and matplotlib";  // what it needs, for the help and for the message that one of them is missing

  // Appends --NAME=VALUE to the arguments, unless the value is empty.
  void add_option(const std::string& option, const std::string& value);
};

// Adds the option --python, which names the Python that runs a script that needs `packages`.
void add_python_option(Command& command, std::string& python, const std::string& packages = Script().packages);

// The Python of the project, which runs the scripts unless they name another: the one whose packages this build uses.
std::string project_python();

// What a user types to run the script without this program.
std::string command_text(const Script& script);

// Runs the script, and returns what it printed to standard output. The Python of the project is the one that the environment
// variable ATTNBENCH_PYTHON names, which the Python package sets to its own. Without it, that is .venv/bin/python beside plots/,
// or else the one that the build was configured with (the CMake variable ATTNBENCH_PYTHON); that of an installation is the
// python3 beside the driver or, if there is none, the one in PATH. Throws UsageError with the script's message if the script
// refuses its arguments or its files. Where Python, one of its packages or the script is missing, the message says so and names
// the command to run instead. Throws Interrupted on SIGINT or SIGTERM.
std::string run_script(const Script& script);

// Draws the curves of a folder that `attnbench train` has written as FOLDER/curves.svg, .png and .pdf, and returns a line that
// says where they are. If they cannot be drawn, the line says why, and what to run instead. Throws only Interrupted.
std::string draw_training_curves(const std::string& folder);
// The same for the arrays that `attnbench generate` has written, as FOLDER/images.svg and so on.
std::string draw_images(const std::string& folder);
// The same for the summary that `attnbench models` has written, as FOLDER/models.svg and so on.
std::string draw_models(const std::string& folder);

}  // namespace attnbench
