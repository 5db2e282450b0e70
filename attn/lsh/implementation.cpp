#include "attn/lsh/implementation.h"

#include "attn/lsh/cpu/implementation.h"

namespace attn {

LshRegistry& lsh_implementations() {
  static LshRegistry registry("lsh_attention", cpu::find_lsh);
  return registry;
}

}  // namespace attn
