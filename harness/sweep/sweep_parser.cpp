// Parses sweep files, and the values that the command line puts in the place of theirs.
#include "harness/sweep/sweep_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <utility>

#include "harness/files/toml_file.h"
#include "harness/process/interrupts.h"
#include "harness/schema/model_shapes.h"
#include "harness/schema/schema.h"
#include "harness/text/errors.h"
#include "harness/text/nearest.h"
#include "harness/text/units.h"

namespace attnbench {

void SweepOverrides::add_setting(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0) throw UsageError(fmt::format("--set {}: expected key=value", text));
  settings.emplace_back(text.substr(0, equals), text.substr(equals + 1));
}

namespace {

constexpr std::string_view kDescription = "description";
constexpr std::string_view kPlugins = "plugins";
constexpr std::string_view kAxes = "axes";
constexpr std::string_view kBaseline = "baseline";  // a setting that a table of axes may have, too
constexpr std::string_view kShape = "shape";        // stands for several axes
constexpr std::string_view kPublished = "published";
constexpr std::string_view kPublishedFile = "file";  // the key of [published]

bool is_setting_section(std::string_view name) {
  const auto sections = sections_of(fields());
  return std::find(sections.begin(), sections.end(), name) != sections.end();
}

// The setting of this name. Null if the section has no such setting.
const Field* find_setting(std::string_view section, std::string_view name) {
  for (const auto& field : fields())
    if (field.role == FieldRole::setting && field.section == section && field.name == name) return &field;
  return nullptr;
}

// The axis or setting that a key of --set names: "query_len", "deadline_s" or "limits.deadline_s". Null if there is
// none.
const Field* find_overridden(std::string_view key) {
  const auto dot = key.find('.');
  return dot == std::string_view::npos ? find_field(key) : find_setting(key.substr(0, dot), key.substr(dot + 1));
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The values of "first-last*factor" or "first-last+step", or nothing for text of another form. A range with too many values is
// cut to SweepFile::kMaxCases + 1 of them.
std::optional<std::vector<int64_t>> parse_range(std::string_view text) {
  const auto dash = text.find('-'), sign = text.find_first_of("*+");
  if (dash == std::string_view::npos || sign == std::string_view::npos || dash > sign) return std::nullopt;
  const auto first = whole_number(text.substr(0, dash)), last = whole_number(text.substr(dash + 1, sign - dash - 1)),
             step = whole_number(text.substr(sign + 1));
  const bool multiply = text[sign] == '*';
  if (!first || !last || !step || *first < 1 || *last < *first || *step < (multiply ? 2 : 1)) return std::nullopt;
  std::vector<int64_t> values;
  for (int64_t value = *first;;) {
    values.push_back(value);
    if (values.size() > SweepFile::kMaxCases) return values;
    if (multiply ? value > *last / *step : value > *last - *step) return values;
    value = multiply ? value * *step : value + *step;
  }
}

// The paths that the value of `plugins` lists. Throws UsageError for a value of another form.
std::vector<std::string> plugins_in(const std::string& path, const toml::node& value) {
  const auto* const list = value.as_array();
  if (!list) fail_at(path, value.source(), fmt::format("{} is {}, expected a list of files", kPlugins, type_text(value)));
  std::vector<std::string> plugins;
  for (const auto& item : *list) {
    const auto name = item.value_exact<std::string>();
    if (!name) fail_at(path, item.source(), fmt::format("{} lists {}, expected the path of a file", kPlugins, type_text(item)));
    plugins.push_back(*name);
  }
  return plugins;
}

Json described_key(std::string_view table, std::string_view key, std::string_view description, const Field* field = nullptr) {
  return {{"key", key},
          {"table", table},
          {"type", field ? type_name(find_column(field->name)->type) : type_name(ColumnType::text)},
          {"unit", field ? field->unit : std::string_view()},
          {"default", field ? default_json(*field) : Json()},
          {"choices", field ? Json(field->choices) : Json::array()},
          {"description", description}};
}

}  // namespace

Json sweep_keys() {
  Json keys = {described_key("", kDescription, "what the sweep measures; lists of sweeps and result folders show it"),
               described_key("", kPlugins, "list of libraries with further methods, by paths from the folder of the sweep file")};
  for (const auto& field : fields())
    if (field.role == FieldRole::axis) keys.push_back(described_key(kAxes, field.name, field.description, &field));
  const auto* baseline = find_field(kBaseline);
  keys.push_back(described_key(
      kAxes, kBaseline, fmt::format("for the cases of this table, in place of that of [{}]", baseline->section), baseline));
  keys.push_back(
      described_key(kAxes, kShape,
                    "released model whose heads, dimensions and pattern the table has, as far as it does not set them; "
                    "see `attnbench list shapes`"));
  for (const auto& field : fields())
    if (field.role == FieldRole::setting && !field.test_hook)
      keys.push_back(described_key(field.section, field.name, field.description, &field));
  keys.push_back(described_key(kPublished, kPublishedFile,
                               "CSV file of values published elsewhere, which are shown beside the measured ones, by its path "
                               "from the folder of the sweep file"));
  return keys;
}

std::vector<std::string> plugins_of(const std::string& path) {
  const auto file = read_toml(path);
  const auto* const value = file.get(kPlugins);
  return value ? plugins_in(path, *value) : std::vector<std::string>();
}

WorkerProgram with_plugins_of(const std::string& path, WorkerProgram worker) {
  const auto file = read_toml(path);
  const auto* const value = file.get(kPlugins);
  if (!value) return worker;
  auto plugins = plugins_in(path, *value);
  for (auto& plugin : plugins) plugin = (std::filesystem::path(path).parent_path() / plugin).string();
  try {
    return with_plugins(std::move(worker), plugins);
  } catch (const UsageError& error) {
    fail_at(path, value->source(), error.what());
  }
}

class SweepParser : public TomlReader {
 public:
  SweepParser(SweepFile& sweep, std::string path, const Catalogue& catalogue, std::string like)
      : TomlReader(std::move(path)), sweep_(sweep), like_(std::move(like)), catalogue_(catalogue) {}

