// Reads methods.json where it is current, asks the worker otherwise, and checks the names of methods.
#include "harness/sweep/catalogue.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "attn/former_options.h"
#include "attn/method_name.h"
#include "harness/files/text_file.h"
#include "harness/text/errors.h"
#include "harness/text/nearest.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxBytes = size_t{16} << 20;

std::vector<std::string> names_of(const Json& list) {
  std::vector<std::string> names;
  for (const auto& item : list) names.push_back(item.at("name").get<std::string>());
  return names;
}

// Whether the file describes the methods of the worker beside it. In a build folder, which also has libattn.so, it is out of date
// if it is older than either. The files of an installation belong together, whatever their times are.
bool is_current(const fs::path& described, const fs::path& program) {
  std::error_code missing;
  const auto library = program.parent_path() / "libattn.so";
  if (!fs::exists(program, missing) || !fs::exists(described, missing)) return false;
  if (!fs::exists(library, missing)) return true;
  const auto written = fs::last_write_time(described, missing);
  return !missing && written >= fs::last_write_time(program, missing) && !missing &&
         written >= fs::last_write_time(library, missing) && !missing;
}

// The methods in methods.json beside the worker; null if it cannot be used. A file that cannot be read or understood is only a
// cache that is missing.
Json described_methods(const fs::path& program) {
  const auto described = program.parent_path() / "methods.json";
  if (!is_current(described, program)) return {};
  try {
    const auto methods = parse_json(read_text_file(described, kMaxBytes));
    return methods.is_array() ? methods : Json();
  } catch (const UsageError&) {
  } catch (const JsonError&) {
  }
  return {};
}

// What the worker answers to `describe`. Throws UsageError if it refuses a plug-in.
Json asked_methods(const WorkerProgram& worker) {
  Json answer;
  try {
    answer = ask_worker(worker, "describe", Json::array(), 1)[0];
  } catch (const WorkerError& error) {
    if (worker.plugins.empty()) throw;
    throw WorkerError(fmt::format("{}\nit was to load the plug-in {}", error.what(), fmt::join(worker.plugins, ", ")));
  }
  if (const auto refused = answer.find("refused"); answer.is_object() && refused != answer.end() && refused->is_string())
    throw UsageError(refused->get<std::string>());
  return answer;
}

}  // namespace

Catalogue Catalogue::load(const WorkerProgram& worker) {
  Catalogue catalogue;
  if (worker.plugins.empty()) catalogue.methods_ = described_methods(worker.path);
  if (!catalogue.methods_.is_null()) return catalogue;
  catalogue.methods_ = asked_methods(worker);
  read_answer(worker, "describe", [&] {
    for (const auto& method : catalogue.methods_)
      for (const auto* key : {"name", "description", "time_order", "memory_order", "capabilities", "options"}) method.at(key);
  });
  return catalogue;
}

std::vector<std::string> Catalogue::names() const { return names_of(methods_); }

Json Catalogue::diagnostics() const {
  auto all = Json::array();
  for (const auto& method : methods_)
    for (auto diagnostic : method.value("diagnostics", Json::array())) {
      auto found = std::find_if(all.begin(), all.end(), [&](const Json& other) { return other["name"] == diagnostic["name"]; });
      if (found == all.end()) {
        diagnostic["methods"] = Json::array();
        all.push_back(std::move(diagnostic));
        found = std::prev(all.end());
      }
      (*found)["methods"].push_back(method.at("name"));
    }
  return all;
}

void Catalogue::check(const std::string& text) const {
  const auto spec = attn::with_current_options(text);
  const std::string name(attn::method_name(spec)), given(attn::method_options(spec));
  std::vector<std::string> options;
  const bool is_python = attn::is_python_name(name);
  if (is_python) {
    if (const auto parts = attn::split_python_name(name); parts.function.empty())
      throw UsageError(fmt::format("method '{}' names no function, expected {}:FUNCTION", spec, parts.file));
  } else {
    const auto found = std::find_if(methods_.begin(), methods_.end(), [&](const Json& m) { return m.at("name") == name; });
    if (found == methods_.end()) throw UsageError(fmt::format("unknown method '{}'{}", name, suggestion(name, names())));
    options = names_of(found->at("options"));
  }
  if (name.size() == spec.size()) return;
  for (size_t begin = 0; begin <= given.size();) {
    const auto end = std::min(given.find(',', begin), given.size());
    const auto item = given.substr(begin, end - begin);
    const auto key = item.substr(0, item.find('='));
    if (item.find('=') == std::string::npos)
      throw UsageError(fmt::format("method '{}': '{}' is not of the form option=value", spec, item));
    if (!is_python && std::find(options.begin(), options.end(), key) == options.end())
      throw UsageError(fmt::format("method '{}' has no option '{}'{}", name, key, suggestion(key, options)));
    begin = end + 1;
  }
}

std::string Catalogue::with_like(const std::string& spec, const std::string& like) const {
  check(spec);
  const std::string given(attn::method_options(spec));
  if (like.empty() || !attn::is_python_name(attn::method_name(spec)) || ("," + given).find(",like=") != std::string::npos)
    return attn::with_current_options(spec);
  check(like);
  return fmt::format("{}{}like={}", spec, given.empty() ? ":" : ",", attn::with_current_options(like));
}

}  // namespace attnbench
