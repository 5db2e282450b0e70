// MethodNames: how tables, answers and figures name methods, which is shorter than the text that a record has.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/schema/record.h"

namespace attnbench {

// The name of a Python method is its label or, without one, its text without the option `like`. Where two methods that are shown
// together would have the same name, each has its text without `like` and `as` or, if these are equal as well, its whole text.
// Other methods have their text.
class MethodNames {
 public:
  // Names every method by its whole text.
  MethodNames() = default;
  // `all` are the records that are shown together.
  explicit MethodNames(const std::vector<const Record*>& all);
  explicit MethodNames(const std::vector<Record>& all);
  // Pairs of the text and the label, which is empty for a method without one.
  explicit MethodNames(const std::vector<std::pair<std::string, std::string>>& methods);

  // The name of a method with this text. One that is not among those that are shown together is named by its whole text.
  const std::string& of(const std::string& method) const;
  std::string of(const Record& record) const { return of(record.text("method")); }
  // The text of the method with this name; `name` itself if it is the text of a method, or no method has it.
  std::string text_of(const std::string& name) const;
  // The column `baseline` of a record with the name of the method that it begins with.
  std::string baseline_name(const Record& record) const;

 private:
  std::map<std::string, std::string> names_;  // by the whole text
};

}  // namespace attnbench