  void parse_file() {
    const auto file = read_toml(path_);
    for (const auto& [key, value] : file) {
      const std::string name(key.str());
      if (name == kDescription) sweep_.description_ = text_of(value, name);
      else if (name == kAxes) parse_blocks(value);
      else if (is_setting_section(name)) parse_settings(name, table_of(value, name));
      else if (name == kPlugins) plugins_in(path_, value);
      else if (name == kPublished) parse_published(table_of(value, name));
      else fail_unknown_section(name, key.source());
    }
    if (sweep_.blocks_.empty()) sweep_.blocks_.emplace_back();
    for (auto& block : sweep_.blocks_)
      if (find_axis_in(block, "method") == nullptr && !methods_may_be_missing_)
        throw UsageError(fmt::format("{}: [axes] names no method", path_));
  }

  void replace_methods(const std::vector<std::string>& methods) {
    if (methods.empty()) return;
    toml::array list;
    for (const auto& method : methods) list.push_back(method);
    set_origin("--methods");
    for (auto& block : sweep_.blocks_) parse_axis(block, "method", list);
  }

  // `value` is written as in a sweep file; text may also stand without quotes.
  void override_setting(const std::string& key, const std::string& value) {
    set_origin("--set " + key);
    const auto parsed = parse_value(origin_, value);
    const auto& node = *parsed.get("value");
    if (const auto* field = find_overridden(key)) {
      if (field->role != FieldRole::axis) return parse_setting(*field, key, node);
      for (auto& block : sweep_.blocks_) parse_axis(block, key, node);
      return;
    }
    if (key == kShape) {
      for (auto& block : sweep_.blocks_) {
        std::erase_if(block.axes, [](const auto& axis) {
          const auto axes = axes_of(model_shapes().front());
          return std::any_of(axes.begin(), axes.end(), [&](const auto& one) { return one.first == axis.field->name; });
        });
        set_shape(block, node);
      }
      return;
    }
    auto known = axis_names();
    known.emplace_back(kShape);
    for (const auto& section : sections_of(fields()))
      for (const auto& name : names_in(fields(), section)) known.push_back(fmt::format("{}.{}", section, name));
    throw UsageError(fmt::format("--set: unknown key '{}'{}", key, suggestion(key, known)));
  }

