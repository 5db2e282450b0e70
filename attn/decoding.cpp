// The size of a decoding state.
#include "attn/decoding.h"

namespace attn {

int64_t DecodingState::bytes() const {
  int64_t total = 0;
  for (const auto& tensor : tensors()) total += int64_t(tensor.nbytes());
  return total;
}

}  // namespace attn
