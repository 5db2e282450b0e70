// The typed options of a method, and the text form of a method with its options: "linear:chunk=256".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace attn {

using OptionValue = std::variant<int64_t, double, bool, std::string>;

// Declares one option. Its type is that of the default value.
struct OptionSpec {
  std::string name;
  OptionValue default_value;
  std::string description;
  std::vector<std::string> choices;  // of a text option; empty: any text
  int64_t min = 1;                   // of an integer option
};

// "integer", "number", "boolean" or "text".
std::string option_type(const OptionValue& value);

// The values of a method's options: those that were given, and the defaults of the others.
class Options {
 public:
  // `given` holds the options as the user wrote them, (name, value) by (name, value). Throws c10::ValueError that names the
  // method, the option, its value and what was expected; for an unknown option it lists the known ones.
  Options(const std::string& method, const std::vector<OptionSpec>& specs,
          const std::vector<std::pair<std::string, std::string>>& given);

  int64_t integer(const std::string& name) const { return std::get<int64_t>(values_.at(name)); }
  const std::string& text(const std::string& name) const { return std::get<std::string>(values_.at(name)); }

 private:
  std::map<std::string, OptionValue> values_;
};

// The parts of "name" or "name:option=value,option=value".
struct MethodSpec {
  std::string name;
  std::vector<std::pair<std::string, std::string>> options;

  // Throws c10::ValueError for text of another form.
  static MethodSpec parse(const std::string& text);
};

}  // namespace attn
