// Reads settings files: expands lists of values into items, and names the line of a mistake.
#include "harness/experiments/settings_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <stdexcept>

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
struct Fields;
template <>
struct Fields<Training> {
  static const auto& all() { return training_fields(); }
};
template <>
struct Fields<Generation> {
  static const auto& all() { return generation_fields(); }
};

template <class Owner>
auto find(std::string_view name) {
  const auto& all = Fields<Owner>::all();
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& field) { return field.name == name; });
  return found == all.end() ? nullptr : &*found;
}

template <class Owner>
std::vector<std::string> sections() {
  std::vector<std::string> names;
  for (const auto& field : Fields<Owner>::all())
    if (std::find(names.begin(), names.end(), field.section) == names.end()) names.emplace_back(field.section);
  return names;
}

// The names of the fields in a section, or in all if it is empty.
template <class Owner>
std::vector<std::string> names_in(std::string_view section) {
  std::vector<std::string> names;
  for (const auto& field : Fields<Owner>::all())
    if (section.empty() || field.section == section) names.emplace_back(field.name);
  return names;
}

// Reads values, and says where they stand if they are wrong.
template <class Owner>
class Reader {
 public:
  Reader(std::string path, const Catalogue& catalogue) : path_(std::move(path)), catalogue_(catalogue) {}

  // `origin` is the option that the next values come from; empty for the file.
  void set_origin(std::string origin) { origin_ = std::move(origin); }

  void read_section(const std::string& section, const toml::node& node, Values& into) {
    for (const auto& [key, value] : table_of(section, node)) {
      const auto* field = find<Owner>(key.str());
      if (!field || field->section != section)
        fail(key.source(), fmt::format("unknown key '{}' in [{}]{}", key.str(), section,
                                       suggestion(std::string(key.str()), names_in<Owner>(section))));
      read_values(*field, value, into);
    }
  }

  // The tables [methods.NAME], each with values for one method.
  void read_methods(const toml::node& node, std::map<std::string, Values>& into) {
    for (const auto& [method, values] : table_of(kMethods, node)) {
      const auto section = fmt::format("{}.{}", kMethods, method.str());
      auto& of_method = into[std::string(method.str())];
      for (const auto& [key, value] : table_of(section, values)) {
        const auto* field = find<Owner>(key.str());
        if (!field || field->role != FieldRole::setting)
          fail(key.source(), fmt::format("unknown key '{}' in [{}], expected a setting that is not an axis{}", key.str(), section,
                                         suggestion(std::string(key.str()), names_in<Owner>(""))));
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

  [[noreturn]] void fail(const toml::source_region& where, const std::string& message) const {
    if (!origin_.empty()) throw UsageError(fmt::format("{}: {}", origin_, message));
    fail_at(path_, where, message);
  }

 private:
  const toml::table& table_of(const std::string& name, const toml::node& node) const {
    if (!node.is_table()) fail(node.source(), fmt::format("{} is {}, expected a table [{}]", name, type_text(node), name));
    return *node.as_table();
  }

  Json checked(const auto& field, const toml::node& node) const {
    auto value = single_value(node);
    if (value.is_null()) fail(node.source(), fmt::format("{} is {}, expected a single value", field.name, type_text(node)));
    try {
      Owner scratch;
      set(scratch, field, value);
      if (field.name == "method" && scratch.method != kBiLstm) catalogue_.check(scratch.method);
    } catch (const std::exception& error) {
      fail(node.source(), error.what());
    }
    return value;
  }

  std::string path_, origin_;
  const Catalogue& catalogue_;
};

// Every combination of the values; those of the fields that training_fields() declares last vary slowest.
template <class Owner>
std::vector<Owner> combinations(const Values& values, const std::string& path) {
  std::vector<Owner> all = {{}};
  for (const auto& field : Fields<Owner>::all()) {
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
    auto known = sections<Owner>();
    if (name == "description") {
      const auto text = node.template value_exact<std::string>();
      if (!text) reader.fail(node.source(), fmt::format("description is {}, expected text", type_text(node)));
      description_ = *text;
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
    const auto* field = find<Owner>(name);
    if (!field) throw UsageError(fmt::format("--set: unknown key '{}'{}", name, suggestion(name, names_in<Owner>(""))));
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
        for (const auto& [name, list] : found->second) set(item, *find<Owner>(name), list.front());
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
