// The names that options of methods had before. Sweep files, records and calibrations that were written with them name the same
// cases as ever. Driver and worker convert each text of a method that they read, so that one form is compared, shown and written.
// This file needs no LibTorch.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "attn/method_name.h"

namespace attn {

struct FormerOption {
  std::string_view method, former, current;
};

// Only these methods had the options, so that an option of a plug-in or a Python function may have such a name.
inline constexpr FormerOption kFormerOptions[] = {
    {"linear", "kernel", "implementation"},       {"linear-elu0.1", "kernel", "implementation"},
    {"lsh", "kernel", "implementation"},          {"lsh-1", "kernel", "implementation"},
    {"lsh-4", "kernel", "implementation"},        {"lsh-8", "kernel", "implementation"},
    {"lsh-composed", "kernel", "implementation"}, {"taylor", "kernel", "implementation"},
    {"taylor", "chunk", "composed_chunk"},        {"polynomial-2", "kernel", "implementation"},
    {"polynomial-2", "chunk", "composed_chunk"},  {"favor", "kernel", "implementation"},
    {"favor", "chunk", "composed_chunk"},
};

namespace detail {
inline std::string with_renamed_options(std::string_view text, std::string_view FormerOption::*from,
                                        std::string_view FormerOption::*to) {
  const auto name = method_name(text);
  std::string renamed(name);
  char separator = ':';
  for (auto options = method_options(text); name.size() + 1 < text.size();) {
    const auto option = options.substr(0, options.find(','));
    const auto key = option.substr(0, option.find('='));
    const auto* const found = std::find_if(std::begin(kFormerOptions), std::end(kFormerOptions), [&](const FormerOption& one) {
      return one.method == name && one.*from == key && key.size() < option.size();
    });
    renamed += separator;
    renamed += found == std::end(kFormerOptions) ? key : found->*to;
    renamed += option.substr(key.size());
    separator = ',';
    if (option.size() == options.size()) return renamed;
    options.remove_prefix(option.size() + 1);
  }
  return std::string(text);
}
}  // namespace detail

// The text of a method with the current names of its options: "linear:implementation=avx2" for "linear:kernel=avx2". Axes may
// follow, as in the text of a baseline: "linear:kernel=avx2 query_len=1024".
inline std::string with_current_options(std::string_view text) {
  return detail::with_renamed_options(text, &FormerOption::former, &FormerOption::current);
}

// The same text with the names that a program of an earlier version knows.
inline std::string with_former_options(std::string_view text) {
  return detail::with_renamed_options(text, &FormerOption::current, &FormerOption::former);
}

}  // namespace attn
