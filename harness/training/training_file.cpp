#include "harness/training/training_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <stdexcept>

#include "harness/text/errors.h"
#include "harness/text/nearest.h"
#include "harness/text/toml_file.h"

namespace attnbench {
namespace {

constexpr size_t kMaxTrainings = 10'000;

// The values of each field that the file or the command line sets.
using Values = std::map<std::string_view, std::vector<Json>>;

std::vector<std::string> sections() {
  std::vector<std::string> names;
  for (const auto& field : training_fields())
    if (std::find(names.begin(), names.end(), field.section) == names.end()) names.emplace_back(field.section);
  return names;
}

std::vector<std::string> names_in(std::string_view section) {
  std::vector<std::string> names;
  for (const auto& field : training_fields())
    if (section.empty() || field.section == section) names.emplace_back(field.name);
  return names;
}

// Reads values, and says where they stand if they are wrong.
class Reader {
 public:
  Reader(std::string path, Values& values) : path_(std::move(path)), values_(values) {}

  // `origin` is the option that the next values come from; empty for the file.
  void set_origin(std::string origin) { origin_ = std::move(origin); }

  void read_section(const std::string& section, const toml::node& node) {
    if (!node.is_table())
      fail(node.source(), fmt::format("{} is {}, expected a table [{}]", section, type_text(node), section));
    for (const auto& [key, value] : *node.as_table()) {
      const auto* field = find_training_field(key.str());
      if (!field || field->section != section)
        fail(key.source(), fmt::format("unknown key '{}' in [{}]{}", key.str(), section,
                                       suggestion(std::string(key.str()), names_in(section))));
      read_values(*field, value);
    }
  }

  void read_values(const TrainingField& field, const toml::node& node) {
    std::vector<Json> values;
    if (const auto* list = node.as_array()) {
      if (field.role != FieldRole::axis)
        fail(node.source(), fmt::format("{} is a list, expected a single value", field.name));
      if (list->empty()) fail(node.source(), fmt::format("{} is an empty list, expected at least one value", field.name));
      for (const auto& item : *list) values.push_back(checked(field, item));
    } else {
      values.push_back(checked(field, node));
    }
    values_[field.name] = std::move(values);
  }

  [[noreturn]] void fail(const toml::source_region& where, const std::string& message) const {
    if (!origin_.empty()) throw UsageError(fmt::format("{}: {}", origin_, message));
    fail_at(path_, where, message);
  }

 private:
  Json checked(const TrainingField& field, const toml::node& node) const {
    auto value = single_value(node);
    if (value.is_null())
      fail(node.source(), fmt::format("{} is {}, expected a single value", field.name, type_text(node)));
    try {
      Training scratch;
      set(scratch, field, value);
    } catch (const std::invalid_argument& error) {
      fail(node.source(), error.what());
    }
    return value;
  }

  std::string path_, origin_;
  Values& values_;
};

// Every combination of the values; those of the fields that training_fields() declares last vary slowest.
std::vector<Training> combinations(const Values& values, const std::string& path) {
  std::vector<Training> all = {{}};
  for (const auto& field : training_fields()) {
    const auto found = values.find(field.name);
    if (found == values.end()) continue;
    std::vector<Training> next;
    for (const auto& value : found->second)
      for (auto training : all) {
        set(training, field, value);
        next.push_back(std::move(training));
      }
    if (next.size() > kMaxTrainings) throw UsageError(fmt::format("{}: more than {} trainings", path, kMaxTrainings));
    all = std::move(next);
  }
  return all;
}

}  // namespace

TrainingFile::TrainingFile(const std::string& path, const std::vector<std::pair<std::string, std::string>>& settings)
    : stem_(std::filesystem::path(path).stem().string()) {
  Values values;
  Reader reader(path, values);
  const auto file = read_toml(path);
  for (const auto& [key, node] : file) {
    const std::string name(key.str());
    const auto known = sections();
    if (name == "description") {
      const auto text = node.value_exact<std::string>();
      if (!text) reader.fail(node.source(), fmt::format("description is {}, expected text", type_text(node)));
      description_ = *text;
    } else if (std::find(known.begin(), known.end(), name) != known.end()) {
      reader.read_section(name, node);
    } else {
      auto all = known;
      all.emplace_back("description");
      reader.fail(key.source(), fmt::format("unknown key '{}'{}", name, suggestion(name, all)));
    }
  }
  for (const auto& [name, value] : settings) {
    reader.set_origin("--set " + name);
    const auto* field = find_training_field(name);
    if (!field) throw UsageError(fmt::format("--set: unknown key '{}'{}", name, suggestion(name, names_in(""))));
    reader.read_values(*field, *parse_value("--set " + name, value).get("value"));
  }
  trainings_ = combinations(values, path);
  for (auto& training : trainings_) {
    training.complete();
    try {
      check(training);
    } catch (const std::invalid_argument& error) {
      throw UsageError(fmt::format("{}: {}", path, error.what()));
    }
  }
}

}  // namespace attnbench