  // Accepts a file that names no methods, because the command line names them.
  void allow_no_methods() { methods_may_be_missing_ = true; }

 private:
  [[noreturn]] void fail_unknown_section(const std::string& name, const toml::source_region& where) const {
    std::vector<std::string> known = {std::string(kDescription), std::string(kPlugins), std::string(kAxes)};
    for (auto& section : sections_of(fields())) known.push_back(std::move(section));
    known.emplace_back(kPublished);
    fail(where, fmt::format("unknown key '{}'{}", name, suggestion(name, known)));
  }

  static SweepFile::Axis* find_axis_in(SweepFile::Block& block, std::string_view name) {
    for (auto& axis : block.axes)
      if (axis.field->name == name) return &axis;
    return nullptr;
  }

  // `node` is a table [axes], or the list of tables [[axes]].
  void parse_blocks(const toml::node& node) {
    if (!node.is_array_of_tables()) return parse_axes(table_of(node, "axes"));
    for (const auto& table : *node.as_array()) parse_axes(*table.as_table());
  }

  void parse_axes(const toml::table& axes) {
    auto& block = sweep_.blocks_.emplace_back();
    auto known = axis_names();
    known.emplace_back(kBaseline);
    known.emplace_back(kShape);
    for (const auto& [key, value] : axes) {
      const std::string name(key.str());
      if (std::find(known.begin(), known.end(), name) == known.end())
        fail(key.source(), fmt::format("unknown key '{}' in [axes]{}", name, suggestion(name, known)));
      if (name == kBaseline) block.baseline = checked_baseline(text_of(value, name), value);
      else if (name != kShape) parse_axis(block, name, value);
    }
    if (const auto* shape = axes.get(kShape)) set_shape(block, *shape);
  }

  // Sets the axes of a released model that the block does not set.
  void set_shape(SweepFile::Block& block, const toml::node& node) {
    const auto name = text_of(node, kShape);
    try {
      for (const auto& [axis, value] : axes_of(find_model_shape(name))) {
        if (find_axis_in(block, axis) != nullptr) continue;
        auto& added = block.axes.emplace_back(SweepFile::Axis{find_field(axis), {}, {}, std::nullopt});
        add_value(added, value, node);
      }
    } catch (const std::invalid_argument& error) {
      fail(node.source(), error.what());
    }
  }

  // The value, if it names a method and axes that exist. Empty text, which stands for no baseline, is fine.
  std::string checked_baseline(const std::string& value, const toml::node& node) const {
    Case scratch;
    scratch.baseline = value;
    try {
      if (const auto baseline = baseline_of(scratch)) catalogue_.check(baseline->method);
    } catch (const std::exception& error) {
      fail(node.source(), error.what());
    }
    return value;
  }

  void parse_axis(SweepFile::Block& block, const std::string& name, const toml::node& node) {
    SweepFile::Axis axis{find_field(name), {}, {}, std::nullopt};
    if (const auto* list = node.as_array()) {
      check_count(list->size(), name, node);
      for (const auto& item : *list) parse_axis_value(axis, item);
      if (list->empty()) fail(node.source(), fmt::format("{} is an empty list, expected at least one value", name));
      if (axis.ratio && list->size() > 1)
        fail(node.source(), fmt::format("{} lists a ratio among other values, expected the ratio alone", name));
    } else {
      parse_axis_value(axis, node);
    }
    if (auto* existing = find_axis_in(block, name)) *existing = std::move(axis);
    else block.axes.push_back(std::move(axis));
  }

  void check_count(size_t values, std::string_view what, const toml::node& node) const {
    if (values > SweepFile::kMaxCases)
      fail(node.source(), fmt::format("{} has too many values, expected at most {}", what, SweepFile::kMaxCases));
  }

