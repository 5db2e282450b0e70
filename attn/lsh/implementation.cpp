// The registry of implementations of LSH attention.
#include "attn/lsh/implementation.h"

namespace attn {

LshRegistry& lsh_implementations() {
  static LshRegistry registry("lsh_attention");
  return registry;
}

}  // namespace attn
