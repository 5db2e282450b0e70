// Makes the names of folders from letters and digits alone, so that every shell and file system takes them.
#include "harness/records/folder_names.h"

#include <fmt/format.h>

#include <cctype>
#include <filesystem>

#include "harness/text/errors.h"

namespace attnbench {

std::string folder_name(const std::string& text) {
  std::string name;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c))) name += char(std::tolower(static_cast<unsigned char>(c)));
    else if (!name.empty() && name.back() != '-') name += '-';
  }
  return name;
}

std::string machine_slug(const Record& environment) {
  return folder_name(environment.text("cpu_model") + " " + environment.get("processors").dump() + " threads");
}

std::string default_folder(const std::string& what, const std::string& name, const Record& environment) {
  if (name.empty() || name == "." || name == "..")
    throw UsageError(
        fmt::format("the {}'s name '{}' cannot be the name of a folder in results/; name one with --out", what, name));
  return (std::filesystem::path("results") / name / machine_slug(environment)).string();
}

}  // namespace attnbench
