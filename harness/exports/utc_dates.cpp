// Reads dates with the C library.
#include "harness/exports/utc_dates.h"

#include <fmt/format.h>

#include <ctime>

#include "harness/text/errors.h"
#include "harness/text/safe_text.h"

namespace attnbench {

int64_t seconds_since_1970(const std::string& date) {
  std::tm tm{};
  const char* end = strptime(date.c_str(), "%Y-%m-%dT%H:%M:%SZ", &tm);
  if (end == nullptr || *end != '\0')
    throw UsageError(fmt::format("a record was finished at '{}', expected a date such as 2026-11-25T01:44:28Z", safe_text(date)));
  return timegm(&tm);
}

}  // namespace attnbench
