#include "attn/recurrent/implementation.h"

#include "attn/recurrent/cpu/implementation.h"

namespace attn {

RecurrentRegistry& recurrent_implementations() {
  static RecurrentRegistry registry("recurrent_attention", cpu::find_recurrent);
  return registry;
}

}  // namespace attn
