#include "attn/linear/implementation.h"

#include "attn/linear/cpu/implementation.h"

namespace attn {

LinearRegistry& linear_implementations() {
  static LinearRegistry registry("linear_attention", cpu::find_linear);
  return registry;
}

}  // namespace attn
