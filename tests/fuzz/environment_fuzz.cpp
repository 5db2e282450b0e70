// Fuzzes the reading of environment.json. For any bytes, parse_environment() must throw a UsageError or return an object, and it
// must be possible to compare that object with another one and with records.
#include <cstdlib>
#include <string_view>

#include "harness/records/environment_file.h"
#include "harness/records/provenance.h"
#include "harness/text/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace attnbench;
  static const std::vector<Record> records = [] {
    Case c;
    c.method = "linear";
    return std::vector<Record>{Record(c)};
  }();
  static const Json usual = {{"environment", {{"revision", "a"}, {"processors", 2}}}, {"settings", {{"deadline_s", 120}}}};
  try {
    const auto environment = parse_environment("environment.json", {reinterpret_cast<const char*>(data), size});
    if (!environment.is_object()) std::abort();
    provenance_differences(environment, usual, ComparedNames::both);
    provenance_differences(usual, environment, ComparedNames::here);
    record_differences(environment, records);
  } catch (const UsageError&) {
  }
  return 0;
}
