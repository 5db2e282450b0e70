// The dates of records as numbers.
#pragma once

#include <cstdint>
#include <string>

namespace attnbench {

// The seconds since 1970 of a date such as 2026-11-25T01:44:28Z, which is UTC. Throws UsageError for any other text.
int64_t seconds_since_1970(const std::string& date);

}  // namespace attnbench
