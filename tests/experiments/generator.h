/// A random generator for tests.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <cstdint>

namespace attnbench {

/// A generator of the CPU that gives the same numbers for the same seed.
inline at::Generator seeded(uint64_t seed) { return at::make_generator<at::CPUGeneratorImpl>(seed); }

}  // namespace attnbench
