// Typed options of a method, and the text form that names a method with its options: "linear:chunk=256".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace attn {

using OptionValue = std::variant<int64_t, double, bool, std::string>;

// Declares one option; the type is the default's.
struct OptionSpec {
  std::string name;
  OptionValue default_value;
  std::string description;
  std::vector<std::string> choices;  // for text options; empty = any
  int64_t least = 1;                 // for integer options
};

std::string option_type(const OptionValue& value);  // "integer", "number", "boolean" or "text"

// The values of a method's options: what was given, and the defaults for the rest.
class Options {
 public:
  // `given` as written, key by key. Throws c10::ValueError that names the method, the option, its value and what was
  // expected; an unknown or repeated key lists the known ones.
  Options(const std::string& method, const std::vector<OptionSpec>& specs,
          const std::vector<std::pair<std::string, std::string>>& given);

  int64_t integer(const std::string& name) const { return std::get<int64_t>(values_.at(name)); }
  const std::string& text(const std::string& name) const { return std::get<std::string>(values_.at(name)); }

 private:
  std::map<std::string, OptionValue> values_;
};

// "name" or "name:key=value,key=value" taken apart.
struct MethodSpec {
  std::string name;
  std::vector<std::pair<std::string, std::string>> options;

  static MethodSpec parse(const std::string& text);
};

}  // namespace attn
