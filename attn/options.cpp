// Reads options of methods from text, and writes them as text.
#include "attn/options.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "attn/former_options.h"
#include "attn/method_name.h"
#include "attn/refusal.h"

namespace attn {
namespace {

std::string join(const std::vector<std::string>& words) {
  std::string joined;
  for (const auto& word : words) joined += (joined.empty() ? "" : ", ") + word;
  return joined;
}

template <class Number>
bool parse_number(const std::string& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

OptionValue parse_value(const std::string& method, const OptionSpec& spec, const std::string& text) {
  const auto refuse = [&](const std::string& expected) {
    TORCH_CHECK_VALUE(false, method, ": ", spec.name, " = '", text, "', expected ", expected);
  };
  if (std::holds_alternative<int64_t>(spec.default_value)) {
    int64_t number = 0;
    if (!parse_number(text, number) || number < spec.min || number > spec.max)
      refuse("a whole number from " + std::to_string(spec.min) + " to " + std::to_string(spec.max));
    return number;
  }
  if (std::holds_alternative<double>(spec.default_value)) {
    double number = 0;
    if (!parse_number(text, number)) refuse("a number");
    return number;
  }
  if (std::holds_alternative<bool>(spec.default_value)) {
    if (text != "true" && text != "false") refuse("true or false");
    return text == "true";
  }
  if (!spec.choices.empty() && std::find(spec.choices.begin(), spec.choices.end(), text) == spec.choices.end())
    refuse("one of " + join(spec.choices));
  return text;
}

}  // namespace

std::string option_type(const OptionValue& value) {
  static const char* const names[] = {"integer", "number", "boolean", "text"};
  return names[value.index()];
}

Options::Options(const std::string& method, const std::vector<OptionSpec>& specs,
                 const std::vector<std::pair<std::string, std::string>>& given) {
  std::vector<std::string> known;
  for (const auto& spec : specs) {
    values_.emplace(spec.name, spec.default_value);
    known.push_back(spec.name);
  }
  std::set<std::string> seen;
  for (const auto& [key, value] : given) {
    const auto& name = key;
    const auto spec = std::find_if(specs.begin(), specs.end(), [&](const OptionSpec& s) { return s.name == name; });
    if (spec == specs.end())
      throw Refusal(Refusal::Kind::unknown, "method",
                    method + ": unknown option '" + key + "'; " + (known.empty() ? "it has none" : "known: " + join(known)));
    TORCH_CHECK_VALUE(seen.insert(key).second, method, ": option '", key, "' is given twice");
    values_[key] = parse_value(method, *spec, value);
  }
}

MethodSpec MethodSpec::parse(const std::string& given) {
  const auto text = with_current_options(given);
  MethodSpec spec;
  spec.name = method_name(text);
  if (spec.name.size() == text.size()) return spec;
  for (size_t begin = spec.name.size() + 1; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    const auto item = text.substr(begin, end - begin);
    const auto equals = item.find('=');
    TORCH_CHECK_VALUE(equals != std::string::npos && equals > 0, "method '", text, "': '", item,
                      "' is not of the form option=value");
    spec.options.emplace_back(item.substr(0, equals), item.substr(equals + 1));
    begin = end + 1;
  }
  return spec;
}

}  // namespace attn
