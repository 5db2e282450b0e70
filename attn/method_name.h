// Where the name of a method ends in a text such as "linear-chunked:chunk=256" or "kernels/mine.py:attention:window=64". This
// file needs no LibTorch, so that the driver uses it as well.
#pragma once

#include <string_view>

namespace attn {

// Whether a method of this name is a function of a Python file: "FILE.py:FUNCTION" or, without its function, "FILE.py".
constexpr bool is_python_name(std::string_view name) {
  return name.ends_with(".py") || name.find(".py:") != std::string_view::npos;
}

// Whether a colon in this text before ".py" separates the options of a method that is no Python function, as in
// "method:option=x.py". The folders of a Python file may have colons in their names, too: "run-12:30/mine.py".
constexpr bool has_options_before_file(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) return false;
  const auto after = text.substr(colon + 1);
  return after.substr(0, after.find('/')).find('=') != std::string_view::npos;
}

// The name at the beginning of the text, without the options that follow a colon.
constexpr std::string_view method_name(std::string_view text) {
  constexpr std::string_view kEnding = ".py:";
  const auto file = text.find(kEnding);
  if (file != std::string_view::npos && !has_options_before_file(text.substr(0, file)))
    return text.substr(0, text.find(':', file + kEnding.size()));
  if (text.ends_with(".py") && !has_options_before_file(text)) return text;
  return text.substr(0, text.find(':'));
}

// The options of the text, "window=64,heads=2"; empty if it has none.
constexpr std::string_view method_options(std::string_view text) {
  const auto name = method_name(text);
  return name.size() < text.size() ? text.substr(name.size() + 1) : std::string_view();
}

struct PythonName {
  std::string_view file, function;  // the function is empty if the name has none
};
// The parts of a name for which is_python_name() holds.
constexpr PythonName split_python_name(std::string_view name) {
  const auto colon = name.find(".py:");
  if (colon == std::string_view::npos) return {name, {}};
  return {name.substr(0, colon + 3), name.substr(colon + 4)};
}

}  // namespace attn
