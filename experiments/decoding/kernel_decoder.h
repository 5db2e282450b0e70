// The decoder for float32 on the CPU, which computes a token with kernels of its own.
#pragma once

#include <memory>

#include "experiments/decoding/decoder.h"

namespace experiments {

// The model must be float32 on the CPU, in evaluation mode, and its method must decode from a state. options.kernel is an
// instruction set or "auto".
std::unique_ptr<Decoder> make_kernel_decoder(const SequenceModel& model, const DecoderOptions& options);

}  // namespace experiments
