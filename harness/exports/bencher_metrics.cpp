// Writes an object for each case, with an object for each of its measures.
#include "harness/exports/bencher_metrics.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/text/errors.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

constexpr std::ptrdiff_t kLongestName = 1024;

// The number of UTF-8 characters: of bytes that do not continue a character.
std::ptrdiff_t characters_of(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace

Json bencher_metrics(const std::vector<ExportedCase>& cases) {
  auto made = Json::object();
  for (const auto& exported : cases) {
    if (const auto length = characters_of(exported.name); length > kLongestName)
      throw UsageError(fmt::format("the name of the case {} has {} characters, expected at most {}, which Bencher takes",
                                   shortened(exported.name, 60), length, kLongestName));
    auto& metrics = made[exported.name] = Json::object();
    for (const auto& measure : measures_of(*exported.record)) {
      const bool is_time = measure.name == "time";
      const double factor = is_time ? 1e9 : 1;
      auto& metric = metrics[is_time ? "latency" : measure.name] = {{"value", measure.value * factor}};
      if (!measure.has_interval()) continue;
      metric["lower_value"] = measure.interval.low * factor;
      metric["upper_value"] = measure.interval.high * factor;
    }
  }
  return made;
}

}  // namespace attnbench
