// Reads a pattern from its text, and refuses one that is malformed.
#include "attn/pattern.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <charconv>
#include <optional>
#include <string_view>

#include "attn/refusal.h"

namespace attn {
namespace {

constexpr auto kForms =
    "all, window:W, window:W+first:k, window:W+global:m, global:m, strided:l, dilated:W/d or block:B/c with whole numbers";
constexpr int64_t kMaxNumber = int64_t{1} << 30;

[[noreturn]] void refuse(const std::string& text, const std::string& reason) {
  throw Refusal(Refusal::Kind::wrong, "pattern", "pattern = '" + text + "'" + reason);
}

// Reads the terms of a pattern, "name:number" or "name:number/number", which are joined by "+".
class PatternReader {
 public:
  explicit PatternReader(const std::string& text) : text_(text), rest_(text) {}

  bool is_at_end() const { return rest_.empty(); }

  // Reads `name` and a colon, if they come next.
  bool reads(std::string_view name) {
    if (!rest_.starts_with(name) || !rest_.substr(name.size()).starts_with(':')) return false;
    rest_.remove_prefix(name.size() + 1);
    return true;
  }
  bool reads_character(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  int64_t number(const char* what) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error == std::errc::invalid_argument) fail();
    if (error != std::errc{} || value < 1 || value > kMaxNumber)
      refuse(text_, std::string(": the ") + what + " is out of range, expected 1 to " + std::to_string(kMaxNumber));
    rest_.remove_prefix(size_t(end - rest_.data()));
    return value;
  }
  [[noreturn]] void fail() const { refuse(text_, std::string(", expected ") + kForms); }

 private:
  const std::string& text_;
  std::string_view rest_;
};

}  // namespace

Pattern Pattern::parse(const std::string& text) {
  Pattern pattern;
  if (text == "all") return pattern;
  PatternReader reader(text);
  if (reader.reads("window")) {
    pattern.kind = Kind::window;
    pattern.size = reader.number("window");
    if (reader.reads_character('+')) {
      if (reader.reads("first")) pattern.first = reader.number("number of first keys");
      else if (reader.reads("global")) pattern.global = reader.number("number of global positions");
      else reader.fail();
    }
  } else if (reader.reads("global")) {
    pattern.kind = Kind::none;
    pattern.global = reader.number("number of global positions");
  } else if (reader.reads("strided")) {
    pattern.kind = Kind::strided;
    pattern.size = reader.number("stride");
  } else if (reader.reads("dilated")) {
    pattern.kind = Kind::dilated;
    pattern.size = reader.number("window");
    if (!reader.reads_character('/')) reader.fail();
    pattern.step = reader.number("dilation");
  } else if (reader.reads("block")) {
    pattern.kind = Kind::block;
    pattern.size = reader.number("block");
    if (!reader.reads_character('/')) reader.fail();
    pattern.step = reader.number("number of last positions");
    if (pattern.step > pattern.size)
      refuse(text,
             ": a block of " + std::to_string(pattern.size) + " has no " + std::to_string(pattern.step) + " last positions");
  } else {
    reader.fail();
  }
  if (!reader.is_at_end()) reader.fail();
  return pattern;
}

std::string Pattern::text() const {
  const auto term = [](const char* name, int64_t number) { return std::string(name) + ":" + std::to_string(number); };
  switch (kind) {
    case Kind::all: return "all";
    case Kind::none: return term("global", global);
    case Kind::window:
      return term("window", size) + (first > 0 ? term("+first", first) : "") + (global > 0 ? term("+global", global) : "");
    case Kind::strided: return term("strided", size);
    case Kind::dilated: return term("dilated", size) + "/" + std::to_string(step);
    case Kind::block: return term("block", size) + "/" + std::to_string(step);
  }
  return "";
}

at::Tensor Pattern::visible(const at::Tensor& i, const at::Tensor& j) const {
  const auto difference = i - j;
  const auto distance = difference.abs();
  const auto block_of = [&](const at::Tensor& position) { return position.div(size, "floor"); };
  at::Tensor seen;
  switch (kind) {
    case Kind::all: return at::ones_like(difference, at::kBool);
    case Kind::none: seen = at::zeros_like(difference, at::kBool); break;
    case Kind::window: seen = distance < size; break;
    case Kind::strided: seen = (distance < size).logical_or(difference.remainder(size) == 0); break;
    case Kind::dilated: seen = (distance < size * step).logical_and(difference.remainder(step) == 0); break;
    case Kind::block:
      seen = (block_of(i) == block_of(j)).logical_or((block_of(j) < block_of(i)).logical_and(j.remainder(size) >= size - step));
      break;
  }
  if (first > 0) seen = seen.logical_or(j < first);
  if (global > 0) seen = seen.logical_or(j < global).logical_or((i >= 0).logical_and(i < global));
  return seen;
}

}  // namespace attn
