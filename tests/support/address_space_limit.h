// AddressSpaceLimit: while it exists, the process can allocate only a given number of bytes beyond what it has. An allocation
// that exceeds them throws std::bad_alloc or an error of LibTorch, even if its memory is never touched. Under AddressSanitizer,
// which ends the process instead, there is no limit.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <stdexcept>

namespace attnbench {

class AddressSpaceLimit {
 public:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr bool kLimits = false;
#else
  static constexpr bool kLimits = true;
#endif
  explicit AddressSpaceLimit(uint64_t extra_bytes) {
    if (getrlimit(RLIMIT_AS, &before_) != 0) throw std::runtime_error("cannot read the limit of the address space");
    if (!kLimits) return;
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    if (pages == 0) throw std::runtime_error("cannot read the size of the address space");
    auto limit = before_;
    limit.rlim_cur = pages * uint64_t(sysconf(_SC_PAGESIZE)) + extra_bytes;
    if (setrlimit(RLIMIT_AS, &limit) != 0) throw std::runtime_error("cannot limit the address space");
  }
  ~AddressSpaceLimit() { setrlimit(RLIMIT_AS, &before_); }
  AddressSpaceLimit(const AddressSpaceLimit&) = delete;
  AddressSpaceLimit& operator=(const AddressSpaceLimit&) = delete;

 private:
  rlimit before_ = {};
};

}  // namespace attnbench