  void parse_axis_value(SweepFile::Axis& axis, const toml::node& node) {
    const auto& field = *axis.field;
    auto json = json_of(node, field.name);
    // key_lengths is text, but a number needs no quotes.
    if (field.name == "key_lengths" && json.is_number_integer()) json = json.dump();
    const bool integer = std::holds_alternative<int64_t Case::*>(field.member);
    if (integer && json.is_string()) {
      const auto& text = json.get_ref<const std::string&>();
      if (const auto range = parse_range(text)) {
        check_count(range->size(), fmt::format("{} = '{}'", field.name, text), node);
        for (const auto value : *range) add_value(axis, value, node);
        return;
      }
      if (const auto ratio = parse_ratio(text, field)) {
        axis.ratio = *ratio;
        return;
      }
      fail(node.source(),
           fmt::format("{} = '{}', expected a whole number, a range such as \"512-65536*2\" or \"16-64+16\", or a ratio such as "
                       "\"16384/query_len\"",
                       field.name, text));
    }
    add_value(axis, json, node);
  }

  std::optional<SweepFile::Ratio> parse_ratio(std::string_view text, const Field& of) const {
    const auto slash = text.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    const auto numerator = whole_number(text.substr(0, slash));
    const auto* axis = find_axis(text.substr(slash + 1));
    if (!numerator || *numerator < 1 || !axis || axis == &of || !std::holds_alternative<int64_t Case::*>(axis->member))
      return std::nullopt;
    return SweepFile::Ratio{*numerator, axis};
  }

  void add_value(SweepFile::Axis& axis, const Json& value, const toml::node& node) const {
    Case scratch;
    try {
      set(scratch, *axis.field, value);
      if (axis.field->name == "method") scratch.method = catalogue_.with_like(scratch.method, like_);
    } catch (const std::exception& error) {
      fail(node.source(), error.what());
    }
    throw_if_interrupted();
    axis.values.emplace_back(get(scratch, *axis.field));
    check_count(axis.values.size(), axis.field->name, node);
    axis.origins.push_back(origin_.empty() ? place_in_file(path_, node.source()) : origin_);
  }

  void parse_settings(const std::string& section, const toml::table& table) {
    for (const auto& [key, value] : table) {
      const std::string name(key.str());
      const auto* field = find_setting(section, name);
      if (!field)
        fail(key.source(),
             fmt::format("unknown key '{}' in [{}]{}", name, section, suggestion(name, names_in(fields(), section))));
      parse_setting(*field, section + "." + name, value);
    }
  }

  // `key` is the name of the setting as the user wrote it.
  void parse_setting(const Field& field, const std::string& key, const toml::node& node) {
    auto value = json_of(node, key);
    try {
      if (field.unit == "B" && value.is_string()) value = parse_bytes(value.get<std::string>());
      set(sweep_.settings_, field, value);
    } catch (const std::invalid_argument& error) {
      fail(node.source(), error.what());
    }
    if (field.name != kBaseline) return;
    checked_baseline(sweep_.settings_.baseline, node);
    if (!origin_.empty())  // the command line replaces those of all tables
      for (auto& block : sweep_.blocks_) block.baseline.reset();
  }

  void parse_published(const toml::table& table) {
    for (const auto& [key, value] : table) {
      const std::string name(key.str());
      if (name != kPublishedFile)
        fail(key.source(),
             fmt::format("unknown key '{}' in [{}]{}", name, kPublished, suggestion(name, {std::string(kPublishedFile)})));
      sweep_.published_ = Published((std::filesystem::path(path_).parent_path() / text_of(value, name)).string());
    }
  }

  SweepFile& sweep_;
  bool methods_may_be_missing_ = false;
  std::string like_;  // the option --like
  const Catalogue& catalogue_;
};

SweepFile::SweepFile(const std::string& path, const Catalogue& catalogue, const SweepOverrides& overrides)
    : stem_(std::filesystem::path(path).stem().string()) {
  SweepParser parser(*this, path, catalogue, overrides.like);
  if (!overrides.methods.empty()) parser.allow_no_methods();
  parser.parse_file();
  parser.replace_methods(overrides.methods);
  for (const auto& [key, value] : overrides.settings) parser.override_setting(key, value);
}

}  // namespace attnbench
