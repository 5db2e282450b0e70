// Parses the Python dictionary at the beginning of an .npy file, in the form that numpy.save() writes.
#include "harness/worker/inputs/npy_description.h"

#include <charconv>

namespace attnbench {

std::optional<NpyDescription> parse_npy_description(std::string_view written) {
  std::string text;
  for (const auto c : written)
    if (c != ' ' && c != '\n') text += c;
  std::string_view rest(text);
  const auto skip = [&](std::string_view expected) {
    if (!rest.starts_with(expected)) return false;
    rest.remove_prefix(expected.size());
    return true;
  };
  NpyDescription description;
  if (!skip("{'descr':'")) return std::nullopt;
  const auto quote = rest.find('\'');
  if (quote == std::string_view::npos) return std::nullopt;
  description.dtype = rest.substr(0, quote);
  rest.remove_prefix(quote);
  if (!skip("','fortran_order':")) return std::nullopt;
  description.column_major = rest.starts_with("True");
  if (!skip(description.column_major ? "True,'shape':(" : "False,'shape':(")) return std::nullopt;
  while (!rest.starts_with(")")) {
    int64_t size = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), size);
    if (error != std::errc()) return std::nullopt;
    rest.remove_prefix(size_t(end - rest.data()));
    description.sizes.push_back(size);
    if (!skip(",") && !rest.starts_with(")")) return std::nullopt;
  }
  if (rest != ")}" && rest != "),}") return std::nullopt;
  return description;
}

}  // namespace attnbench
