// The typed options of a method, and the text form of a method with its options: "linear-chunked:chunk=256".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace attn {

using OptionValue = std::variant<int64_t, double, bool, std::string>;

// The largest value of an integer option that declares no other.
inline constexpr int64_t kMaxOption = int64_t{1} << 24;
// The largest seed.
inline constexpr int64_t kMaxSeed = int64_t{1} << 62;

// Declares one option, whose type is that of its default value.
struct OptionSpec {
  std::string name;
  OptionValue default_value;
  std::string description;
  std::vector<std::string> choices;  // the values that a text option accepts; empty if it accepts any text
  int64_t min = 1;                   // the range of an integer option
  int64_t max = kMaxOption;
};

// "integer", "number", "boolean" or "text".
std::string option_type(const OptionValue& value);

// The values of a method's options: the given ones, and the default values of the others.
class Options {
 public:
  // `given` holds the options that the user wrote, as pairs (name, value). Throws c10::ValueError for an unknown option, listing
  // the known ones, for an option that is given twice, and for a bad value, naming the method, the option, its value and what was
  // expected.
  Options(const std::string& method, const std::vector<OptionSpec>& specs,
          const std::vector<std::pair<std::string, std::string>>& given);

  int64_t integer(const std::string& name) const { return std::get<int64_t>(values_.at(name)); }
  const std::string& text(const std::string& name) const { return std::get<std::string>(values_.at(name)); }
  const OptionValue& value(const std::string& name) const { return values_.at(name); }

 private:
  std::map<std::string, OptionValue> values_;
};

// The parts of "name" or "name:option=value,option=value". attn/method_name.h says what is a name.
struct MethodSpec {
  std::string name;
  std::vector<std::pair<std::string, std::string>> options;

  // Options have their current names (attn/former_options.h). Throws c10::ValueError for text of another form.
  static MethodSpec parse(const std::string& text);
};

}  // namespace attn
