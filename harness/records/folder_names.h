// The names of folders of results, which are made from the names of sweeps and of machines.
#pragma once

#include <string>

#include "harness/schema/record.h"

namespace attnbench {

// The text as the name of a folder: its letters and digits in lower case, with a hyphen for each run of other characters.
std::string folder_name(const std::string& text);
// The name of the folder for this machine, such as "intel-r-xeon-r-processor-2-threads".
std::string machine_slug(const Record& environment);
// The folder for the results of a sweep or an experiment of this name on this machine: "results/NAME/MACHINE". `what` is "sweep"
// and so on. Throws UsageError for a name that cannot be that of a folder.
std::string default_folder(const std::string& what, const std::string& name, const Record& environment);

}  // namespace attnbench
