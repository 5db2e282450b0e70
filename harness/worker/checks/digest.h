// A digest of results, by which processes of a case find that they computed the same bits.
#pragma once

#include <string>

#include "harness/worker/call.h"

namespace attnbench {

// 16 hexadecimal digits: a 64-bit hash of the sizes, dtypes and entries of the output and of the gradients. Results that differ
// have the same digest with a probability of about 2^-64. Reads tensors on a GPU through copies on the CPU.
std::string digest_of(const Results& results);

}  // namespace attnbench
