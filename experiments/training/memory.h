// The memory of this process.
#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace experiments {

// The maximum of the resident memory so far, in bytes.
inline int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss << 10;
}

}  // namespace experiments
