// Reads settings files: expands lists of values into items, and names the line of a mistake.
#include "harness/experiments/settings_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <type_traits>

#include "harness/files/toml_file.h"
#include "harness/text/errors.h"
#include "harness/text/nearest.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxItems = 10'000;

// The values of each field that the file or the command line sets.
using Values = std::map<std::string_view, std::vector<Json>>;

constexpr auto kMethods = "methods";

template <class Owner>
const std::vector<FieldOf<Owner>>& fields_of() {
  if constexpr (std::is_same_v<Owner, Training>) return training_fields();
  else return generation_fields();
}

// Reads the values of fields.
template <class Owner>
class Reader : public TomlReader {
 public:
  Reader(std::string path, const Catalogue& catalogue) : TomlReader(std::move(path)), catalogue_(catalogue) {}

  void read_section(const std::string& section, const toml::node& node, Values& into) {
    for (const auto& [key, value] : table_of(node, section)) {
      const auto* field = find_field(fields_of<Owner>(), key.str());
      if (!field || field->section != section)
        fail(key.source(), fmt::format("unknown key '{}' in [{}]{}", key.str(), section,
                                       suggestion(std::string(key.str()), names_in(fields_of<Owner>(), section))));
      read_values(*field, value, into);
    }
  }

  // The tables [methods.NAME], each with values for one method.
  void read_methods(const toml::node& node, std::map<std::string, Values>& into) {
    for (const auto& [method, values] : table_of(node, kMethods)) {
      const auto section = fmt::format("{}.{}", kMethods, method.str());
      auto& of_method = into[std::string(method.str())];
      for (const auto& [key, value] : table_of(values, section)) {
        const auto* field = find_field(fields_of<Owner>(), key.str());
        if (!field || field->role != FieldRole::setting)
          fail(key.source(), fmt::format("unknown key '{}' in [{}], expected a setting that is not an axis{}", key.str(), section,
                                         suggestion(std::string(key.str()), names_in(fields_of<Owner>()))));
        read_values(*field, value, of_method);
      }
    }
  }

  void read_values(const auto& field, const toml::node& node, Values& into) {
    std::vector<Json> values;
    if (const auto* list = node.as_array()) {
      if (field.role != FieldRole::axis) fail(node.source(), fmt::format("{} is a list, expected a single value", field.name));
      if (list->empty()) fail(node.source(), fmt::format("{} is an empty list, expected at least one value", field.name));
      for (const auto& item : *list) values.push_back(checked(field, item));
    } else {
      values.push_back(checked(field, node));
    }
    into[field.name] = std::move(values);
  }

 private:
  Json checked(const auto& field, const toml::node& node) const {
    const auto value = json_of(node, field.name);
    try {
      Owner scratch;
      set(scratch, field, value);
      if (field.name == "method" && scratch.method != kBiLstm) catalogue_.check(scratch.method);
    } catch (const std::exception& error) {
      fail(node.source(), error.what());
    }
    return value;
  }

  const Catalogue& catalogue_;
};

// Every combination of the values; those of the fields that training_fields() declares last vary slowest.
template <class Owner>
std::vector<Owner> combinations(const Values& values, const std::string& path) {
  std::vector<Owner> all = {{}};
  for (const auto& field : fields_of<Owner>()) {
    const auto found = values.find(field.name);
    if (found == values.end()) continue;
    std::vector<Owner> next;
    for (const auto& value : found->second)
      for (auto item : all) {
        set(item, field, value);
        next.push_back(std::move(item));
      }
    if (next.size() > kMaxItems) throw UsageError(fmt::format("{}: more than {} combinations of values", path, kMaxItems));
    all = std::move(next);
  }
  return all;
}

}  // namespace

template <class Owner>
SettingsFile<Owner>::SettingsFile(const std::string& path, const Catalogue& catalogue,
                                  const std::vector<std::pair<std::string, std::string>>& settings)
    : stem_(fs::path(path).stem().string()) {
  const fs::path file_path(path);
  folder_ = file_path.parent_path().string();
  Values values, from_command_line;
  std::map<std::string, Values> of_methods;
  Reader<Owner> reader(path, catalogue);
  const auto file = read_toml(path);
  for (const auto& [key, node] : file) {
    const std::string name(key.str());
    auto known = sections_of(fields_of<Owner>());
    if (name == "description") {
      description_ = reader.text_of(node, name);
    } else if (name == kMethods) {
      reader.read_methods(node, of_methods);
    } else if (std::find(known.begin(), known.end(), name) != known.end()) {
      reader.read_section(name, node, values);
    } else {
      known.insert(known.end(), {"description", kMethods});
      reader.fail(key.source(), fmt::format("unknown key '{}'{}", name, suggestion(name, known)));
    }
  }
  for (const auto& [name, value] : settings) {
    reader.set_origin("--set " + name);
    const auto* field = find_field(fields_of<Owner>(), name);
    if (!field) throw UsageError(fmt::format("--set: unknown key '{}'{}", name, suggestion(name, names_in(fields_of<Owner>()))));
    reader.read_values(*field, *parse_value("--set " + name, value).get("value"), from_command_line);
  }
  for (const auto& [name, list] : from_command_line) {
    values[name] = list;
    from_command_line_.emplace_back(name);
    for (auto& [method, of_method] : of_methods) of_method.erase(name);
  }

  items_ = combinations<Owner>(values, path);
  for (auto& item : items_) {
    item.complete();
    try {
      if (const auto found = of_methods.find(item.method); found != of_methods.end())
        for (const auto& [name, list] : found->second) set(item, *find_field(fields_of<Owner>(), name), list.front());
      check(item);
    } catch (const std::invalid_argument& error) {
      throw UsageError(fmt::format("{}: {}", path, error.what()));
    }
  }
}

template <class Owner>
std::string SettingsFile<Owner>::path_of(const char* field, const std::string& name) const {
  if (name.empty() || std::find(from_command_line_.begin(), from_command_line_.end(), field) != from_command_line_.end())
    return name;
  return (fs::path(folder_) / name).lexically_normal().string();
}

template class SettingsFile<Training>;
template class SettingsFile<Generation>;

}  // namespace attnbench
