// The implementations of recurrent attention for the CPU.
#pragma once

#include "attn/recurrent/implementation.h"

namespace attn::cpu {

// See ImplementationRegistry::Find.
const RecurrentImplementation* find_recurrent(const ImplementationRequest& request);

}  // namespace attn::cpu
